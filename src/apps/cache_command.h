// minke cache: what lies in a directory of the disk tier, and its care.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "prefix_cache/block_store.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace minke {

enum class CacheAction { kStats, kList, kVerify, kGc, kExport, kImport, kForget };

inline constexpr int64_t kCacheListLinesDefault = 50;

struct CacheCommandFlags {
  CacheAction action = CacheAction::kStats;
  std::string kv_disk;
  std::optional<std::string> tenant;  // a name; none: all tenants
  std::string file;                   // of export and import
  std::string kv_disk_budget;         // sizes as texts, checked already; empty: the default
  std::string snapshot_budget;
  int64_t limit = kCacheListLinesDefault;  // lines of ls; 0: all
  bool records = false;                    // ls: records, not chains
  bool remove = false;                     // verify: removes what is damaged
  bool json = false;
};

// Adds the command with its own commands. `flags` outlives the app.
CLI::App* AddCache(CLI::App& app, CacheCommandFlags* flags);
// Returns an exit code and has said on stderr what went wrong.
int RunCache(const CacheCommandFlags& flags);

// ---- cache_listing.cc: tables of records ----

// Sums over the records of one model and tenant.
struct CacheShare {
  CacheKey fingerprint;
  CacheKey tenant;
  int64_t blocks = 0;
  int64_t snapshots = 0;
  int64_t row_bytes = 0;
  int64_t snapshot_bytes = 0;
  int64_t last_used_us = 0;
};
// The share used last comes first.
std::vector<CacheShare> SharesOf(const std::vector<ListedRecord>& records);

// A longest chain of blocks with the snapshots on its way; one of no blocks has one snapshot.
struct ListedChain {
  const ListedRecord* end = nullptr;  // the last block, or the snapshot; one of the records
  int64_t tokens = 0;                 // up to its end or its last snapshot, whichever is later
  int64_t blocks = 0;
  int64_t snapshots = 0;
  int64_t bytes = 0;  // of all that, shared with other chains or not
  int64_t last_used_us = 0;
};
// The chain used last comes first. `records` outlive what is returned.
std::vector<ListedChain> ChainsOf(const std::vector<ListedRecord>& records);

std::string SharesText(const std::vector<CacheShare>& shares, int64_t now_us);
// At most `limit` lines, and how many more there are.
std::string ChainsText(const std::vector<ListedChain>& chains, int64_t limit, int64_t now_us);
std::string RecordsText(const std::vector<ListedRecord>& records, int64_t limit, int64_t now_us);

Json ShareJson(const CacheShare& share);
Json ChainJson(const ListedChain& chain);
Json RecordJson(const ListedRecord& record);

// "5 min ago"
std::string AgoText(int64_t then_us, int64_t now_us);

}  // namespace minke

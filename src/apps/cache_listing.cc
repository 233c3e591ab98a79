// Tables and JSON of the records in a cache directory. Names of tenants and models are digests, of
// which tables show the first digits.
#include <algorithm>
#include <limits>
#include <map>
#include <unordered_map>
#include <unordered_set>
#include <utility>

#include <fmt/format.h>

#include "apps/cache_command.h"
#include "simulator/capacity.h"

namespace minke {
namespace {

constexpr size_t kShortKeyDigits = 8;    // of tenants and models, of which there are few
constexpr size_t kRecordKeyDigits = 16;  // of records
constexpr int64_t kSecondUs = 1000000;
constexpr int64_t kMinuteSeconds = 60;
constexpr int64_t kHourSeconds = 60 * kMinuteSeconds;
constexpr int64_t kDaySeconds = 24 * kHourSeconds;

std::string ShortKey(const CacheKey& key, size_t digits = kShortKeyDigits) {
  return KeyText(key).substr(0, digits);
}

std::string TenantText(const CacheKey& tenant) {
  return tenant == TenantKey("") ? "-" : ShortKey(tenant);
}

const char* KindText(RecordKind kind) {
  return kind == RecordKind::kBlock ? "block" : "snapshot";
}

std::string MoreText(size_t count, int64_t limit, const char* what) {
  const auto more = static_cast<int64_t>(count) - limit;
  if (limit == 0 || more <= 0) return "";
  return fmt::format("... and {} more {} (--limit 0 shows all)\n", more, what);
}

size_t LinesOf(size_t count, int64_t limit) {
  return limit == 0 ? count : std::min(count, static_cast<size_t>(limit));
}

template <typename T>
void SortByUse(std::vector<T>& lines) {
  std::stable_sort(lines.begin(), lines.end(),
                   [](const T& a, const T& b) { return a.last_used_us > b.last_used_us; });
}

// Adds a record to a chain that it is part of.
void AddTo(ListedChain& chain, const ListedRecord& record) {
  ++(record.info.kind == RecordKind::kBlock ? chain.blocks : chain.snapshots);
  chain.bytes += record.info.payload_bytes;
  chain.tokens = std::max(chain.tokens, record.info.end_position);
  chain.last_used_us = std::max(chain.last_used_us, record.last_used_us);
}

}  // namespace

std::string AgoText(int64_t then_us, int64_t now_us) {
  const int64_t seconds = std::max<int64_t>(0, now_us - then_us) / kSecondUs;
  if (seconds < kMinuteSeconds) return fmt::format("{} s ago", seconds);
  if (seconds < kHourSeconds) return fmt::format("{} min ago", seconds / kMinuteSeconds);
  if (seconds < kDaySeconds) return fmt::format("{} h ago", seconds / kHourSeconds);
  return fmt::format("{} d ago", seconds / kDaySeconds);
}

std::vector<CacheShare> SharesOf(const std::vector<ListedRecord>& records) {
  std::map<std::pair<CacheKey, CacheKey>, CacheShare> sums;
  for (const ListedRecord& record : records) {
    CacheShare& share = sums[{record.info.fingerprint, record.info.tenant}];
    const bool is_block = record.info.kind == RecordKind::kBlock;
    share.fingerprint = record.info.fingerprint;
    share.tenant = record.info.tenant;
    ++(is_block ? share.blocks : share.snapshots);
    (is_block ? share.row_bytes : share.snapshot_bytes) += record.info.payload_bytes;
    share.last_used_us = std::max(share.last_used_us, record.last_used_us);
  }
  std::vector<CacheShare> shares;
  shares.reserve(sums.size());
  for (const auto& [keys, share] : sums) {
    shares.push_back(share);
  }
  SortByUse(shares);
  return shares;
}

std::vector<ListedChain> ChainsOf(const std::vector<ListedRecord>& records) {
  std::unordered_map<CacheKey, const ListedRecord*, CacheKeyHash> blocks;
  std::unordered_map<CacheKey, std::vector<const ListedRecord*>, CacheKeyHash> snapshots;
  std::unordered_set<CacheKey, CacheKeyHash> has_child;
  for (const ListedRecord& record : records) {
    if (record.info.kind == RecordKind::kSnapshot) {
      snapshots[record.info.parent].push_back(&record);
    } else {
      blocks[record.info.key] = &record;
      has_child.insert(record.info.parent);
    }
  }
  std::vector<ListedChain> chains;
  for (const ListedRecord& record : records) {
    const bool is_block = record.info.kind == RecordKind::kBlock;
    if (is_block ? has_child.contains(record.info.key) : blocks.contains(record.info.parent)) {
      continue;
    }
    ListedChain chain = {.end = &record};
    if (!is_block) AddTo(chain, record);
    // A damaged index may name a record its own parent, so positions have to fall.
    int64_t position = std::numeric_limits<int64_t>::max();
    for (auto at = blocks.find(record.info.key); at != blocks.end();
         at = blocks.find(at->second->info.parent)) {
      if (at->second->info.end_position >= position) break;
      position = at->second->info.end_position;
      AddTo(chain, *at->second);
      const auto here = snapshots.find(at->first);
      if (here == snapshots.end()) continue;
      for (const ListedRecord* snapshot : here->second) {
        AddTo(chain, *snapshot);
      }
    }
    chains.push_back(chain);
  }
  SortByUse(chains);
  return chains;
}

// ---- for reading ----

std::string SharesText(const std::vector<CacheShare>& shares, int64_t now_us) {
  std::string text = fmt::format("{:<10}{:<10}{:>12}{:>12}{:>11}{:>12}  {}\n", "MODEL", "TENANT",
                                 "TOKENS", "ROWS", "SNAPSHOTS", "BYTES", "USED");
  for (const CacheShare& share : shares) {
    text += fmt::format("{:<10}{:<10}{:>12}{:>12}{:>11}{:>12}  {}\n", ShortKey(share.fingerprint),
                        TenantText(share.tenant), share.blocks * kCacheBlockTokens,
                        BytesText(share.row_bytes), share.snapshots,
                        BytesText(share.snapshot_bytes), AgoText(share.last_used_us, now_us));
  }
  return text;
}

std::string ChainsText(const std::vector<ListedChain>& chains, int64_t limit, int64_t now_us) {
  std::string text = fmt::format("{:>9}{:>9}{:>11}{:>12}  {:<12}{:<10}{:<10}{}\n", "TOKENS",
                                 "BLOCKS", "SNAPSHOTS", "BYTES", "USED", "TENANT", "MODEL", "END");
  for (size_t i = 0; i < LinesOf(chains.size(), limit); ++i) {
    const ListedChain& chain = chains[i];
    const RecordInfo& info = chain.end->info;
    text += fmt::format("{:>9}{:>9}{:>11}{:>12}  {:<12}{:<10}{:<10}{}\n", chain.tokens,
                        chain.blocks, chain.snapshots, BytesText(chain.bytes),
                        AgoText(chain.last_used_us, now_us), TenantText(info.tenant),
                        ShortKey(info.fingerprint), ShortKey(info.key, kRecordKeyDigits));
  }
  return text + MoreText(chains.size(), limit, "chains");
}

std::string RecordsText(const std::vector<ListedRecord>& records, int64_t limit, int64_t now_us) {
  std::string text = fmt::format("{:<10}{:>9}{:>12}  {:<12}{:<10}{:<18}{:<18}{}\n", "KIND",
                                 "TOKENS", "BYTES", "USED", "TENANT", "KEY", "PARENT", "PLACE");
  for (size_t i = 0; i < LinesOf(records.size(), limit); ++i) {
    const ListedRecord& record = records[i];
    const RecordInfo& info = record.info;
    text += fmt::format("{:<10}{:>9}{:>12}  {:<12}{:<10}{:<18}{:<18}{}+{}\n", KindText(info.kind),
                        info.end_position, BytesText(info.payload_bytes),
                        AgoText(record.last_used_us, now_us), TenantText(info.tenant),
                        ShortKey(info.key, kRecordKeyDigits),
                        ShortKey(info.parent, kRecordKeyDigits), record.segment, record.offset);
  }
  return text + MoreText(records.size(), limit, "records");
}

// ---- for programs ----

Json ShareJson(const CacheShare& share) {
  Json json;
  json.Set("model", KeyText(share.fingerprint));
  json.Set("tenant", KeyText(share.tenant));
  json.Set("blocks", share.blocks);
  json.Set("tokens", share.blocks * kCacheBlockTokens);
  json.Set("row_bytes", share.row_bytes);
  json.Set("snapshots", share.snapshots);
  json.Set("snapshot_bytes", share.snapshot_bytes);
  json.Set("last_used_us", share.last_used_us);
  return json;
}

Json ChainJson(const ListedChain& chain) {
  Json json;
  json.Set("tokens", chain.tokens);
  json.Set("blocks", chain.blocks);
  json.Set("snapshots", chain.snapshots);
  json.Set("bytes", chain.bytes);
  json.Set("last_used_us", chain.last_used_us);
  json.Set("tenant", KeyText(chain.end->info.tenant));
  json.Set("model", KeyText(chain.end->info.fingerprint));
  json.Set("end", KeyText(chain.end->info.key));
  return json;
}

Json RecordJson(const ListedRecord& record) {
  Json json;
  json.Set("kind", KindText(record.info.kind));
  json.Set("tokens", record.info.end_position);
  json.Set("bytes", record.info.payload_bytes);
  json.Set("created_us", record.created_us);
  json.Set("last_used_us", record.last_used_us);
  json.Set("tenant", KeyText(record.info.tenant));
  json.Set("model", KeyText(record.info.fingerprint));
  json.Set("key", KeyText(record.info.key));
  json.Set("parent", KeyText(record.info.parent));
  json.Set("segment", record.segment);
  json.Set("offset", record.offset);
  return json;
}

}  // namespace minke

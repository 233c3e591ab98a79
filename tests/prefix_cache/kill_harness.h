// Kills a process that writes to a store at random moments, opens what it left, and looks whether
// everything that it called published is there with the right bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include "prefix_cache/block_store.h"

namespace minke::testing {

struct PublishedBlock {
  int64_t chain = 0;
  int64_t index = 0;
  int64_t payload_bytes = 0;
};

struct KillReport {
  int64_t rounds = 0;
  int64_t published = 0;  // blocks, over all rounds
  int64_t lost = 0;       // of them, not there after a restart
  int64_t recovered = 0;  // found by the scan at opening
  int64_t damaged = 0;    // cut short by a kill, and removed
  int64_t retried = 0;    // of them, found damaged once more
  std::string failure;    // the first thing that went wrong; empty if nothing did
};

// Small segments and a small budget for snapshots: much happens in little time.
void UseKillOptions(StoreOptions* options);

class KillHarness {
 public:
  KillHarness(std::string worker, std::string directory, uint64_t seed);
  // One process from start to kill, and the look at what it left.
  void Round();
  // Reads every block that was ever published.
  void CheckAll();
  const KillReport& report() const { return report_; }

 private:
  std::vector<PublishedBlock> RunWorker();
  void Check(BlockStore& store, const PublishedBlock& block);
  void Fail(const std::string& failure);

  const std::string worker_;
  const std::string directory_;
  std::mt19937_64 random_;
  std::vector<PublishedBlock> published_;
  KillReport report_;
};

}  // namespace minke::testing

// The process that the kill test kills: mixed traffic on a store, for ever. Prints a line
// "P chain index payload_bytes" for every block after it is published.
//
//   store_worker DIRECTORY SEED
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <random>
#include <vector>

#include "tests/prefix_cache/kill_harness.h"
#include "tests/prefix_cache/store_rig.h"

namespace {

using minke::testing::BlockOf;
using minke::testing::SnapshotOf;
using minke::testing::StoreRig;

constexpr int kChainsMax = 1000;  // of one process

class Traffic {
 public:
  Traffic(StoreRig& rig, minke::BlockStore& store, uint64_t seed)
      : rig_(rig), store_(store), seed_(static_cast<int64_t>(seed)), random_(seed) {}

  void Step() {
    const int64_t chain = seed_ * kChainsMax + static_cast<int64_t>(random_() % 50);
    // Now and then enough at once that a kill meets a write halfway.
    const bool large = random_() % 4 == 0;
    const auto bytes = static_cast<int64_t>(random_() % (large ? 100000 : 4000));
    const uint64_t blocks = 1 + random_() % 16;
    std::vector<minke::testing::PublishedBlock> put;
    for (uint64_t i = 0; i < blocks; ++i) {
      const int64_t index = lengths_[chain]++;
      rig_.Put(store_, BlockOf(chain, index, {.payload_bytes = bytes}));
      put.push_back({.chain = chain, .index = index, .payload_bytes = bytes});
    }
    // Snapshots are over their budget all the time, so that something is always evicted.
    const auto tail = static_cast<int64_t>(random_() % 128);
    rig_.Put(store_, SnapshotOf(chain, put.back().index, tail, {.payload_bytes = 3000}));
    rig_.Put(store_, BlockOf(chain, 0, {.payload_bytes = 700, .tenant = "forgotten"}));
    if (random_() % 8 == 0) store_.Forget(minke::TenantKey("forgotten"));
    if (!published_.empty()) ReadOne();
    store_.Flush();
    for (const auto& block : put) {
      std::printf("P %lld %lld %lld\n", static_cast<long long>(block.chain),
                  static_cast<long long>(block.index), static_cast<long long>(block.payload_bytes));
      published_.push_back(block);
    }
    std::fflush(stdout);
  }

 private:
  void ReadOne() {
    const auto& block = published_[random_() % published_.size()];
    const auto info = BlockOf(block.chain, block.index, {.payload_bytes = block.payload_bytes});
    store_.Touch(std::vector<minke::CacheKey>{info.key, info.parent});
    if (rig_.Read(store_, info) != minke::ReadOutcome::kHit) std::exit(3);
  }

  StoreRig& rig_;
  minke::BlockStore& store_;
  const int64_t seed_;
  std::mt19937_64 random_;
  std::map<int64_t, int64_t> lengths_;
  std::vector<minke::testing::PublishedBlock> published_;
};

}  // namespace

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  StoreRig rig(argv[1]);
  minke::testing::UseKillOptions(&rig.options);
  auto store = minke::BlockStore::Open(rig.options);
  if (!store) {
    std::fprintf(stderr, "%s\n", store.error().message.c_str());
    return 1;
  }
  Traffic traffic(rig, **store, std::strtoull(argv[2], nullptr, 10));
  while (!::testing::Test::HasFailure()) traffic.Step();
  return 3;
}

#include "checkpoint/piece_cache.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <set>

#include "recall/random.h"

namespace minke {
namespace {

constexpr size_t kPiecePages = 3;
constexpr size_t kPieceBytes = kPiecePages * kPageBytes;

// Pages whose bytes say which page they are; reads can be held up and made to fail.
class NumberedPages : public ByteSource {
 public:
  Status Read(uint64_t begin, std::span<std::byte> target) const override {
    std::unique_lock lock(mutex_);
    opened_.wait(lock, [this] { return open_; });
    log_.push_back(begin / kPieceBytes);
    if (failing_.contains(begin / kPieceBytes)) {
      return Fail(ErrorCode::kIo, "piece " + std::to_string(begin / kPieceBytes) + " is broken");
    }
    for (size_t at = 0; at < target.size(); at += kPageBytes) {
      const uint64_t page = (begin + at) / kPageBytes;
      std::memcpy(target.data() + at, &page, sizeof(page));
    }
    return {};
  }
  void SetOpen(bool open) {
    {
      const std::scoped_lock lock(mutex_);
      open_ = open;
    }
    opened_.notify_all();
  }
  void SetFailing(std::set<uint64_t> pieces) {
    const std::scoped_lock lock(mutex_);
    failing_ = std::move(pieces);
  }
  std::vector<uint64_t> Log() const {
    const std::scoped_lock lock(mutex_);
    return log_;
  }

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable opened_;
  bool open_ = true;
  std::set<uint64_t> failing_;
  mutable std::vector<uint64_t> log_;
};

uint64_t PageAt(const std::byte* data) {
  uint64_t page = 0;
  std::memcpy(&page, data, sizeof(page));
  return page;
}

// Two extents a piece, swapped in the slot, so that a wrong target shows.
class PieceCacheBench {
 public:
  PieceCacheBench(int64_t slots, int readers, double half_life = 100)
      : pool(ReadPool::Create(readers).value()),
        cache(std::move(*PieceCache::Create(
            *pool,
            {.slot_bytes = kPieceBytes, .slot_count = slots, .half_life = half_life, .what = "it"},
            [this](int64_t piece, std::vector<PieceExtent>& extents) {
              const auto begin = static_cast<uint64_t>(piece) * kPieceBytes;
              extents.push_back({&source, begin, kPageBytes, 2 * kPageBytes});
              extents.push_back({&source, begin + kPageBytes, 2 * kPageBytes, 0});
            }))) {}

  Status Use(std::vector<int64_t> pieces) {
    cache->Start(pieces);
    return Finish(pieces);
  }
  // After Start(): everything is handed out once, and is what it should be.
  Status Finish(std::vector<int64_t> pieces) {
    std::vector<int64_t> seen;
    TRY_STATUS(cache->Drain([&](int64_t piece, const std::byte* data) {
      seen.push_back(piece);
      const auto first = static_cast<uint64_t>(piece) * kPiecePages;
      EXPECT_EQ(PageAt(data), first + 1);
      EXPECT_EQ(PageAt(data + kPageBytes), first + 2);
      EXPECT_EQ(PageAt(data + 2 * kPageBytes), first);
    }));
    std::sort(seen.begin(), seen.end());
    std::sort(pieces.begin(), pieces.end());
    EXPECT_EQ(seen, pieces);
    return {};
  }
  // Until nothing is read any more: the pool has no reads left when one behind all others is done.
  void AwaitReads() {
    std::vector<std::byte> room(2 * kPageBytes);
    void* start = room.data();
    size_t space = room.size();
    std::align(kPageBytes, kPageBytes, start, space);
    ReadBatch last;
    const ReadRequest request{&source, 0, {static_cast<std::byte*>(start), kPageBytes}};
    pool->Start(last, {&request, 1}, ReadUrgency::kAhead);
    const ReadBatch* const batch = &last;
    pool->Wait({&batch, 1});
  }

  NumberedPages source;
  std::unique_ptr<ReadPool> pool;
  std::unique_ptr<PieceCache> cache;
};

TEST(PieceCache, HandsOutEveryPieceWhateverTheNumberOfSlots) {
  for (const int64_t slots : {1, 2, 5, 40}) {
    PieceCacheBench bench(slots, 3);
    Random random({7, static_cast<uint64_t>(slots)});
    for (int round = 0; round < 60; ++round) {
      std::set<int64_t> pieces;
      for (int i = 0; i < round % 13; ++i) pieces.insert(static_cast<int64_t>(random.Below(20)));
      ASSERT_TRUE(bench.Use({pieces.begin(), pieces.end()}));
      const std::vector<int64_t> next = {round % 20, (round + 5) % 20};
      if (round % 3 == 0) bench.cache->Prefetch(next);
    }
    const PieceCounts counts = bench.cache->counts();
    EXPECT_GT(counts.hits, 0) << slots;
    EXPECT_GE(counts.misses, 20 - slots) << slots;
    EXPECT_GE(counts.prefetched, counts.prefetch_hits) << slots;
  }
}

TEST(PieceCache, KeepsWhatFits) {
  PieceCacheBench bench(4, 2);
  for (int round = 0; round < 5; ++round) ASSERT_TRUE(bench.Use({3, 1, 7, 5}));
  EXPECT_EQ(bench.cache->counts().misses, 4);
  EXPECT_EQ(bench.cache->counts().hits, 16);
  EXPECT_EQ(bench.source.Log().size(), 8u) << "two reads a piece";
}

// A pass over everything, as a long prompt makes it, does not push out what every token uses.
TEST(PieceCache, KeepsWhatIsUsedOftenThroughAScan) {
  PieceCacheBench bench(4, 2);
  for (int round = 0; round < 10; ++round) ASSERT_TRUE(bench.Use({0, 1, 2}));
  ASSERT_TRUE(bench.Use({10, 11, 12, 13, 14, 15, 16, 17}));
  const int64_t misses = bench.cache->counts().misses;
  ASSERT_TRUE(bench.Use({0, 1, 2}));
  EXPECT_EQ(bench.cache->counts().misses, misses);
}

// Hit rates of one skewed trace of 8 layers with 32 pieces each, a quarter of them in slots, whose
// favourites change half way.
TEST(PieceCache, BeatsLeastRecentlyUsedOnSkewedTraffic) {
  constexpr int64_t kLayers = 8;
  constexpr int64_t kExperts = 32;
  constexpr int64_t kSlots = kLayers * kExperts / 4;
  PieceCacheBench bench(kSlots, 1, 32.0 * kLayers);
  Random random({11});
  std::list<int64_t> recent;
  int64_t lru_hits = 0;
  int64_t uses = 0;
  for (int64_t token = 0; token < 400; ++token) {
    for (int64_t layer = 0; layer < kLayers; ++layer) {
      std::set<int64_t> pieces;
      while (pieces.size() < 4) {
        // The lower of two draws twice over: the first quarter has two thirds of the uses.
        auto rank = static_cast<int64_t>(random.Below(kExperts));
        for (int i = 0; i < 2; ++i) {
          rank = std::min(rank, static_cast<int64_t>(random.Below(kExperts)));
        }
        const int64_t expert = (rank * 7 + layer + (token < 200 ? 0 : 13)) % kExperts;
        pieces.insert(layer * kExperts + expert);
      }
      uses += 4;
      for (const int64_t piece : pieces) {
        const auto found = std::find(recent.begin(), recent.end(), piece);
        if (found != recent.end()) {
          ++lru_hits;
          recent.erase(found);
        } else if (recent.size() == kSlots) {
          recent.pop_back();
        }
        recent.push_front(piece);
      }
      ASSERT_TRUE(bench.Use({pieces.begin(), pieces.end()}));
    }
  }
  const auto share = [uses](int64_t hits) {
    return static_cast<double>(hits) / static_cast<double>(uses);
  };
  const double ours = share(bench.cache->counts().hits);
  RecordProperty("hit_rate_percent", static_cast<int>(100 * ours));
  RecordProperty("lru_hit_rate_percent", static_cast<int>(100 * share(lru_hits)));
  EXPECT_GT(ours, share(lru_hits) + 0.05);
}

TEST(PieceCache, PrefetchedPiecesAreHits) {
  PieceCacheBench bench(6, 2);
  ASSERT_TRUE(bench.Use({0, 1}));
  const std::vector<int64_t> likely = {5, 6, 0};
  bench.cache->Prefetch(likely);
  ASSERT_TRUE(bench.Use({5, 0, 9}));
  const PieceCounts counts = bench.cache->counts();
  EXPECT_EQ(counts.prefetched, 2);
  EXPECT_EQ(counts.prefetch_hits, 1);
  EXPECT_EQ(counts.hits, 2);
  EXPECT_EQ(counts.misses, 3);
}

TEST(PieceCache, PrefetchTakesNothingThatIsInUse) {
  PieceCacheBench bench(4, 2);
  bench.source.SetOpen(false);
  const std::vector<int64_t> wanted = {0, 1, 2};
  const std::vector<int64_t> likely = {10, 11, 12};
  bench.cache->Start(wanted);
  bench.cache->Prefetch(likely);
  EXPECT_EQ(bench.cache->counts().prefetched, 1) << "there is one slot left";
  bench.source.SetOpen(true);
  ASSERT_TRUE(bench.Finish(wanted));
  EXPECT_EQ(bench.cache->counts().misses, 3);
}

// More than fits is wanted while the slots are full of reads ahead that nobody asked for.
TEST(PieceCache, NeedsComeBeforePrefetches) {
  PieceCacheBench bench(3, 1);
  bench.source.SetOpen(false);
  const std::vector<int64_t> likely = {10, 11, 12};
  bench.cache->Prefetch(likely);
  const std::vector<int64_t> wanted = {0, 1, 2, 3};
  bench.cache->Start(wanted);
  bench.source.SetOpen(true);
  ASSERT_TRUE(bench.Finish(wanted));
  const std::vector<uint64_t> log = bench.source.Log();
  EXPECT_EQ(std::count(log.begin(), log.end(), 12u), 0) << "it was queued behind what is needed";
}

TEST(PieceCache, ReadErrorsEndOneDrainAndNothingElse) {
  PieceCacheBench bench(3, 2);
  bench.source.SetFailing({4});
  const Status status = bench.Use({2, 3, 4, 5, 6});
  ASSERT_FALSE(status.has_value());
  EXPECT_EQ(status.error().code, ErrorCode::kIo);
  EXPECT_EQ(status.error().message, "piece 4 is broken");
  ASSERT_TRUE(bench.Use({2, 3, 5, 6}));
  const std::vector<int64_t> likely = {4};
  bench.cache->Prefetch(likely);
  bench.AwaitReads();
  ASSERT_TRUE(bench.Use({1, 2})) << "nobody asked for the broken one";
  bench.source.SetFailing({});
  ASSERT_TRUE(bench.Use({4, 5}));
}

TEST(PieceCache, EndsWhileReadsAreRunning) {
  auto bench = std::make_unique<PieceCacheBench>(3, 2);
  const std::vector<int64_t> wanted = {0, 1, 2};
  bench->cache->Start(wanted);
  bench.reset();
}

TEST(ReadPool, UrgentReadsComeFirstAndHurryingMovesThem) {
  NumberedPages source;
  const std::unique_ptr<ReadPool> pool = ReadPool::Create(1).value();
  const Result<PageMemory> memory = PageMemory::Map(4 * kPageBytes, "the test");
  ASSERT_TRUE(memory.has_value());
  source.SetOpen(false);
  std::vector<ReadBatch> batches(4);
  const auto start = [&](size_t piece, ReadUrgency urgency) {
    const ReadRequest request{&source, piece * kPieceBytes,
                              memory->bytes().subspan(piece * kPageBytes, kPageBytes)};
    pool->Start(batches[piece], {&request, 1}, urgency);
  };
  start(0, ReadUrgency::kNow);
  start(1, ReadUrgency::kAhead);
  start(2, ReadUrgency::kAhead);
  start(3, ReadUrgency::kNow);
  pool->Hurry(batches[2]);
  source.SetOpen(true);
  const ReadBatch* const last = &batches[1];
  EXPECT_EQ(pool->Wait({&last, 1}), 0u);
  std::vector<uint64_t> log = source.Log();
  EXPECT_EQ(log.back(), 1u) << "the one that is not urgent";
  std::sort(log.begin(), log.end());
  EXPECT_EQ(log, (std::vector<uint64_t>{0, 1, 2, 3}));
  const ReadTotals totals = pool->totals();
  EXPECT_EQ(totals.bytes, static_cast<int64_t>(4 * kPageBytes));
  EXPECT_LE(totals.waited_bytes, static_cast<double>(totals.bytes));
  EXPECT_GE(totals.wait_seconds, 0);
}

TEST(ReadPool, CancelledReadsAreNotMade) {
  NumberedPages source;
  const std::unique_ptr<ReadPool> pool = ReadPool::Create(1).value();
  const Result<PageMemory> memory = PageMemory::Map(2 * kPageBytes, "the test");
  ASSERT_TRUE(memory.has_value());
  source.SetOpen(false);
  std::vector<ReadBatch> batches(2);
  for (size_t piece = 0; piece < 2; ++piece) {
    const ReadRequest request{&source, piece * kPieceBytes,
                              memory->bytes().subspan(piece * kPageBytes, kPageBytes)};
    pool->Start(batches[piece], {&request, 1}, ReadUrgency::kNow);
  }
  // One reader, which has at most the first.
  pool->Cancel(batches[1]);
  EXPECT_TRUE(pool->Done(batches[1]));
  source.SetOpen(true);
  const ReadBatch* const first = &batches[0];
  pool->Wait({&first, 1});
  EXPECT_EQ(source.Log(), std::vector<uint64_t>{0});
}

}  // namespace
}  // namespace minke

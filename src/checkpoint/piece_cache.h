// A cache of pieces of files that are too large for memory: so many slots, the pieces that were
// used most of late in them, and the others read when they are asked for.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <set>
#include <span>
#include <unordered_map>
#include <utility>
#include <vector>

#include "checkpoint/read_pool.h"
#include "core/page_memory.h"
#include "core/result.h"

namespace minke {

// One read of a piece. All three numbers are multiples of kPageBytes.
struct PieceExtent {
  const ByteSource* source = nullptr;
  uint64_t begin = 0;  // in the source
  size_t bytes = 0;
  size_t target = 0;  // in the slot
};
// Appends what a piece consists of. Pieces have numbers of their own, which the cache does not
// interpret.
using PieceExtents = std::function<void(int64_t piece, std::vector<PieceExtent>& extents)>;

struct PieceCacheOptions {
  size_t slot_bytes = 0;  // room of one piece; a multiple of kPageBytes
  int64_t slot_count = 0;
  // Calls of Start() after which a use counts half. What is kept is what has the most uses.
  double half_life = 1;
  // Pieces in flight that keep the readers busy. Beyond them a piece that was used seldom waits for
  // the slot of one that is done with, instead of taking that of one that was used more.
  size_t in_flight = 1;
  const char* what = "";  // for errors about memory
};

struct PieceCounts {
  int64_t hits = 0;  // pieces that were there, or on their way, when Start() asked for them
  int64_t misses = 0;
  int64_t prefetched = 0;     // pieces whose reads Prefetch() began
  int64_t prefetch_hits = 0;  // of them, asked for by the next Start(); also hits
};

// Thread safety: for one thread, but for counts().
class PieceCache {
 public:
  // Errors: no such memory. `pool` outlives the cache. REQUIRES: slot_count >= 1.
  static Result<std::unique_ptr<PieceCache>> Create(ReadPool& pool, PieceCacheOptions options,
                                                    PieceExtents extents);
  ~PieceCache();
  PieceCache(const PieceCache&) = delete;
  PieceCache& operator=(const PieceCache&) = delete;

  // Begins the reads of these pieces, which are distinct, as far as there are slots. Forgets what
  // an earlier Start() left over.
  void Start(std::span<const int64_t> pieces);
  // Hands out what Start() named, each piece once, in the order in which they come; the bytes stay
  // until `body` returns. More pieces than slots pass through one after another. Errors: the first
  // read that failed; then nothing more is handed out.
  Status Drain(const std::function<void(int64_t piece, const std::byte* data)>& body);
  // Reads these pieces, which are distinct, into slots that nothing uses, best first, when nothing
  // is urgent. Pieces of an earlier call that nobody asked for are the first to go.
  void Prefetch(std::span<const int64_t> pieces);

  int64_t slot_count() const { return static_cast<int64_t>(slots_.size()); }
  PieceCounts counts() const;

 private:
  enum class SlotState { kFree, kReading, kReady, kAbandoned };
  struct Slot {
    SlotState state = SlotState::kFree;
    int64_t piece = 0;
    bool pinned = false;      // by Start(), until it was handed out
    bool prefetched = false;  // and not asked for yet
    ReadBatch batch;
  };
  PieceCache(ReadPool& pool, PieceCacheOptions options, PieceExtents extents, PageMemory memory);

  std::byte* Data(size_t slot) const { return memory_.bytes().data() + slot * options_.slot_bytes; }
  double Score(int64_t piece) const;
  void CountUse(int64_t piece);
  void ForgetOldScores();
  // Pins the next pieces of todo_, in order, while there are slots.
  void PinMore();
  bool Pin(int64_t piece);
  void Unpin(size_t slot);
  void ReleaseAll();
  void Read(size_t slot, int64_t piece, ReadUrgency urgency);
  // A slot without a piece; -1 if all are in use.
  int64_t TakeSlot(bool for_prefetch);
  bool WorthWaiting(int64_t piece) const;
  // A piece that was read ahead, and in vain.
  bool Failed(size_t slot) const;
  void Evict(size_t slot);    // REQUIRES that its reads are done
  void Abandon(size_t slot);  // whether they are or not
  void CollectAbandoned();
  void DropStalePrefetches();
  // Index in pinned_ of a slot whose reads are done, after waiting for one where there is none.
  size_t NextDone();

  ReadPool& pool_;
  PieceCacheOptions options_;
  PieceExtents extents_;
  PageMemory memory_;
  std::vector<Slot> slots_;
  std::unordered_map<int64_t, size_t> index_;  // piece -> slot, of slots that read or are ready
  std::vector<size_t> free_;
  std::vector<size_t> abandoned_;
  std::vector<size_t> prefetched_;
  std::vector<size_t> pinned_;                  // not handed out yet
  std::set<std::pair<double, size_t>> idle_;    // ready, neither pinned nor prefetched; by score
  std::vector<int64_t> todo_;                   // of Start(), not pinned yet, last first
  std::unordered_map<int64_t, double> scores_;  // see Score(); of pieces that are gone, too
  double now_ = 0;                              // calls of Start() in half-lives
  std::atomic<int64_t> hits_{0};
  std::atomic<int64_t> misses_{0};
  std::atomic<int64_t> prefetch_count_{0};
  std::atomic<int64_t> prefetch_hits_{0};
};

}  // namespace minke

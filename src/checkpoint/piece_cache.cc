#include "checkpoint/piece_cache.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace minke {
namespace {

// Uses of pieces that are not in a slot are remembered too, up to so many and as many as slots.
constexpr size_t kRememberedPieces = size_t{1} << 16;

// Pieces that are pinned at a time: enough to keep all readers busy.
constexpr size_t kPinnedMax = 64;

constexpr double kNeverUsed = -std::numeric_limits<double>::infinity();

}  // namespace

Result<std::unique_ptr<PieceCache>> PieceCache::Create(ReadPool& pool, PieceCacheOptions options,
                                                       PieceExtents extents) {
  CHECK(options.slot_count >= 1 && options.slot_bytes % kPageBytes == 0);
  PageMemory memory = TRY(
      PageMemory::Map(options.slot_bytes * static_cast<size_t>(options.slot_count), options.what));
  return std::unique_ptr<PieceCache>(
      new PieceCache(pool, options, std::move(extents), std::move(memory)));
}

PieceCache::PieceCache(ReadPool& pool, PieceCacheOptions options, PieceExtents extents,
                       PageMemory memory)
    : pool_(pool),
      options_(options),
      extents_(std::move(extents)),
      memory_(std::move(memory)),
      slots_(static_cast<size_t>(options.slot_count)) {
  for (size_t slot = slots_.size(); slot > 0; --slot) free_.push_back(slot - 1);
}

PieceCache::~PieceCache() {
  for (Slot& slot : slots_) {
    pool_.Cancel(slot.batch);
    const ReadBatch* const batch = &slot.batch;
    if (!pool_.Done(*batch)) pool_.Wait({&batch, 1});
  }
}

// The sum of 2^(time of use in half-lives), as a logarithm: all pieces age alike, so the order of
// two pieces changes only when one of them is used, and nothing has to be aged.
double PieceCache::Score(int64_t piece) const {
  const auto found = scores_.find(piece);
  if (found == scores_.end()) return kNeverUsed;
  return found->second;
}

void PieceCache::CountUse(int64_t piece) {
  double& score = scores_.try_emplace(piece, kNeverUsed).first->second;
  const double high = std::max(score, now_);
  score = high + std::log2(1 + std::exp2(std::min(score, now_) - high));
}

void PieceCache::ForgetOldScores() {
  if (scores_.size() <= slots_.size() + kRememberedPieces) return;
  std::erase_if(scores_, [this](const auto& entry) { return !index_.contains(entry.first); });
}

void PieceCache::Start(std::span<const int64_t> pieces) {
  ReleaseAll();
  CollectAbandoned();
  now_ += 1 / options_.half_life;
  ForgetOldScores();
  // What is there comes first: it could be gone when its turn came. What is on its way next.
  todo_.assign(pieces.begin(), pieces.end());
  const auto here = [this](int64_t piece) { return index_.contains(piece); };
  std::stable_partition(todo_.begin(), todo_.end(), here);
  std::reverse(todo_.begin(), todo_.end());
  PinMore();
}

void PieceCache::PinMore() {
  while (!todo_.empty() && pinned_.size() < kPinnedMax && Pin(todo_.back())) todo_.pop_back();
}

bool PieceCache::Pin(int64_t piece) {
  auto found = index_.find(piece);
  if (found != index_.end() && Failed(found->second)) {
    std::erase(prefetched_, found->second);
    Abandon(found->second);  // and read again
    found = index_.end();
  }
  size_t slot = 0;
  if (found != index_.end()) {
    slot = found->second;
    ++hits_;
    if (slots_[slot].prefetched) {
      slots_[slot].prefetched = false;
      std::erase(prefetched_, slot);
      ++prefetch_hits_;
    } else {
      idle_.erase({Score(piece), slot});
    }
    if (slots_[slot].state == SlotState::kReading) pool_.Hurry(slots_[slot].batch);
  } else {
    if (WorthWaiting(piece)) return false;
    const int64_t taken = TakeSlot(/*for_prefetch=*/false);
    if (taken < 0) return false;
    slot = static_cast<size_t>(taken);
    ++misses_;
    Read(slot, piece, ReadUrgency::kNow);
  }
  CountUse(piece);
  slots_[slot].pinned = true;
  pinned_.push_back(slot);
  return true;
}

void PieceCache::Read(size_t slot, int64_t piece, ReadUrgency urgency) {
  slots_[slot].piece = piece;
  slots_[slot].state = SlotState::kReading;
  index_.emplace(piece, slot);
  std::vector<PieceExtent> extents;
  extents_(piece, extents);
  std::vector<ReadRequest> requests;
  requests.reserve(extents.size());
  for (const PieceExtent& extent : extents) {
    CHECK(extent.target + extent.bytes <= options_.slot_bytes);
    requests.push_back({extent.source, extent.begin, {Data(slot) + extent.target, extent.bytes}});
  }
  pool_.Start(slots_[slot].batch, requests, urgency);
}

bool PieceCache::WorthWaiting(int64_t piece) const {
  if (!free_.empty() || idle_.empty() || pinned_.size() < options_.in_flight) return false;
  return Score(piece) < idle_.begin()->first;
}

bool PieceCache::Failed(size_t slot) const {
  const Slot& candidate = slots_[slot];
  return candidate.prefetched && pool_.Done(candidate.batch) && !pool_.Outcome(candidate.batch);
}

int64_t PieceCache::TakeSlot(bool for_prefetch) {
  CollectAbandoned();
  if (free_.empty() && !idle_.empty()) Evict(idle_.begin()->second);
  if (free_.empty() && !for_prefetch && !prefetched_.empty()) {
    Abandon(prefetched_.back());
    prefetched_.pop_back();
    CollectAbandoned();
  }
  if (free_.empty()) return -1;
  const size_t slot = free_.back();
  free_.pop_back();
  return static_cast<int64_t>(slot);
}

void PieceCache::Evict(size_t slot) {
  idle_.erase({Score(slots_[slot].piece), slot});
  index_.erase(slots_[slot].piece);
  slots_[slot].state = SlotState::kFree;
  free_.push_back(slot);
}

void PieceCache::Abandon(size_t slot) {
  index_.erase(slots_[slot].piece);
  pool_.Cancel(slots_[slot].batch);
  slots_[slot].state = SlotState::kAbandoned;
  slots_[slot].pinned = false;
  slots_[slot].prefetched = false;
  abandoned_.push_back(slot);
}

void PieceCache::CollectAbandoned() {
  std::erase_if(abandoned_, [this](size_t slot) {
    if (!pool_.Done(slots_[slot].batch)) return false;
    slots_[slot].state = SlotState::kFree;
    free_.push_back(slot);
    return true;
  });
}

void PieceCache::Unpin(size_t slot) {
  slots_[slot].pinned = false;
  idle_.insert({Score(slots_[slot].piece), slot});
}

void PieceCache::ReleaseAll() {
  for (const size_t slot : pinned_) {
    if (slots_[slot].state == SlotState::kReady) {
      Unpin(slot);
    } else {
      Abandon(slot);
    }
  }
  pinned_.clear();
  todo_.clear();
}

size_t PieceCache::NextDone() {
  std::vector<const ReadBatch*> batches;
  batches.reserve(pinned_.size());
  for (const size_t slot : pinned_) {
    if (slots_[slot].state == SlotState::kReady) return batches.size();
    batches.push_back(&slots_[slot].batch);
  }
  return pool_.Wait(batches);
}

Status PieceCache::Drain(const std::function<void(int64_t, const std::byte*)>& body) {
  while (!pinned_.empty() || !todo_.empty()) {
    if (pinned_.empty()) {
      // Every slot is one that was given up and whose last reads still run.
      std::vector<const ReadBatch*> batches;
      for (const size_t slot : abandoned_) batches.push_back(&slots_[slot].batch);
      pool_.Wait(batches);
      PinMore();
      continue;
    }
    const size_t next = NextDone();
    const size_t slot = pinned_[next];
    if (slots_[slot].state == SlotState::kReading) {
      Status outcome = pool_.Outcome(slots_[slot].batch);
      if (!outcome) {
        ReleaseAll();
        return outcome;
      }
      slots_[slot].state = SlotState::kReady;
    }
    body(slots_[slot].piece, Data(slot));
    pinned_.erase(pinned_.begin() + static_cast<std::ptrdiff_t>(next));
    Unpin(slot);
    PinMore();
  }
  return {};
}

// Those that came are kept as what they are, pieces that were used as often as they were; reads
// that have not ended would only delay what is needed more.
void PieceCache::DropStalePrefetches() {
  for (const size_t slot : prefetched_) {
    if (!pool_.Done(slots_[slot].batch) || !pool_.Outcome(slots_[slot].batch)) {
      Abandon(slot);
      continue;
    }
    slots_[slot].prefetched = false;
    slots_[slot].state = SlotState::kReady;
    idle_.insert({Score(slots_[slot].piece), slot});
  }
  prefetched_.clear();
}

void PieceCache::Prefetch(std::span<const int64_t> pieces) {
  DropStalePrefetches();
  // What is wanted and there must not make room for what is wanted and is not.
  std::vector<size_t> spared;
  for (const int64_t piece : pieces) {
    const auto found = index_.find(piece);
    if (found == index_.end()) continue;
    if (idle_.erase({Score(piece), found->second}) > 0) spared.push_back(found->second);
  }
  for (const int64_t piece : pieces) {
    if (index_.contains(piece)) continue;
    const int64_t taken = TakeSlot(/*for_prefetch=*/true);
    if (taken < 0) break;
    const auto slot = static_cast<size_t>(taken);
    slots_[slot].prefetched = true;
    prefetched_.push_back(slot);
    ++prefetch_count_;
    Read(slot, piece, ReadUrgency::kAhead);
  }
  for (const size_t slot : spared) idle_.insert({Score(slots_[slot].piece), slot});
}

PieceCounts PieceCache::counts() const {
  return {hits_, misses_, prefetch_count_, prefetch_hits_};
}

}  // namespace minke

#include "text/tokenizer_bpe.h"

#include <algorithm>
#include <functional>

#include "core/result.h"

namespace minke {

namespace {

// Up to this many bytes, looking at every pair again costs less than keeping a queue of them.
constexpr size_t kShortPieceBytesMax = 32;

uint64_t PairKey(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

size_t FirstSlot(uint64_t pair, int shift) {
  constexpr uint64_t kGolden = 0x9E3779B97F4A7C15;  // Fibonacci hashing
  return static_cast<size_t>(pair * kGolden >> shift);
}

// A token of the piece, linked to its neighbours. A token that was merged away has id -1.
struct Symbol {
  int32_t id = -1;
  int32_t previous = -1;
  int32_t next = -1;
};

// A pair that may merge: by rank, then by place. `left` and `right` tell whether it is still there.
struct Candidate {
  uint64_t order = 0;  // rank in the upper half, position of the left token in the lower
  int32_t left = 0;
  int32_t right = 0;

  size_t position() const { return order & 0xFFFFFFFF; }
  bool operator>(const Candidate& other) const { return order > other.order; }
};

}  // namespace

BpeMerger::BpeMerger(const std::array<int32_t, 256>& byte_ids, const std::vector<BpeMerge>& merges)
    : byte_ids_(byte_ids) {
  int bits = 1;
  while ((size_t{1} << bits) < merges.size() * 2) ++bits;
  shift_ = 64 - bits;
  slots_.resize(size_t{1} << bits);
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const BpeMerge& merge = merges[rank];
    CHECK(merge.left >= 0 && merge.right >= 0 && merge.merged >= 0);
    const uint64_t pair = PairKey(merge.left, merge.right);
    size_t at = FirstSlot(pair, shift_);
    while (slots_[at].pair != kNoPair) {
      CHECK(slots_[at].pair != pair);
      at = (at + 1) & (slots_.size() - 1);
    }
    slots_[at] = {pair, static_cast<uint32_t>(rank), merge.merged};
  }
}

const BpeMerger::Slot* BpeMerger::Find(int32_t left, int32_t right) const {
  const uint64_t pair = PairKey(left, right);
  size_t at = FirstSlot(pair, shift_);
  while (slots_[at].pair != pair) {
    if (slots_[at].pair == kNoPair) return nullptr;
    at = (at + 1) & (slots_.size() - 1);
  }
  return &slots_[at];
}

void BpeMerger::Encode(std::string_view piece, std::vector<int32_t>* ids) const {
  if (piece.size() <= kShortPieceBytesMax) {
    EncodeShort(piece, ids);
  } else {
    EncodeLong(piece, ids);
  }
}

void BpeMerger::EncodeShort(std::string_view piece, std::vector<int32_t>* ids) const {
  std::array<int32_t, kShortPieceBytesMax> tokens{};
  std::array<const Slot*, kShortPieceBytesMax> merges{};  // of each token with the one behind it
  size_t count = piece.size();
  for (size_t i = 0; i < count; ++i) tokens[i] = byte_ids_[static_cast<unsigned char>(piece[i])];
  for (size_t i = 0; i + 1 < count; ++i) merges[i] = Find(tokens[i], tokens[i + 1]);
  while (count > 1) {
    size_t best = count;
    for (size_t i = 0; i + 1 < count; ++i) {
      if (merges[i] == nullptr) continue;
      if (best == count || merges[i]->rank < merges[best]->rank) best = i;
    }
    if (best == count) break;
    tokens[best] = merges[best]->merged;
    std::copy(tokens.begin() + best + 2, tokens.begin() + count, tokens.begin() + best + 1);
    std::copy(merges.begin() + best + 2, merges.begin() + count, merges.begin() + best + 1);
    --count;
    if (best > 0) merges[best - 1] = Find(tokens[best - 1], tokens[best]);
    merges[best] = best + 1 < count ? Find(tokens[best], tokens[best + 1]) : nullptr;
  }
  ids->insert(ids->end(), tokens.begin(), tokens.begin() + count);
}

void BpeMerger::EncodeLong(std::string_view piece, std::vector<int32_t>* ids) const {
  const auto count = static_cast<int32_t>(piece.size());
  std::vector<Symbol> symbols(piece.size());
  std::vector<Candidate> queue;  // a heap, the lowest order on top
  const auto offer = [&](int32_t at) {
    const Symbol& left = symbols[static_cast<size_t>(at)];
    if (left.next < 0) return;
    const int32_t right = symbols[static_cast<size_t>(left.next)].id;
    if (const Slot* slot = Find(left.id, right)) {
      queue.push_back({uint64_t{slot->rank} << 32 | static_cast<uint32_t>(at), left.id, right});
    }
  };
  for (int32_t i = 0; i < count; ++i) {
    symbols[static_cast<size_t>(i)] = {
        byte_ids_[static_cast<unsigned char>(piece[static_cast<size_t>(i)])], i - 1,
        i + 1 < count ? i + 1 : -1};
  }
  for (int32_t i = 0; i < count; ++i) offer(i);
  std::make_heap(queue.begin(), queue.end(), std::greater<>());
  const auto offer_to_heap = [&](int32_t at) {
    const size_t before = queue.size();
    offer(at);
    if (queue.size() > before) std::push_heap(queue.begin(), queue.end(), std::greater<>());
  };
  while (!queue.empty()) {
    std::pop_heap(queue.begin(), queue.end(), std::greater<>());
    const Candidate best = queue.back();
    queue.pop_back();
    Symbol& left = symbols[best.position()];
    if (left.id != best.left || left.next < 0) continue;
    Symbol& right = symbols[static_cast<size_t>(left.next)];
    if (right.id != best.right) continue;
    left.id = Find(best.left, best.right)->merged;
    left.next = right.next;
    right.id = -1;
    const auto at = static_cast<int32_t>(best.position());
    if (left.next >= 0) symbols[static_cast<size_t>(left.next)].previous = at;
    if (left.previous >= 0) offer_to_heap(left.previous);
    offer_to_heap(at);
  }
  for (int32_t at = 0; at >= 0; at = symbols[static_cast<size_t>(at)].next) {
    ids->push_back(symbols[static_cast<size_t>(at)].id);
  }
}

}  // namespace minke

// The merge loop of byte-level BPE: pieces of a text to ids.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

namespace minke {

// One line of the merge list: two neighbouring tokens become one. Earlier lines go first.
struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t merged = 0;
};

// Immutable; thread-safe.
class BpeMerger {
 public:
  BpeMerger() = default;
  // byte_ids: the token of each single byte. REQUIRES ids >= 0 and that no pair occurs twice.
  BpeMerger(const std::array<int32_t, 256>& byte_ids, const std::vector<BpeMerge>& merges);

  // Appends the ids of one piece. Always merges the pair of the lowest rank, the leftmost first, in
  // O(n log n) for n bytes. REQUIRES fewer than 2^31 bytes.
  void Encode(std::string_view piece, std::vector<int32_t>* ids) const;

 private:
  struct Slot {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t merged = -1;
  };
  static constexpr uint64_t kNoPair = ~uint64_t{0};

  const Slot* Find(int32_t left, int32_t right) const;  // nullptr where the pair does not merge
  void EncodeShort(std::string_view piece, std::vector<int32_t>* ids) const;
  void EncodeLong(std::string_view piece, std::vector<int32_t>* ids) const;

  std::array<int32_t, 256> byte_ids_{};
  std::vector<Slot> slots_;  // open addressing; the size is a power of two
  int shift_ = 63;           // 64 minus its logarithm
};

}  // namespace minke

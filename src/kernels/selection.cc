// Selection without sorting and without a copy of the scores: three histograms over the digits
// of the order key find the key of the last place and how many of its equals still fit.
#include <algorithm>
#include <array>
#include <limits>
#include <vector>

#include "core/result.h"
#include "kernels/reference.h"
#include "kernels/simd.h"

namespace minke::simd {
namespace {

using reference::kMinusInfinityKey;
using reference::OrderKey;

constexpr int kDigitBits = 11;  // three digits hold the 32 bits of a key
constexpr std::array<int, 3> kDigitShifts = {21, 10, 0};
constexpr std::array<int, 3> kDigitWidths = {kDigitBits, kDigitBits, 10};

// Taken are all keys above `key` and the first `equals` keys equal to it.
struct Threshold {
  uint32_t key = kMinusInfinityKey;
  int64_t equals = 0;
};

// The threshold that takes the min(count, keys above minus infinity) largest keys.
// visit(body) calls body(key) for every key, in any order and as often as asked.
template <typename Visit>
Threshold FindThreshold(int64_t count, const Visit& visit) {
  int64_t left = count;  // places not yet given to larger keys
  uint32_t prefix = 0;   // the digits found so far
  uint32_t mask = 0;     // the bits they cover
  for (size_t digit = 0; digit < kDigitShifts.size(); ++digit) {
    const int shift = kDigitShifts[digit];
    const uint32_t digit_mask = (1u << kDigitWidths[digit]) - 1;
    std::array<int64_t, 1 << kDigitBits> histogram{};
    visit([&](uint32_t key) {
      if ((key & mask) == prefix && key > kMinusInfinityKey) {
        ++histogram[(key >> shift) & digit_mask];
      }
    });
    uint32_t value = digit_mask;
    while (value > 0 && histogram[value] < left) left -= histogram[value--];
    if (value == 0 && histogram[0] < left) return {};  // fewer keys than places: all are taken
    prefix |= value << shift;
    mask |= digit_mask << shift;
  }
  return {prefix, left};
}

}  // namespace

void SelectCandidates(std::span<const float> scores, int64_t block_size, int64_t topk_blocks,
                      std::span<uint8_t> kept) {
  const auto rows = static_cast<int64_t>(scores.size());
  CHECK(block_size > 0);
  const int64_t blocks = (rows + block_size - 1) / block_size;
  CHECK(static_cast<int64_t>(kept.size()) == blocks);
  std::vector<uint32_t> keys(blocks, kMinusInfinityKey);
  for (int64_t i = 0; i < rows; ++i) {
    keys[i / block_size] = std::max(keys[i / block_size], OrderKey(scores[i]));
  }
  if (blocks > 0) keys.back() = std::numeric_limits<uint32_t>::max();  // always kept
  Threshold threshold = FindThreshold(topk_blocks, [&](const auto& body) {
    for (const uint32_t key : keys) body(key);
  });
  for (int64_t block = 0; block < blocks; ++block) {
    const bool equal = keys[block] == threshold.key && threshold.equals > 0;
    if (equal) --threshold.equals;
    kept[block] = equal || keys[block] > threshold.key ? 1 : 0;
  }
}

int64_t SelectTopk(std::span<const float> scores, std::span<const uint8_t> kept, int64_t block_size,
                   std::span<int32_t> selected) {
  const auto rows = static_cast<int64_t>(scores.size());
  const int64_t step = kept.empty() ? std::max<int64_t>(rows, 1) : block_size;
  // Calls body(row, key) for the rows that count, ascending.
  const auto visit_rows = [&](const auto& body) {
    for (int64_t begin = 0; begin < rows; begin += step) {
      if (!kept.empty() && kept[begin / step] == 0) continue;
      const int64_t end = std::min(rows, begin + step);
      for (int64_t i = begin; i < end; ++i) body(i, OrderKey(scores[i]));
    }
  };
  const auto places = static_cast<int64_t>(selected.size());
  Threshold threshold = FindThreshold(
      places, [&](const auto& body) { visit_rows([&](int64_t, uint32_t key) { body(key); }); });
  int64_t count = 0;
  visit_rows([&](int64_t row, uint32_t key) {
    const bool equal = key == threshold.key && threshold.equals > 0;
    if (equal) --threshold.equals;
    if ((equal || key > threshold.key) && count < places) {
      selected[count++] = static_cast<int32_t>(row);
    }
  });
  std::fill(selected.begin() + count, selected.end(), -1);
  return count;
}

}  // namespace minke::simd

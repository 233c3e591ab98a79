// Sizes of a simulated cache as a person writes them.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"

namespace minke {

enum class CapacityUnit { kBlocks, kBytes, kUnlimited };

struct Capacity {
  std::string text;  // as it was written: "10000blk", "8GiB", "unlimited"
  CapacityUnit unit = CapacityUnit::kUnlimited;
  int64_t amount = 0;

  // Whole blocks that fit, kUnlimitedBlocks for no limit. An error if not even one does.
  Result<int64_t> Blocks(int64_t block_tokens, int64_t bytes_per_token) const;
};

// A whole number followed by blk, B, KB, KiB, MB, MiB, GB, GiB, TB or TiB; or "unlimited". K, M, G
// and T alone stand for KiB to TiB.
Result<Capacity> ParseCapacity(std::string_view text);

// For tables: "8 GiB", "4.24 GiB", "512 B"; "288,500".
std::string BytesText(int64_t bytes);
std::string CountText(int64_t count);

}  // namespace minke

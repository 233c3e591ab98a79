#include "simulator/capacity.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include <fmt/format.h>

#include "simulator/simulator.h"

namespace minke {
namespace {

struct Unit {
  std::string_view name;
  CapacityUnit unit;
  int64_t factor;
};
constexpr std::array<Unit, 14> kUnits = {{
    {"blk", CapacityUnit::kBlocks, 1},
    {"B", CapacityUnit::kBytes, 1},
    {"KB", CapacityUnit::kBytes, 1'000},
    {"KiB", CapacityUnit::kBytes, int64_t{1} << 10},
    {"MB", CapacityUnit::kBytes, 1'000'000},
    {"MiB", CapacityUnit::kBytes, int64_t{1} << 20},
    {"GB", CapacityUnit::kBytes, 1'000'000'000},
    {"GiB", CapacityUnit::kBytes, int64_t{1} << 30},
    {"TB", CapacityUnit::kBytes, 1'000'000'000'000},
    {"TiB", CapacityUnit::kBytes, int64_t{1} << 40},
    {"K", CapacityUnit::kBytes, int64_t{1} << 10},
    {"M", CapacityUnit::kBytes, int64_t{1} << 20},
    {"G", CapacityUnit::kBytes, int64_t{1} << 30},
    {"T", CapacityUnit::kBytes, int64_t{1} << 40},
}};
constexpr size_t kShownBytesMax = 40;

}  // namespace

Result<int64_t> Capacity::Blocks(int64_t block_tokens, int64_t bytes_per_token) const {
  if (unit == CapacityUnit::kUnlimited) return kUnlimitedBlocks;
  if (unit == CapacityUnit::kBlocks) return amount;
  const int64_t block_bytes = block_tokens * bytes_per_token;
  if (amount >= block_bytes) return amount / block_bytes;
  return Fail(
      fmt::format("Capacity {} is less than one block: {} tokens of {} bytes take {} "
                  "bytes.",
                  text, block_tokens, bytes_per_token, block_bytes));
}

Result<Capacity> ParseCapacity(std::string_view text) {
  Capacity capacity = {.text = std::string(text.substr(0, kShownBytesMax))};
  if (text == "unlimited") return capacity;
  const size_t digits = std::min(text.find_first_not_of("0123456789"), text.size());
  const std::string_view unit_name = text.substr(digits);
  const auto parsed = std::from_chars(text.data(), text.data() + digits, capacity.amount);
  for (const Unit& unit : kUnits) {
    if (unit.name != unit_name || digits == 0) continue;
    if (parsed.ec != std::errc() ||
        capacity.amount > std::numeric_limits<int64_t>::max() / unit.factor) {
      return Fail(ErrorCode::kLimit, fmt::format("Capacity \"{}\" is more than 2^63 - 1 {}.",
                                                 capacity.text, unit_name));
    }
    if (capacity.amount == 0) {
      return Fail(fmt::format("Capacity \"{}\" must be more than nothing.", capacity.text));
    }
    capacity.unit = unit.unit;
    capacity.amount *= unit.factor;
    return capacity;
  }
  return Fail(
      fmt::format("Capacity \"{}\" must be a whole number with a unit, such as 10000blk, "
                  "512MiB or 8GiB, or the word unlimited.",
                  capacity.text));
}

std::string BytesText(int64_t bytes) {
  constexpr std::array<std::string_view, 4> kNames = {"TiB", "GiB", "MiB", "KiB"};
  int64_t size = int64_t{1} << 40;
  for (const std::string_view name : kNames) {
    if (bytes >= size) {
      const double amount = static_cast<double>(bytes) / static_cast<double>(size);
      return fmt::format("{:.4g} {}", amount, name);
    }
    size >>= 10;
  }
  return fmt::format("{} B", bytes);
}

std::string CountText(int64_t count) {
  const std::string digits = std::to_string(count);
  std::string text;
  for (size_t i = 0; i < digits.size(); ++i) {
    const bool group_begins = (digits.size() - i) % 3 == 0;
    if (group_begins && i > 0 && digits[i - 1] != '-') text += ',';
    text += digits[i];
  }
  return text;
}

}  // namespace minke

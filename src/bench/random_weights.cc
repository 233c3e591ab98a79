#include "bench/random_weights.h"

#include <cmath>
#include <cstddef>
#include <numbers>

#include "core/numeric_formats.h"

namespace minke {
namespace {

// The largest of so many normal numbers, on average, in standard deviations.
constexpr double kLargestOfGroup = 2.4;  // 32
constexpr double kLargestOfTile = 3.4;   // 32 * 32
constexpr double kFp4Max = 6;
constexpr double kFp8Max = 448;

// The value below which a standard normal number lies with this probability, above one half.
double UpperQuantile(double probability) {
  double low = 0;
  double high = 10;
  for (int step = 0; step < 50; ++step) {
    const double middle = (low + high) / 2;
    const double below = 0.5 * (1 + std::erf(middle / std::numbers::sqrt2));
    (below < probability ? low : high) = middle;
  }
  return (low + high) / 2;
}

// `count` equally likely standard normal numbers, ascending.
std::vector<double> NormalValues(size_t count) {
  std::vector<double> values(count);
  for (size_t i = 0; i < count / 2; ++i) {
    const double rank = 0.5 + (static_cast<double>(i) + 0.5) / static_cast<double>(count);
    const double value = UpperQuantile(rank);
    values[count / 2 + i] = value;
    values[count / 2 - 1 - i] = -value;
  }
  return values;
}

constexpr size_t kDraws = 65536;

// Calls use(index, draw) with one draw of 16 bits for each index, four from a random word.
template <typename Use>
void Draw(size_t count, Random& random, const Use& use) {
  for (size_t i = 0; i < count; i += 4) {
    uint64_t word = random.Next();
    for (size_t part = i; part < i + 4 && part < count; ++part, word >>= 16) {
      use(part, static_cast<uint16_t>(word));
    }
  }
}

}  // namespace

QuantizedNormal Fp4Normal(double deviation) {
  const float scale = Pow2Up(static_cast<float>(deviation * kLargestOfGroup / kFp4Max));
  QuantizedNormal normal{std::vector<uint8_t>(kDraws), EncodeUe8m0(scale)};
  std::vector<uint8_t> nibbles;
  for (const double value : NormalValues(256)) {
    nibbles.push_back(EncodeE2M1(static_cast<float>(value * deviation) / scale));
  }
  for (size_t draw = 0; draw < kDraws; ++draw) {
    normal.codes[draw] = static_cast<uint8_t>(nibbles[draw % 256] | nibbles[draw / 256] << 4);
  }
  return normal;
}

QuantizedNormal Fp8Normal(double deviation) {
  const float scale = Pow2Up(static_cast<float>(deviation * kLargestOfTile / kFp8Max));
  QuantizedNormal normal{{}, EncodeUe8m0(scale)};
  for (const double value : NormalValues(kDraws)) {
    normal.codes.push_back(EncodeE4M3(static_cast<float>(value * deviation) / scale));
  }
  return normal;
}

std::vector<uint16_t> Bf16Normal(double mean, double deviation) {
  std::vector<uint16_t> table;
  for (const double value : NormalValues(kDraws)) {
    table.push_back(EncodeBf16(static_cast<float>(mean + value * deviation)));
  }
  return table;
}

void FillCodes(const std::vector<uint8_t>& table, Random& random, std::span<uint8_t> codes) {
  Draw(codes.size(), random, [&](size_t i, uint16_t draw) { codes[i] = table[draw]; });
}

void FillBf16(const std::vector<uint16_t>& table, Random& random, std::span<uint16_t> values) {
  Draw(values.size(), random, [&](size_t i, uint16_t draw) { values[i] = table[draw]; });
}

void FillScales(uint8_t scale, Random& random, std::span<uint8_t> scales) {
  Draw(scales.size(), random, [&](size_t i, uint16_t draw) {
    constexpr uint16_t kTenth = kDraws / 10;
    const int step = draw < kTenth ? -1 : draw < 2 * kTenth ? 1 : 0;
    scales[i] = static_cast<uint8_t>(scale + step);
  });
}

}  // namespace minke

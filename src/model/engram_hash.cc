// Constants of the Engram hash (architecture.md 8.2): multipliers from NumPy's default_rng and
// bucket primes, derived from the config and never listed.
#include <array>
#include <bit>
#include <limits>
#include <set>

#include <fmt/format.h>

#include "model/layers.h"

namespace minke {

namespace {

using Uint128 = unsigned __int128;

// The seed of a layer's generator is this times the layer id.
constexpr uint32_t kSeedPerLayer = 10007;

// NumPy's SeedSequence for an entropy of one 32-bit word, and its first four 64-bit outputs.
class SeedSequence {
 public:
  explicit SeedSequence(uint32_t entropy) {
    uint32_t hash_constant = 0x43b0d7e5;
    for (size_t i = 0; i < pool_.size(); ++i) {
      pool_[i] = HashMix(i == 0 ? entropy : 0, hash_constant);
    }
    for (size_t source = 0; source < pool_.size(); ++source) {
      for (size_t target = 0; target < pool_.size(); ++target) {
        if (source == target) continue;
        pool_[target] = Mix(pool_[target], HashMix(pool_[source], hash_constant));
      }
    }
  }

  std::array<uint64_t, 4> State() const {
    std::array<uint64_t, 4> state{};
    uint32_t hash_constant = 0x8b51f9dd;
    for (size_t word = 0; word < 8; ++word) {
      uint32_t value = pool_[word % pool_.size()] ^ hash_constant;
      hash_constant *= 0x58f38ded;
      value *= hash_constant;
      value ^= value >> 16;
      state[word / 2] |= uint64_t{value} << (word % 2 * 32);
    }
    return state;
  }

 private:
  static uint32_t HashMix(uint32_t value, uint32_t& hash_constant) {
    value ^= hash_constant;
    hash_constant *= 0x931e8875;
    value *= hash_constant;
    return value ^ (value >> 16);
  }
  static uint32_t Mix(uint32_t x, uint32_t y) {
    const uint32_t value = 0xca01f9dd * x - 0x4973f715 * y;
    return value ^ (value >> 16);
  }
  std::array<uint32_t, 4> pool_{};
};

// PCG64 (XSL-RR) seeded as NumPy's default_rng does.
class Pcg64 {
 public:
  explicit Pcg64(uint32_t seed) {
    const std::array<uint64_t, 4> words = SeedSequence(seed).State();
    increment_ = (((Uint128{words[2]} << 64) | words[3]) << 1) | 1;
    Step();
    state_ += (Uint128{words[0]} << 64) | words[1];
    Step();
  }

  uint64_t Next() {
    Step();
    const auto mixed = static_cast<uint64_t>(state_ >> 64) ^ static_cast<uint64_t>(state_);
    return std::rotr(mixed, static_cast<int>(state_ >> 122));
  }

  // Uniform in [0, bound), Lemire's method as NumPy has it for ranges above 32 bits.
  uint64_t Below(uint64_t bound) {
    Uint128 product = Uint128{Next()} * bound;
    if (static_cast<uint64_t>(product) < bound) {
      const uint64_t threshold = (std::numeric_limits<uint64_t>::max() - (bound - 1)) % bound;
      while (static_cast<uint64_t>(product) < threshold) product = Uint128{Next()} * bound;
    }
    return static_cast<uint64_t>(product >> 64);
  }

 private:
  void Step() {
    constexpr Uint128 kMultiplier =
        (Uint128{0x2360ED051FC65DA4} << 64) | Uint128{0x4385DF649FCCF645};
    state_ = state_ * kMultiplier + increment_;
  }
  Uint128 state_ = 0;
  Uint128 increment_ = 0;
};

bool IsPrime(int64_t value) {
  if (value < 2) return false;
  for (int64_t divisor = 2; divisor * divisor <= value; ++divisor) {
    if (value % divisor == 0) return false;
  }
  return true;
}

// The next prime above `value` that no earlier column took.
int64_t TakePrime(int64_t value, std::set<int64_t>& used) {
  do {
    ++value;
  } while (used.contains(value) || !IsPrime(value));
  used.insert(value);
  return value;
}

}  // namespace

std::vector<int64_t> EngramPrimes(const ModelConfig& config, int64_t engram_index) {
  std::vector<int64_t> primes;
  // One set of used primes over all Engram layers, in their order.
  std::set<int64_t> used;
  for (int64_t index = 0; index <= engram_index; ++index) {
    for (int64_t ngram = 2; ngram <= config.engram_max_ngram_size; ++ngram) {
      int64_t prime = config.engram_vocab_size - 1;
      for (int64_t head = 0; head < config.engram_n_heads; ++head) {
        prime = TakePrime(prime, used);
        if (index == engram_index) primes.push_back(prime);
      }
    }
  }
  return primes;
}

Result<ModelTables::EngramHash> MakeEngramHash(const ModelConfig& config, int64_t engram_index) {
  ModelTables::EngramHash hash;
  // Keeps id * multiplier below 2^63 for every compressed id.
  const int64_t bound =
      std::numeric_limits<int64_t>::max() / config.engram_compressed_vocab_size / 2;
  const auto layer =
      static_cast<uint32_t>(config.engram_layer_ids[static_cast<size_t>(engram_index)]);
  Pcg64 generator(kSeedPerLayer * layer);
  for (int64_t lookback = 0; lookback < config.engram_max_ngram_size; ++lookback) {
    hash.multipliers.push_back(
        static_cast<int64_t>(2 * generator.Below(static_cast<uint64_t>(bound)) + 1));
  }
  hash.primes = EngramPrimes(config, engram_index);
  int64_t offset = 0;
  for (int64_t prime : hash.primes) {
    hash.offsets.push_back(offset);
    offset += prime;
  }
  const int64_t rows = config.engram_num_embeddings[static_cast<size_t>(engram_index)];
  if (offset != rows) {
    return Fail(fmt::format(
        "config.json: engram_num_embeddings of layer {} is {}, but engram_vocab_size {} with {} "
        "columns gives primes that sum to {}; the file does not fit this hash",
        layer, rows, config.engram_vocab_size, hash.primes.size(), offset));
  }
  return hash;
}

void EngramRows(const ModelTables& tables, const ModelTables::EngramHash& hash,
                std::span<const int32_t> history_and_tokens, int64_t history_length,
                int64_t head_count, View<int64_t> rows) {
  for (int64_t token = 0; token < rows.rows; ++token) {
    int64_t* row = rows.Row(token);
    bool blocked = false;
    int64_t mixed = 0;
    for (int64_t lookback = 0; lookback <= history_length; ++lookback) {
      const int32_t id = history_and_tokens[static_cast<size_t>(history_length + token - lookback)];
      blocked = blocked || id == kDeadHistory;  // sticky: no n-gram reaches across a break (8.3)
      const int64_t term = blocked ? tables.engram_pad : id;
      mixed ^= term * hash.multipliers[static_cast<size_t>(lookback)];
      if (lookback == 0) continue;
      for (int64_t head = 0; head < head_count; ++head) {
        const int64_t column = (lookback - 1) * head_count + head;
        row[column] = mixed % hash.primes[static_cast<size_t>(column)] +
                      hash.offsets[static_cast<size_t>(column)];
      }
    }
  }
}

}  // namespace minke

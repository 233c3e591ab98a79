// The bytes of one tensor of a synthetic checkpoint: the statistics that make a random model behave
// like the released one (architecture.md, appendix D).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <utility>
#include <vector>

#include "bench/random_weights.h"
#include "model/config.h"
#include "model/weights.h"

namespace minke {

// Bytes whose generator is one of its own, so that pieces can be made by any thread in any order.
inline constexpr int64_t kWeightPieceBytes = int64_t{1} << 20;

class SyntheticWeights {
 public:
  SyntheticWeights(const ModelConfig& config, uint64_t seed);

  // What Fill() needs for this tensor; it must be called first, by one thread. `index`: its place
  // in the catalogue.
  struct Recipe {
    const TensorSpec* spec = nullptr;
    int64_t index = 0;
    const QuantizedNormal* quantized = nullptr;   // of codes and scales
    const std::vector<uint16_t>* bf16 = nullptr;  // of bf16 and float32 values
    std::vector<float> values;                    // small tensors that are given value by value
  };
  Recipe Prepare(const TensorSpec& spec, int64_t index);
  // Piece `piece` of the tensor: bytes from piece * kWeightPieceBytes on.
  void Fill(const Recipe& recipe, int64_t piece, std::span<std::byte> bytes) const;

 private:
  const QuantizedNormal* Quantized(DType codes, double deviation);
  const std::vector<uint16_t>* Bf16(double mean, double deviation);

  ModelConfig config_;
  uint64_t seed_;
  std::map<std::pair<DType, double>, QuantizedNormal> quantized_;
  std::map<std::pair<double, double>, std::vector<uint16_t>> bf16_;
};

}  // namespace minke

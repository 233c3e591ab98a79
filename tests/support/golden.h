// Reads the golden sets under tests/golden: a JSON index of named tensors and one blob.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace minke::testing {

struct GoldenTensor {
  std::string dtype;  // "f32", "bf16", "u8", "i16", "i32", "i64", "e4m3", "e8m0"
  std::vector<int64_t> shape;
  std::string description;
  std::string_view bytes;  // into the set's blob

  int64_t size() const;  // product of the shape
  int64_t Dim(size_t axis) const { return shape.at(axis); }
  // Decoded values: bf16, e4m3 and e8m0 as the numbers they stand for.
  std::vector<float> Floats() const;
  // Integer dtypes; for e4m3 and e8m0 the raw codes.
  std::vector<int64_t> Ints() const;
  std::vector<uint16_t> RawU16() const;  // bf16 words
  std::vector<uint8_t> RawU8() const;
};

// One index with its blob, e.g. Golden("quant/quant.json") or Golden("wide/expected.json").
class Golden {
 public:
  explicit Golden(const std::string& index_path);  // below MINKE_GOLDEN_DIR; fails the test run
  const GoldenTensor& operator[](const std::string& name) const;  // CHECKs that it exists
  bool Has(const std::string& name) const;
  const Json& index() const { return index_; }

 private:
  Json index_;
  std::string blob_;
  std::vector<std::pair<std::string, GoldenTensor>> tensors_;
};

std::string GoldenPath(const std::string& name);  // absolute
Json GoldenJson(const std::string& name);         // parsed; fails the test run
// A logits file: dtype and shape from NAME.json, values from NAME.bin.
struct GoldenMatrix {
  int64_t rows = 0;
  int64_t cols = 0;
  std::vector<float> values;
  const float* Row(int64_t row) const { return values.data() + row * cols; }
};
GoldenMatrix GoldenLogits(const std::string& set, const std::string& name);
std::vector<int32_t> GoldenIds(const Json& array);

}  // namespace minke::testing

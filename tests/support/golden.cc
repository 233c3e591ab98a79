#include "tests/support/golden.h"

#include <bit>
#include <cstring>

#include "core/file.h"
#include "core/numeric_formats.h"

namespace minke::testing {

namespace {

constexpr uint64_t kGoldenBytesMax = uint64_t{64} << 20;

size_t ElementBytes(const std::string& dtype) {
  if (dtype == "f32" || dtype == "i32") return 4;
  if (dtype == "bf16" || dtype == "i16") return 2;
  if (dtype == "f64" || dtype == "i64") return 8;
  CHECK(dtype == "u8" || dtype == "i8" || dtype == "e4m3" || dtype == "e8m0", dtype);
  return 1;
}

template <typename T>
T Load(std::string_view bytes, int64_t index) {
  T value;
  std::memcpy(&value, bytes.data() + static_cast<size_t>(index) * sizeof(T), sizeof(T));
  return value;
}

std::string MustRead(const std::string& name) {
  auto text = ReadFile(GoldenPath(name), kGoldenBytesMax);
  CHECK(text.has_value(), text.error().message);
  return std::move(*text);
}

}  // namespace

std::string GoldenPath(const std::string& name) {
  return std::string(MINKE_GOLDEN_DIR) + "/" + name;
}

Json GoldenJson(const std::string& name) {
  auto json = ParseJson(MustRead(name), name);
  CHECK(json.has_value(), json.error().message);
  return std::move(*json);
}

int64_t GoldenTensor::size() const {
  int64_t count = 1;
  for (int64_t dim : shape) count *= dim;
  return count;
}

std::vector<float> GoldenTensor::Floats() const {
  std::vector<float> values(static_cast<size_t>(size()));
  for (int64_t i = 0; i < size(); ++i) {
    float& value = values[static_cast<size_t>(i)];
    if (dtype == "f32") {
      value = Load<float>(bytes, i);
    } else if (dtype == "f64") {
      value = static_cast<float>(Load<double>(bytes, i));
    } else if (dtype == "bf16") {
      value = DecodeBf16(Load<uint16_t>(bytes, i));
    } else if (dtype == "e4m3") {
      value = DecodeE4M3(Load<uint8_t>(bytes, i));
    } else {
      CHECK(dtype == "e8m0", dtype);
      value = DecodeUe8m0(Load<uint8_t>(bytes, i));
    }
  }
  return values;
}

std::vector<int64_t> GoldenTensor::Ints() const {
  std::vector<int64_t> values(static_cast<size_t>(size()));
  for (int64_t i = 0; i < size(); ++i) {
    int64_t& value = values[static_cast<size_t>(i)];
    if (dtype == "i64") {
      value = Load<int64_t>(bytes, i);
    } else if (dtype == "i32") {
      value = Load<int32_t>(bytes, i);
    } else if (dtype == "i16") {
      value = Load<int16_t>(bytes, i);
    } else {
      CHECK(ElementBytes(dtype) == 1, dtype);
      value = Load<uint8_t>(bytes, i);
    }
  }
  return values;
}

std::vector<uint16_t> GoldenTensor::RawU16() const {
  CHECK(ElementBytes(dtype) == 2, dtype);
  std::vector<uint16_t> values(static_cast<size_t>(size()));
  std::memcpy(values.data(), bytes.data(), bytes.size());
  return values;
}

std::vector<uint8_t> GoldenTensor::RawU8() const {
  CHECK(ElementBytes(dtype) == 1, dtype);
  return {bytes.begin(), bytes.end()};
}

Golden::Golden(const std::string& index_path) : index_(GoldenJson(index_path)) {
  const size_t slash = index_path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : index_path.substr(0, slash + 1);
  blob_ = MustRead(folder + index_.Find("file")->as_string());
  for (const auto& [name, entry] : index_.Find("tensors")->as_object()) {
    GoldenTensor tensor;
    tensor.dtype = entry.Find("dtype")->as_string();
    for (const Json& dim : entry.Find("shape")->as_array()) tensor.shape.push_back(dim.as_int());
    if (const Json* text = entry.Find("desc")) tensor.description = text->as_string();
    const auto offset = static_cast<size_t>(entry.Find("offset")->as_int());
    const auto bytes = static_cast<size_t>(entry.Find("nbytes")->as_int());
    CHECK(offset + bytes <= blob_.size(), name);
    CHECK(bytes == static_cast<size_t>(tensor.size()) * ElementBytes(tensor.dtype), name);
    tensor.bytes = std::string_view(blob_).substr(offset, bytes);
    tensors_.emplace_back(name, std::move(tensor));
  }
}

bool Golden::Has(const std::string& name) const {
  for (const auto& entry : tensors_) {
    if (entry.first == name) return true;
  }
  return false;
}

const GoldenTensor& Golden::operator[](const std::string& name) const {
  for (const auto& entry : tensors_) {
    if (entry.first == name) return entry.second;
  }
  CheckFailed(__FILE__, __LINE__, "golden tensor exists", name);
}

GoldenMatrix GoldenLogits(const std::string& set, const std::string& name) {
  const Json info = GoldenJson(set + "/" + name + ".json");
  const JsonArray& shape = info.Find("shape")->as_array();
  GoldenMatrix matrix;
  matrix.rows = shape[0].as_int();
  matrix.cols = shape[1].as_int();
  const std::string blob = MustRead(set + "/" + name + ".bin");
  CHECK(blob.size() == static_cast<size_t>(matrix.rows * matrix.cols) * sizeof(float), name);
  matrix.values.resize(blob.size() / sizeof(float));
  std::memcpy(matrix.values.data(), blob.data(), blob.size());
  return matrix;
}

std::vector<int32_t> GoldenIds(const Json& array) {
  std::vector<int32_t> ids;
  for (const Json& id : array.as_array()) ids.push_back(static_cast<int32_t>(id.as_int()));
  return ids;
}

}  // namespace minke::testing

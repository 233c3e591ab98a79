#include "train/export.h"

#include <cmath>
#include <cstring>
#include <filesystem>
#include <map>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/safetensors_writer.h"
#include "core/file.h"
#include "core/numeric_formats.h"
#include "model/weights.h"
#include "train/model_folder.h"
#include "train/run_folder.h"
#include "train/weight_encoder.h"

namespace minke::train {
namespace {

constexpr const char* kMarkerFile = "minke.json";
constexpr uint64_t kMarkerBytesMax = uint64_t{64} << 10;
constexpr std::string_view kWeightSuffix = ".weight";
constexpr std::string_view kScaleSuffix = ".scale";

// Every parameter's values under the catalogue's name; stacks of experts are taken apart.
using Values = std::map<std::string, std::span<const float>, std::less<>>;

Result<Values> CollectValues(const Model& model) {
  Values values;
  for (const Parameter& parameter : const_cast<Model&>(model).parameters()) {
    const torch::Tensor plain = parameter.value.detach();
    CHECK(plain.is_contiguous(), parameter.name);
    const std::span<const float> all(plain.data_ptr<float>(), static_cast<size_t>(plain.numel()));
    for (size_t i = 0; i < all.size(); ++i) {
      if (std::isfinite(all[i])) continue;
      return Fail(fmt::format("Value {} of {} is {}; a model with such values is no use.", i,
                              parameter.name, all[i]));
    }
    if (!parameter.stacked) {
      values[parameter.name] = all;
      continue;
    }
    constexpr std::string_view kExperts = ".experts.";
    const size_t begin = parameter.name.find(kExperts) + kExperts.size();
    const size_t end = parameter.name.find('.', begin);
    const auto experts = static_cast<size_t>(plain.size(0));
    const size_t size = all.size() / experts;
    for (size_t expert = 0; expert < experts; ++expert) {
      std::string name = parameter.name;
      name.replace(begin, end - begin, fmt::to_string(expert));
      values[name] = all.subspan(expert * size, size);
    }
  }
  return values;
}

// Owners of the bytes of one checkpoint.
struct Encoded {
  std::map<std::string, std::vector<uint8_t>, std::less<>> bytes;  // by tensor
};

template <typename T, typename Encode>
std::vector<uint8_t> Elements(std::span<const float> values, const Encode& encode) {
  std::vector<uint8_t> bytes(values.size() * sizeof(T));
  for (size_t i = 0; i < values.size(); ++i) {
    const T element = encode(values[i]);
    std::memcpy(bytes.data() + i * sizeof(T), &element, sizeof(T));
  }
  return bytes;
}

std::string ScaleName(std::string_view weight) {
  return std::string(weight.substr(0, weight.size() - kWeightSuffix.size())) +
         std::string(kScaleSuffix);
}

// `scale`: the spec of the tensor's scales.
void EncodeScaled(const TensorSpec& spec, const TensorSpec& scale, std::span<const float> values,
                  Encoded* encoded) {
  const int64_t rows = spec.shape[0];
  EncodedWeight weight;
  if (spec.dtype == DType::kI8) {
    weight = EncodeFp4Rows(values, rows, spec.shape[1] * 2);
  } else if (scale.shape[0] == rows) {  // one scale for each row and 32 columns
    weight = EncodeFp8Rows(values, rows, spec.shape[1]);
  } else {
    weight = EncodeFp8Tiles(values, rows, spec.shape[1]);
  }
  encoded->bytes[spec.name] = std::move(weight.codes);
  encoded->bytes[scale.name] = std::move(weight.scales);
}

Status EncodeTensor(const TensorSpec& spec,
                    const std::map<std::string_view, const TensorSpec*>& specs,
                    const Values& values, Encoded* encoded) {
  // The router's bias for image spans: without images in training it is that of text.
  constexpr std::string_view kVisionBias = ".bias_vl";
  std::string source = spec.name;
  auto found = values.find(source);
  if (found == values.end() && spec.name.ends_with(kVisionBias)) {
    source = spec.name.substr(0, spec.name.size() - kVisionBias.size()) + ".bias";
    found = values.find(source);
  }
  const auto count = static_cast<size_t>(found == values.end() ? 0 : found->second.size());
  if (count != static_cast<size_t>(spec.parameters)) {
    return Fail(
        fmt::format("The catalogue asks for {} with {} values, and the trained model has "
                    "{} of them.",
                    spec.name, spec.parameters, count));
  }
  switch (spec.dtype) {
    case DType::kBf16:
      encoded->bytes[spec.name] = Elements<uint16_t>(found->second, EncodeBf16);
      return {};
    case DType::kF32:
      encoded->bytes[spec.name] = Elements<float>(found->second, [](float value) { return value; });
      return {};
    case DType::kF8E4M3:
    case DType::kI8: {
      const auto scale = specs.find(ScaleName(spec.name));
      CHECK(scale != specs.end(), spec.name);
      EncodeScaled(spec, *scale->second, found->second, encoded);
      return {};
    }
    case DType::kF8E8M0:
      return {};  // written with its weight
  }
  return {};
}

Status CopyInto(const std::string& from_dir, const std::string& name, const std::string& out_dir) {
  const std::string text = TRY(ReadFile(JoinPath(from_dir, name), kTokenizerFileBytesMax));
  return WriteFile(JoinPath(out_dir, name), std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace

Status WriteWeights(const Model& model, const std::string& out_dir) {
  const Values values = TRY(CollectValues(model));
  const std::vector<TensorSpec> catalogue = TensorCatalogue(model.config());
  std::map<std::string_view, const TensorSpec*> specs;
  for (const TensorSpec& spec : catalogue) specs[spec.name] = &spec;
  Encoded encoded;
  for (const TensorSpec& spec : catalogue) {
    if (spec.dtype == DType::kF8E8M0) continue;
    TRY_STATUS(EncodeTensor(spec, specs, values, &encoded));
  }
  std::vector<TensorToWrite> tensors;
  for (const TensorSpec& spec : catalogue) {
    const std::vector<uint8_t>& bytes = encoded.bytes.find(spec.name)->second;
    tensors.push_back(
        {spec.name, spec.dtype, spec.shape, std::as_bytes(std::span(bytes.data(), bytes.size()))});
  }
  return WriteSafetensors(JoinPath(out_dir, kWeightsFile), tensors);
}

Status ExportModel(const Model& model, const std::string& files_dir, const Json& origin,
                   const std::string& out_dir) {
  if (FileExists(JoinPath(out_dir, kWeightsFile))) {
    return Fail(fmt::format("{} holds a model already; name a new folder, or remove its {}.",
                            out_dir, kWeightsFile));
  }
  std::error_code error;
  std::filesystem::create_directories(out_dir, error);
  if (error) {
    return Fail(ErrorCode::kIo, fmt::format("Cannot make {}: {}.", out_dir, error.message()));
  }
  for (const char* name : {kModelConfigFile, kTokenizerFile, kTokenizerConfigFile}) {
    TRY_STATUS(CopyInto(files_dir, name, out_dir));
  }
  Json marker{JsonObject{}};
  marker.Set("random_weights", false);
  marker.Set("trained", origin);
  const std::string text = DumpJson(marker, JsonStyle::kPretty) + '\n';
  TRY_STATUS(WriteFile(JoinPath(out_dir, kMarkerFile),
                       std::as_bytes(std::span(text.data(), text.size()))));
  // Last, because a folder with weights counts as a whole model.
  return WriteWeights(model, out_dir);
}

Result<Json> ReadModelOrigin(const std::string& model_dir) {
  const std::string path = JoinPath(model_dir, kMarkerFile);
  if (!FileExists(path)) return Json();
  const std::string text = TRY(ReadFile(path, kMarkerBytesMax));
  const Json marker = TRY(ParseJson(text, path));
  const Json* origin = marker.Find("trained");
  if (origin == nullptr) return Json();
  if (IsOrigin(*origin)) return *origin;
  return Fail(
      fmt::format("{}: trained must be an object of numbers and texts, with at most {} models in "
                  "{} within each other; take it out, and what began with the model does not tell "
                  "of it.",
                  path, kOriginsMax, kBegunFrom));
}

}  // namespace minke::train

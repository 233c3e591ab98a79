#include "train/model_parameters.h"

#include <fmt/format.h>

#include <cstring>
#include <span>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "checkpoint/safetensors.h"
#include "core/numeric_formats.h"
#include "model/weights.h"
#include "train/weight_encoder.h"

namespace minke::train {

namespace {

constexpr std::string_view kExpertMark = ".ffn.experts.";

bool Contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// "layers.3.ffn.experts.17.w1.weight" -> "layers.3.ffn.experts.*.w1.weight".
std::string StackName(const std::string& name) {
  const size_t number = name.find(kExpertMark) + kExpertMark.size();
  return name.substr(0, number) + "*" + name.substr(name.find('.', number));
}

ParameterGroup GroupOf(const TensorSpec& spec) {
  const std::string& name = spec.name;
  if (name.ends_with(".gate.bias") || name.ends_with(".gate.bias_vl")) return ParameterGroup::kBias;
  if (name == "embed.weight" || name == "head.weight" || Contains(name, ".markov_head.")) {
    return ParameterGroup::kEmbedding;
  }
  if (name.ends_with(".engram.embed.weight")) return ParameterGroup::kEngramTable;
  const bool is_matrix = spec.shape.size() == 2;
  const bool is_adam = Contains(name, ".hc_") || name.ends_with(".gate.weight") ||
                       name.ends_with(".weights_proj.weight") || name.ends_with(".q_weight") ||
                       name.ends_with(".k_weight") || Contains(name, ".confidence_head.");
  return is_matrix && !is_adam ? ParameterGroup::kMuon : ParameterGroup::kAdam;
}

WeightGrid GridOf(const TensorSpec& spec) {
  switch (spec.dtype) {
    case DType::kBf16:
      return WeightGrid::kBf16;
    case DType::kF8E4M3:
      return spec.name.ends_with(".engram.embed.weight") ? WeightGrid::kFp8Rows
                                                         : WeightGrid::kFp8Tiles;
    case DType::kI8:
      return WeightGrid::kFp4Rows;
    default:
      return WeightGrid::kFloat;
  }
}

// What a stored tensor decodes to. REQUIRES: shape and dtype checked.
void DecodeTensor(const Checkpoint& checkpoint, const std::string& name, WeightGrid grid,
                  int64_t rows, int64_t cols, std::span<float> values) {
  const TensorView& tensor = *checkpoint.Find(name);
  const auto bytes = [](const TensorView& view) {
    return std::span<const uint8_t>(reinterpret_cast<const uint8_t*>(view.bytes.data()),
                                    view.bytes.size());
  };
  if (grid == WeightGrid::kFloat) {
    std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
    return;
  }
  if (grid == WeightGrid::kBf16) {
    for (size_t i = 0; i < values.size(); ++i) {
      uint16_t bits;
      std::memcpy(&bits, tensor.bytes.data() + 2 * i, sizeof(bits));
      values[i] = DecodeBf16(bits);
    }
    return;
  }
  const std::string base = name.substr(0, name.size() - std::string_view(".weight").size());
  const TensorView& scales = *checkpoint.Find(base + ".scale");
  const auto decode = grid == WeightGrid::kFp8Tiles  ? DecodeFp8Tiles
                      : grid == WeightGrid::kFp8Rows ? DecodeFp8Rows
                                                     : DecodeFp4Rows;
  decode(bytes(tensor), bytes(scales), rows, cols, values);
}

// Binds names to tensors; `prefix` is that of the layer or draft stage.
class Binder {
 public:
  Binder(const std::vector<Parameter>& parameters, const std::vector<torch::Tensor>& values) {
    for (size_t i = 0; i < parameters.size(); ++i) by_name_[parameters[i].name] = values[i];
  }
  torch::Tensor operator()(const std::string& name) const {
    const auto found = by_name_.find(name);
    return found == by_name_.end() ? torch::Tensor() : found->second;
  }

  LayerTensors Layer(const std::string& prefix) const {
    const auto at = [&](std::string_view name) { return (*this)(prefix + std::string(name)); };
    LayerTensors tensors;
    tensors.attn_norm = at("attn_norm.weight");
    tensors.ffn_norm = at("ffn_norm.weight");
    tensors.hc_attn = {at("hc_attn_fn"), at("hc_attn_base"), at("hc_attn_scale")};
    tensors.hc_ffn = {at("hc_ffn_fn"), at("hc_ffn_base"), at("hc_ffn_scale")};
    tensors.attn_sink = at("attn.attn_sink");
    tensors.wq_a = at("attn.wq_a.weight");
    tensors.q_norm = at("attn.q_norm.weight");
    tensors.wq_b = at("attn.wq_b.weight");
    tensors.wkv = at("attn.wkv.weight");
    tensors.kv_norm = at("attn.kv_norm.weight");
    tensors.wo_a = at("attn.wo_a.weight");
    tensors.wo_b = at("attn.wo_b.weight");
    tensors.compressor_wkv = at("attn.compressor.wkv.weight");
    tensors.compressor_wgate = at("attn.compressor.wgate.weight");
    tensors.compressor_norm = at("attn.compressor.norm.weight");
    tensors.index_wq_b = at("attn.indexer.wq_b.weight");
    tensors.index_weights = at("attn.indexer.weights_proj.weight");
    tensors.index_wk = at("attn.indexer.wk.weight");
    tensors.index_k_norm = at("attn.indexer.k_norm.weight");
    tensors.ffn = {at("ffn.gate.weight"),
                   at("ffn.gate.bias"),
                   at("ffn.experts.*.w1.weight"),
                   at("ffn.experts.*.w2.weight"),
                   at("ffn.experts.*.w3.weight"),
                   at("ffn.shared_experts.w1.weight"),
                   at("ffn.shared_experts.w2.weight"),
                   at("ffn.shared_experts.w3.weight")};
    tensors.engram_table = at("engram.embed.weight");
    tensors.engram_wkv = at("engram.wkv.weight");
    tensors.engram_q_weight = at("engram.q_weight");
    tensors.engram_k_weight = at("engram.k_weight");
    return tensors;
  }

 private:
  std::unordered_map<std::string, torch::Tensor> by_name_;
};

}  // namespace

Result<ParameterList> MakeParameters(const ModelConfig& config) {
  if (config.vision.num_hidden_layers > 0) {
    return Fail(
        fmt::format("config.json: \"vision_config\" has {} layers, but the trainer has no "
                    "vision tower; set \"num_hidden_layers\" to 0 there",
                    config.vision.num_hidden_layers));
  }
  ParameterList list;
  for (const TensorSpec& spec : TensorCatalogue(config)) {
    if (spec.dtype == DType::kF8E8M0) continue;  // a scale: part of its weight
    const WeightGrid grid = GridOf(spec);
    Parameter parameter;
    parameter.name = spec.name;
    parameter.group = GroupOf(spec);
    std::vector<int64_t> shape = spec.shape;
    if (grid == WeightGrid::kFp4Rows) shape.back() *= 2;
    if (Contains(spec.name, kExpertMark)) {
      if (!Contains(spec.name, ".experts.0.")) continue;
      parameter.name = StackName(spec.name);
      parameter.stacked = true;
      shape.insert(shape.begin(), spec.name.starts_with(kDraftPrefix)
                                      ? config.dspark_n_routed_experts
                                      : config.n_routed_experts);
    }
    parameter.value = torch::zeros(shape);
    parameter.value.set_requires_grad(parameter.group != ParameterGroup::kBias);
    list.parameters.push_back(std::move(parameter));
    list.grids.push_back(grid);
  }
  return list;
}

Status LoadParameters(const ModelConfig& config, const std::string& model_dir,
                      std::vector<Parameter>& parameters) {
  const Checkpoint checkpoint = TRY(Checkpoint::Open(model_dir));
  TRY_STATUS(CheckTensors(config, checkpoint));
  const ParameterList expected = TRY(MakeParameters(config));
  CHECK(expected.parameters.size() == parameters.size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    const torch::Tensor& value = parameters[i].value;
    const int64_t cols = value.size(-1);
    const int64_t count = parameters[i].stacked ? value.size(0) : 1;
    const int64_t floats = value.numel() / count;
    for (int64_t item = 0; item < count; ++item) {
      std::string name = parameters[i].name;
      if (parameters[i].stacked) name.replace(name.find('*'), 1, std::to_string(item));
      DecodeTensor(checkpoint, name, expected.grids[i], floats / cols, cols,
                   {value.data_ptr<float>() + item * floats, static_cast<size_t>(floats)});
    }
  }
  return {};
}

ModelTensors BindTensors(const ModelConfig& config, const std::vector<Parameter>& parameters,
                         const std::vector<torch::Tensor>& values) {
  CHECK(parameters.size() == values.size());
  const Binder binder(parameters, values);
  ModelTensors tensors;
  tensors.embed = binder("embed.weight");
  tensors.norm = binder("norm.weight");
  tensors.head = binder("head.weight");
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    tensors.layers.push_back(binder.Layer(fmt::format("layers.{}.", layer)));
  }
  const int64_t stages = config.num_nextn_predict_layers;
  if (stages == 0) return tensors;
  for (int64_t stage = 0; stage < stages; ++stage) {
    tensors.draft.stages.push_back(binder.Layer(fmt::format("{}{}.", kDraftPrefix, stage)));
  }
  const std::string last = fmt::format("{}{}.", kDraftPrefix, stages - 1);
  tensors.draft.main_proj = binder("mtp.0.main_proj.weight");
  tensors.draft.main_norm = binder("mtp.0.main_norm.weight");
  tensors.draft.norm = binder(last + "norm.weight");
  tensors.draft.markov_embed = binder(last + "markov_head.embed.weight");
  tensors.draft.markov_head = binder(last + "markov_head.head.weight");
  tensors.draft.confidence = binder(last + "confidence_head.proj.weight");
  return tensors;
}

}  // namespace minke::train

#include "train/structured_initialisation.h"

#include <ATen/CPUGeneratorImpl.h>
#include <fmt/format.h>

#include <cmath>
#include <string_view>

#include "model/layers.h"
#include "train/model_parameters.h"

namespace minke::train {

namespace {

using torch::Tensor;

constexpr double kEmbedDeviation = 0.5;
constexpr double kOutputGain = 0.5;  // of wo_b, w2 and the gate
constexpr double kMixDeviation = 0.3;
constexpr double kMixScale = 0.3;
constexpr double kPreOpen = 1.5;     // base of the stream that a sublayer reads; others minus that
constexpr double kCombDiagonal = 4;  // base of comb: nearly the identity after Sinkhorn
constexpr double kEngramDeviation = 0.1;

constexpr double kSmallGain = 0.1;    // on what the structure replaces
constexpr double kContentGain = 0.3;  // on the contents of offset heads
constexpr double kConstantKey = 0.8;
constexpr double kOffsetSharpness = 8;  // of the score of the wanted offset
constexpr double kTiedGain = 2;
constexpr double kMatchGain = 2.5;

double DeviationOf(const ModelConfig& config, const Parameter& parameter) {
  const std::string& name = parameter.name;
  const auto fan_in = static_cast<double>(parameter.value.size(-1));
  if (name == "embed.weight") return kEmbedDeviation;
  if (name == "head.weight") {
    return kEmbedDeviation / std::sqrt(static_cast<double>(config.hidden_size));
  }
  if (name.ends_with("engram.embed.weight")) return kEngramDeviation;
  if (name.ends_with("_fn")) return kMixDeviation / std::sqrt(fan_in);
  const bool is_output = name.ends_with("wo_b.weight") || name.ends_with(".w2.weight") ||
                         name.ends_with(".gate.weight");
  return (is_output ? kOutputGain : 1.0) / std::sqrt(fan_in);
}

// base of the mixes that sublayer 2 * layer + is_ffn computes: pre opens one stream after the
// other, post is one, comb keeps every stream.
void FillMixBase(int64_t hc_mult, int64_t layer, bool is_ffn, Tensor base) {
  base.zero_();
  const int64_t open = (2 * layer + (is_ffn ? 1 : 0) + 1) % hc_mult;
  for (int64_t stream = 0; stream < hc_mult; ++stream) {
    base[stream] = stream == open ? kPreOpen : -kPreOpen;
    base[2 * hc_mult + stream * hc_mult + stream] = kCombDiagonal;
  }
}

// Draft stages count on behind the layers.
int64_t LayerOf(const ModelConfig& config, const std::string& name) {
  if (!name.starts_with(kDraftPrefix)) {
    return std::stoll(name.substr(std::string_view("layers.").size()));
  }
  return config.num_hidden_layers + std::stoll(name.substr(kDraftPrefix.size()));
}

bool IsStructured(const std::string& name) {
  if (name.starts_with(kDraftPrefix)) return false;
  for (const std::string_view ending :
       {"attn.wq_a.weight", "attn.wq_b.weight", "attn.compressor.wkv.weight",
        "attn.compressor.wgate.weight", ".attn_norm.weight", "attn.q_norm.weight",
        "attn.kv_norm.weight"}) {
    if (name.ends_with(ending)) return true;
  }
  return name == "layers.0.attn.wkv.weight" || name == "layers.0.attn.wo_a.weight" ||
         name == "layers.0.attn.wo_b.weight";
}

// Head h of layer 0 attends to the token h + 1 back: a constant key under a rotary query whose
// phase is that offset.
void AddOffsetHeads(const ModelConfig& config, const LayerTensors& layer) {
  const int64_t rope = config.qk_rope_head_dim;
  const int64_t content = config.head_dim - rope;
  layer.wkv.slice(0, content).mul_(kSmallGain);
  layer.wq_a[0].zero_();
  layer.wq_a[0][0] = 1.0;
  const std::vector<float> frequencies = WindowFrequencies(config);
  for (int64_t pair = 0; pair < rope / 2; ++pair) {
    layer.wkv[content + 2 * pair][0] = kConstantKey;
  }
  for (int64_t head = 0; head < config.num_attention_heads; ++head) {
    Tensor rows = layer.wq_b.slice(0, head * config.head_dim, (head + 1) * config.head_dim);
    rows.slice(0, 0, content).mul_(kContentGain);
    rows.slice(0, content).mul_(kSmallGain);
    for (int64_t pair = 0; pair < rope / 2; ++pair) {
      const double angle = frequencies[static_cast<size_t>(pair)] * static_cast<double>(head + 1);
      rows[content + 2 * pair][0] = kOffsetSharpness * std::cos(angle);
      rows[content + 2 * pair + 1][0] = -kOffsetSharpness * std::sin(angle);
    }
  }
}

// What layer 0 adds is the same function of a token whichever head fetched it.
void TieOutput(const ModelConfig& config, const LayerTensors& layer) {
  const int64_t heads_per_group = config.num_attention_heads / config.o_groups;
  const int64_t rank = config.o_lora_rank;
  const Tensor block = layer.wo_a.slice(0, 0, rank).slice(1, 0, config.head_dim).clone() *
                       (std::sqrt(static_cast<double>(heads_per_group)) * kTiedGain);
  const Tensor out = layer.wo_b.slice(1, 0, rank).clone();
  for (int64_t group = 0; group < config.o_groups; ++group) {
    for (int64_t head = 0; head < heads_per_group; ++head) {
      layer.wo_a.slice(0, group * rank, (group + 1) * rank)
          .slice(1, head * config.head_dim, (head + 1) * config.head_dim)
          .copy_(block);
    }
    layer.wo_b.slice(1, group * rank, (group + 1) * rank).copy_(out);
  }
}

// Half of the heads score compressed rows by the similarity of hidden states.
void AddMatch(const ModelConfig& config, const LayerTensors& source, const LayerTensors& layer) {
  const int64_t content = config.head_dim - config.qk_rope_head_dim;
  const Tensor match =
      kMatchGain * torch::matmul(source.compressor_wkv.slice(0, 0, content), layer.wq_a.t());
  for (int64_t head = 0; head < (config.num_attention_heads + 1) / 2; ++head) {
    layer.wq_b.slice(0, head * config.head_dim, head * config.head_dim + content).copy_(match);
  }
}

}  // namespace

void InitialisePlainly(const ModelConfig& config, uint64_t seed,
                       std::vector<Parameter>& parameters) {
  const torch::NoGradGuard no_gradient;
  at::Generator generator = at::detail::createCPUGenerator(seed);
  for (Parameter& parameter : parameters) {
    const std::string& name = parameter.name;
    if (parameter.group == ParameterGroup::kBias || name.ends_with("attn_sink")) {
      parameter.value.zero_();
    } else if (name.ends_with("norm.weight") || name.ends_with("engram.q_weight") ||
               name.ends_with("engram.k_weight")) {
      parameter.value.fill_(1.0);
    } else if (name.ends_with("_base")) {
      FillMixBase(config.hc_mult, LayerOf(config, name), name.ends_with("hc_ffn_base"),
                  parameter.value);
    } else if (name.ends_with("_scale")) {
      parameter.value.fill_(kMixScale);
    } else {
      parameter.value.normal_(0.0, DeviationOf(config, parameter), generator);
    }
  }
}

Status AddStructure(const ModelConfig& config, std::vector<Parameter>& parameters) {
  if (config.layers.front().mode != LayerMode::kSwa ||
      config.sliding_window <= config.num_attention_heads) {
    return Fail(fmt::format(
        "config.json: the structured initialisation needs a layer 0 without "
        "compressed rows and a sliding_window above the {} heads, but layer 0 "
        "has compress ratio {} and the window {} tokens; choose the plain "
        "initialisation",
        config.num_attention_heads, config.compress_ratios.front(), config.sliding_window));
  }
  const torch::NoGradGuard no_gradient;
  std::vector<Tensor> values;
  for (Parameter& parameter : parameters) {
    values.push_back(parameter.value);
    parameter.structured = IsStructured(parameter.name);
  }
  const ModelTensors tensors = BindTensors(config, parameters, values);
  tensors.embed.select(1, 0).fill_(1.0);
  AddOffsetHeads(config, tensors.layers.front());
  TieOutput(config, tensors.layers.front());
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const LayerRole& role = config.layers[static_cast<size_t>(layer)];
    if (role.kv_source < 0) continue;
    AddMatch(config, tensors.layers[static_cast<size_t>(role.kv_source)],
             tensors.layers[static_cast<size_t>(layer)]);
  }
  return {};
}

}  // namespace minke::train

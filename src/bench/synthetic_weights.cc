#include "bench/synthetic_weights.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>

#include "core/numeric_formats.h"
#include "core/result.h"

namespace minke {
namespace {

constexpr uint64_t kSyntheticDomain = 0x73796E7468;  // first key of the generators
constexpr double kNormSpread = 0.1;                  // of norm weights around their mean
constexpr double kEmbedDeviation = 0.12;
constexpr double kEngramDeviation = 0.1;
// Mixes of the residual streams as in a trained model: one stream open, streams kept (3.2).
constexpr double kMixGain = 0.3;
constexpr float kMixScale = 0.3f;
constexpr float kPreOpen = 1.5f;
constexpr float kCombDiagonal = 4;

struct NamedFactor {
  std::string_view suffix;
  double factor;
};

// Means of norm weights.
constexpr NamedFactor kNormMeans[] = {
    {"attn_norm.weight", 0.025},  {"ffn_norm.weight", 0.2},        {"q_norm.weight", 0.97},
    {"attn.kv_norm.weight", 0.4}, {"compressor.norm.weight", 0.6}, {"indexer.k_norm.weight", 0.5},
};
// Standard deviations as a multiple of fan_in^-0.5; what is not listed has 1.
constexpr NamedFactor kGains[] = {
    {"attn.wq_a", 1.6}, {"wq_b", 0.95},
    {"attn.wkv", 1.8},  {"attn.wo_a", 1.6},
    {"attn.wo_b", 1.9}, {"ffn.gate.weight", 2.9},
    {".w1", 1.5},       {".w3", 1.5},
    {".w2", 1.05},      {"compressor.wkv.weight", 1.8},
};

template <size_t N>
double FactorOf(std::string_view name, const NamedFactor (&list)[N]) {
  for (const NamedFactor& entry : list) {
    if (name.ends_with(entry.suffix)) return entry.factor;
  }
  return 1;
}

// "attn.wq_a" of "layers.0.attn.wq_a.weight" and of its scale.
std::string_view BaseName(const TensorSpec& spec) {
  std::string_view name = spec.name;
  for (const std::string_view suffix : {".weight", ".scale"}) {
    const bool quantized =
        spec.dtype == DType::kF8E4M3 || spec.dtype == DType::kI8 || spec.dtype == DType::kF8E8M0;
    if (quantized && name.ends_with(suffix)) return name.substr(0, name.size() - suffix.size());
  }
  return name;
}

double DeviationOf(const TensorSpec& spec) {
  const std::string_view base = BaseName(spec);
  if (base == "embed.weight") return kEmbedDeviation;
  if (base.ends_with("engram.embed")) return kEngramDeviation;
  // Columns: packed codes hold two in a byte, and a scale stands for 32.
  double fan_in = static_cast<double>(spec.shape.back());
  if (spec.dtype == DType::kI8) fan_in *= 2;
  if (spec.dtype == DType::kF8E8M0) fan_in *= 32;
  const double gain = base.ends_with("_fn") ? kMixGain : FactorOf(base, kGains);
  return gain / std::sqrt(fan_in);
}

// base of the mixes: pre opens one stream after the other, post is even, comb keeps every stream.
std::vector<float> MixBase(const TensorSpec& spec, int64_t hc_mult) {
  const int64_t layer = std::atoll(spec.name.c_str() + std::string_view("layers.").size());
  const int64_t sublayer = 2 * layer + (spec.name.ends_with("hc_ffn_base") ? 1 : 0);
  std::vector<float> base(static_cast<size_t>(spec.shape[0]), 0.0f);
  for (int64_t stream = 0; stream < hc_mult; ++stream) {
    const bool open = stream == (sublayer + 1) % hc_mult;
    base[static_cast<size_t>(stream)] = open ? kPreOpen : -kPreOpen;
    base[static_cast<size_t>(2 * hc_mult + stream * hc_mult + stream)] = kCombDiagonal;
  }
  return base;
}

}  // namespace

SyntheticWeights::SyntheticWeights(const ModelConfig& config, uint64_t seed)
    : config_(config), seed_(seed) {}

const QuantizedNormal* SyntheticWeights::Quantized(DType codes, double deviation) {
  const auto found = quantized_.find({codes, deviation});
  if (found != quantized_.end()) return &found->second;
  QuantizedNormal made = codes == DType::kI8 ? Fp4Normal(deviation) : Fp8Normal(deviation);
  return &quantized_.emplace(std::pair(codes, deviation), std::move(made)).first->second;
}

const std::vector<uint16_t>* SyntheticWeights::Bf16(double mean, double deviation) {
  const auto found = bf16_.find({mean, deviation});
  if (found != bf16_.end()) return &found->second;
  return &bf16_.emplace(std::pair(mean, deviation), Bf16Normal(mean, deviation)).first->second;
}

SyntheticWeights::Recipe SyntheticWeights::Prepare(const TensorSpec& spec, int64_t index) {
  Recipe recipe;
  recipe.spec = &spec;
  recipe.index = index;
  const std::string_view name = spec.name;
  if (spec.dtype == DType::kF8E8M0) {
    const bool fp4 = name.find("ffn.experts.") != std::string_view::npos;
    recipe.quantized = Quantized(fp4 ? DType::kI8 : DType::kF8E4M3, DeviationOf(spec));
  } else if (spec.dtype == DType::kF8E4M3 || spec.dtype == DType::kI8) {
    recipe.quantized = Quantized(spec.dtype, DeviationOf(spec));
  } else if (name.ends_with("_base")) {
    recipe.values = MixBase(spec, config_.hc_mult);
  } else if (name.ends_with("_scale")) {
    recipe.values.assign(static_cast<size_t>(spec.shape[0]), kMixScale);
  } else if (name.find(".bias") != std::string_view::npos || name.ends_with("attn_sink")) {
    recipe.values.assign(static_cast<size_t>(spec.shape[0]), 0.0f);
  } else if (spec.shape.size() == 1 || name.ends_with("q_weight") || name.ends_with("k_weight")) {
    const double mean = FactorOf(name, kNormMeans);
    recipe.bf16 = Bf16(mean, kNormSpread * mean);
  } else {
    recipe.bf16 = Bf16(0, DeviationOf(spec));
  }
  return recipe;
}

void SyntheticWeights::Fill(const Recipe& recipe, int64_t piece, std::span<std::byte> bytes) const {
  Random random(
      {kSyntheticDomain, seed_, static_cast<uint64_t>(recipe.index), static_cast<uint64_t>(piece)});
  if (!recipe.values.empty()) {
    CHECK(piece == 0 && bytes.size() == recipe.values.size() * sizeof(float), recipe.spec->name);
    std::memcpy(bytes.data(), recipe.values.data(), bytes.size());
    return;
  }
  const std::span<uint8_t> codes(reinterpret_cast<uint8_t*>(bytes.data()), bytes.size());
  switch (recipe.spec->dtype) {
    case DType::kF8E4M3:
    case DType::kI8:
      return FillCodes(recipe.quantized->codes, random, codes);
    case DType::kF8E8M0:
      return FillScales(recipe.quantized->scale, random, codes);
    case DType::kBf16:
      return FillBf16(*recipe.bf16, random,
                      {reinterpret_cast<uint16_t*>(bytes.data()), bytes.size() / 2});
    case DType::kF32:
      for (size_t at = 0; at < bytes.size(); at += sizeof(float)) {
        const float value = DecodeBf16((*recipe.bf16)[random.Next() % recipe.bf16->size()]);
        std::memcpy(bytes.data() + at, &value, sizeof(value));
      }
  }
}

}  // namespace minke

#include "bench/model_work.h"

#include <algorithm>
#include <cstdlib>
#include <string_view>

#include "model/weights.h"

namespace minke {
namespace {

constexpr int64_t kScaleGroup = 32;  // columns of an Engram row that share a scale

}  // namespace

Json StepBytes::ToJson() const {
  Json json;
  json.Set("dense", dense);
  json.Set("experts", experts);
  json.Set("head", head);
  json.Set("engram", engram);
  json.Set("cache", cache);
  json.Set("total", total());
  return json;
}

ModelWork::ModelWork(const ModelConfig& config, const StateLayout& layout)
    : config_(config),
      layout_(layout),
      dense_bytes_(static_cast<size_t>(config.num_hidden_layers)),
      linear_parameters_(static_cast<size_t>(config.num_hidden_layers)) {
  constexpr std::string_view kLayers = "layers.";
  constexpr std::string_view kExpert = "layers.0.ffn.experts.0.";
  for (const TensorSpec& spec : TensorCatalogue(config)) {
    const std::string_view name = spec.name;
    const int64_t bytes = TensorBytes(spec);
    if (name == "head.weight" || name == "norm.weight") {
      head_bytes_ += bytes;
      head_parameters_ += spec.shape.size() == 2 ? spec.parameters : 0;
    }
    if (name.starts_with(kExpert)) {
      expert_bytes_ += bytes;
      expert_parameters_ += spec.parameters;
    }
    const bool looked_up = spec.part == ModelPart::kRoutedExperts ||
                           name.find(".engram.embed.") != std::string_view::npos;
    if (!name.starts_with(kLayers) || looked_up) continue;
    const auto layer = static_cast<size_t>(std::atoll(spec.name.c_str() + kLayers.size()));
    dense_bytes_[layer] += bytes;
    // Vectors, and Engram's q_weight and k_weight, multiply value by value.
    const bool product =
        spec.shape.size() == 2 && !name.ends_with("q_weight") && !name.ends_with("k_weight");
    if (product) linear_parameters_[layer] += spec.parameters;
  }
}

int64_t ModelWork::ScoredRows(const LayerRole& role, int64_t context) const {
  const int64_t rows = context / role.compress_ratio;
  if (!role.uses_candidates) return rows;
  return std::min(rows, config_.candidate_topk_blocks * config_.candidate_block_size);
}

StepBytes ModelWork::DecodeBytes(int64_t context, int64_t sequences, int64_t chosen_experts) const {
  StepBytes bytes;
  bytes.head = head_bytes_;
  bytes.experts = chosen_experts * expert_bytes_;
  for (size_t layer = 0; layer < dense_bytes_.size(); ++layer) {
    bytes.dense += dense_bytes_[layer];
    const LayerRole& role = config_.layers[layer];
    bytes.cache += std::min(context, config_.sliding_window) * layout_.window_row_bytes;
    if (role.engram_index >= 0) {
      bytes.engram += config_.engram_columns() *
                      (config_.engram_head_dim + config_.engram_head_dim / kScaleGroup);
    }
    if (role.compress_ratio == 0) continue;
    bytes.cache +=
        std::min(config_.index_topk, context / role.compress_ratio) * layout_.compressed_row_bytes;
    if (role.index_source == static_cast<int64_t>(layer)) {
      bytes.cache += ScoredRows(role, context) * layout_.index_row_bytes;
    }
  }
  bytes.cache *= sequences;
  bytes.engram *= sequences;
  // A row of the embedding for each token counts with the head, as the rest of it is not read.
  bytes.head += sequences * config_.hidden_size * 2;
  return bytes;
}

double ModelWork::LayerMultiplyAdds(int64_t layer, int64_t begin, int64_t rows) const {
  const LayerRole& role = config_.layers[static_cast<size_t>(layer)];
  const int64_t per_row = linear_parameters_[static_cast<size_t>(layer)] +
                          config_.num_experts_per_tok * expert_parameters_;
  double sum = static_cast<double>(rows) * static_cast<double>(per_row);
  for (int64_t row = 0; row < rows; ++row) {
    const int64_t context = begin + row + 1;
    int64_t attended = std::min(context, config_.sliding_window);
    int64_t scored = 0;
    if (role.compress_ratio > 0) {
      attended += std::min(config_.index_topk, context / role.compress_ratio);
      if (role.index_source == layer) scored = ScoredRows(role, context);
    }
    // A product with the key and one with the value, for each head; a dot for each index head.
    sum += static_cast<double>(2 * config_.num_attention_heads * config_.head_dim * attended +
                               config_.index_n_heads * config_.index_head_dim * scored);
  }
  return sum;
}

double ModelWork::MultiplyAdds(int64_t begin, int64_t rows, int64_t decoder_rows,
                               int64_t logit_rows) const {
  double sum = static_cast<double>(logit_rows) * static_cast<double>(head_parameters_);
  const int64_t skipped = rows - decoder_rows;
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    // The split layer itself leaves its rows behind for all tokens; that little is not counted.
    const bool all = layer < layout_.split_layer;
    sum += all ? LayerMultiplyAdds(layer, begin, rows)
               : LayerMultiplyAdds(layer, begin + skipped, decoder_rows);
  }
  return sum;
}

}  // namespace minke

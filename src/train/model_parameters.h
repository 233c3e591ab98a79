// The catalogue's tensors as float parameters: their list, their places in the layers, their values
// from a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "model/config.h"
#include "train/fake_quantization.h"
#include "train/hyper_connections.h"
#include "train/model.h"
#include "train/moe.h"

namespace minke::train {

inline constexpr std::string_view kDraftPrefix = "mtp.";  // of the names of draft stages

// Every parameter of the config, zero, in the catalogue's order (experts of a layer as three
// stacks), and how each is stored. Refused: a vision tower, which is not trained.
struct ParameterList {
  std::vector<Parameter> parameters;
  std::vector<WeightGrid> grids;
};
Result<ParameterList> MakeParameters(const ModelConfig& config);

// Overwrites the values, in place, with those of a checkpoint of the same config.
Status LoadParameters(const ModelConfig& config, const std::string& model_dir,
                      std::vector<Parameter>& parameters);

// The same tensors by their places. Undefined where a layer has none.
struct LayerTensors {
  torch::Tensor attn_norm;
  torch::Tensor ffn_norm;
  HyperConnectionTensors hc_attn;
  HyperConnectionTensors hc_ffn;
  torch::Tensor attn_sink;
  torch::Tensor wq_a;
  torch::Tensor q_norm;
  torch::Tensor wq_b;
  torch::Tensor wkv;
  torch::Tensor kv_norm;
  torch::Tensor wo_a;
  torch::Tensor wo_b;
  torch::Tensor compressor_wkv;
  torch::Tensor compressor_wgate;
  torch::Tensor compressor_norm;
  torch::Tensor index_wq_b;
  torch::Tensor index_weights;
  torch::Tensor index_wk;
  torch::Tensor index_k_norm;
  MoeTensors ffn;
  torch::Tensor engram_table;
  torch::Tensor engram_wkv;
  torch::Tensor engram_q_weight;
  torch::Tensor engram_k_weight;
};
// The DSpark stages and what they share (architecture.md 9).
struct DraftTensors {
  std::vector<LayerTensors> stages;
  torch::Tensor main_proj;
  torch::Tensor main_norm;
  torch::Tensor norm;
  torch::Tensor markov_embed;
  torch::Tensor markov_head;
  torch::Tensor confidence;
};
struct ModelTensors {
  torch::Tensor embed;
  torch::Tensor norm;
  torch::Tensor head;
  std::vector<LayerTensors> layers;
  DraftTensors draft;
};

// values: one for each parameter, in their order.
ModelTensors BindTensors(const ModelConfig& config, const std::vector<Parameter>& parameters,
                         const std::vector<torch::Tensor>& values);

}  // namespace minke::train

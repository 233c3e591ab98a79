// The catalogue's tensors as float parameters: their list, their places in the layers, their values
// from a checkpoint.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "model/config.h"
#include "train/fake_quantization.h"
#include "train/hyper_connections.h"
#include "train/model.h"
#include "train/moe.h"

namespace minke::train {

// Every parameter of the config, zero, in the catalogue's order (experts of a layer as three
// stacks), and how each is stored. Refused: draft stages and a vision tower, which are not trained.
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
struct ModelTensors {
  torch::Tensor embed;
  torch::Tensor norm;
  torch::Tensor head;
  std::vector<LayerTensors> layers;
};

// values: one for each parameter, in their order.
ModelTensors BindTensors(const ModelConfig& config, const std::vector<Parameter>& parameters,
                         const std::vector<torch::Tensor>& values);

}  // namespace minke::train

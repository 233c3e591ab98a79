#include "train/model.h"

#include <fmt/format.h>

#include <algorithm>
#include <string_view>
#include <utility>

#include "core/result.h"
#include "model/layers.h"
#include "train/fake_quantization.h"
#include "train/forward_pass.h"
#include "train/linear.h"
#include "train/model_parameters.h"
#include "train/structured_initialisation.h"

namespace minke::train {

namespace {

Result<ModelTables> MakeModelTables(const ModelConfig& config,
                                    std::vector<int32_t> engram_token_map) {
  ModelTables tables;
  tables.window_frequencies = WindowFrequencies(config);
  tables.compressed_frequencies = CompressedFrequencies(config);
  if (!config.has_engram()) return tables;
  if (static_cast<int64_t>(engram_token_map.size()) != config.vocab_size) {
    return Fail(
        fmt::format("the Engram token map has {} entries, but vocab_size is {}; the "
                    "tokenizer does not belong to this config.json",
                    engram_token_map.size(), config.vocab_size));
  }
  tables.engram_pad = engram_token_map[static_cast<size_t>(config.engram_pad_token_id)];
  tables.engram_token_map = std::move(engram_token_map);
  for (size_t index = 0; index < config.engram_layer_ids.size(); ++index) {
    tables.engram.push_back(TRY(MakeEngramHash(config, static_cast<int64_t>(index))));
  }
  return tables;
}

bool IsIndexer(const std::string& name) {
  return name.find(".attn.indexer.") != std::string::npos;
}

}  // namespace

struct Model::Impl {
  ModelConfig config;
  ModelTables tables;
  std::vector<Parameter> parameters;
  std::vector<WeightGrid> grids;

  // The tensors that a pass computes with: the parameters, or what storing makes of them. An
  // Engram table is rounded row by row where it is looked up.
  ModelTensors Tensors(const ForwardOptions& options) const {
    std::vector<torch::Tensor> values;
    values.reserve(parameters.size());
    for (size_t i = 0; i < parameters.size(); ++i) {
      const bool learns = !options.indexers_only || IsIndexer(parameters[i].name);
      const torch::Tensor& own = parameters[i].value;
      const torch::Tensor value = learns ? own : own.detach();
      const bool rounds = options.quantization.weights && grids[i] != WeightGrid::kFp8Rows;
      values.push_back(rounds ? FakeQuantizeWeight(value, grids[i]) : value);
    }
    return BindTensors(config, parameters, values);
  }

  void UpdateBias(std::string_view prefix, const torch::Tensor& expert_loads, double rate) {
    const torch::NoGradGuard no_gradient;
    int64_t layer = 0;
    for (Parameter& parameter : parameters) {
      const bool is_bias =
          parameter.name.starts_with(prefix) && parameter.name.ends_with(".ffn.gate.bias");
      if (!is_bias) continue;
      const torch::Tensor loads = expert_loads[layer++];
      parameter.value.add_(((loads.mean() - loads).sign() * rate).to(torch::kFloat32));
    }
  }
};

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

Result<std::unique_ptr<Model>> Model::Create(const ModelConfig& config,
                                             std::vector<int32_t> engram_token_map, uint64_t seed,
                                             Initialisation initialisation) {
  auto impl = std::make_unique<Impl>();
  impl->config = config;
  impl->tables = TRY(MakeModelTables(config, std::move(engram_token_map)));
  ParameterList list = TRY(MakeParameters(config));
  impl->parameters = std::move(list.parameters);
  impl->grids = std::move(list.grids);
  InitialisePlainly(config, seed, impl->parameters);
  if (initialisation == Initialisation::kStructured) {
    TRY_STATUS(AddStructure(config, impl->parameters));
  }
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

Status Model::Load(const std::string& model_dir) {
  const torch::NoGradGuard no_gradient;
  return LoadParameters(impl_->config, model_dir, impl_->parameters);
}

std::unique_ptr<Model> Model::Replica() const {
  auto impl = std::make_unique<Impl>(*impl_);
  for (Parameter& parameter : impl->parameters) {
    const bool learns = parameter.value.requires_grad();
    parameter.value = parameter.value.detach().set_requires_grad(learns);
  }
  return std::unique_ptr<Model>(new Model(std::move(impl)));
}

const ModelConfig& Model::config() const {
  return impl_->config;
}

std::vector<Parameter>& Model::parameters() {
  return impl_->parameters;
}

ForwardResult Model::Forward(const torch::Tensor& ids, const ForwardOptions& options) const {
  const ModelConfig& config = impl_->config;
  CHECK(ids.dim() == 2 && ids.scalar_type() == torch::kInt64 && ids.is_contiguous());
  const int64_t ratio_max =
      *std::max_element(config.compress_ratios.begin(), config.compress_ratios.end());
  CHECK(ids.size(0) > 0 && ids.size(1) >= std::max<int64_t>(1, ratio_max));
  CHECK(options.decoder_from.empty() ||
        (static_cast<int64_t>(options.decoder_from.size()) == ids.size(0) &&
         !config.kv_source_layer_ids.empty()));
  CHECK(options.decoder_from.empty() || !config.has_engram() ||
        config.engram_layer_ids.back() <= config.kv_source_layer_ids.back());
  const ModelTensors tensors = impl_->Tensors(options);
  return ForwardPass(config, impl_->tables, tensors, options).Run(ids);
}

torch::Tensor Model::Logits(const torch::Tensor& hidden, const Quantization& quantization) const {
  for (size_t i = 0; i < impl_->parameters.size(); ++i) {
    const Parameter& parameter = impl_->parameters[i];
    if (parameter.name != "head.weight") continue;
    return Linear(hidden, quantization.weights
                              ? FakeQuantizeWeight(parameter.value, impl_->grids[i])
                              : parameter.value);
  }
  CHECK(false, "the catalogue has a head");
  return {};
}

void Model::UpdateRouterBias(const torch::Tensor& expert_loads, double rate) {
  impl_->UpdateBias("layers.", expert_loads, rate);
}

void Model::UpdateDraftRouterBias(const torch::Tensor& expert_loads, double rate) {
  impl_->UpdateBias(kDraftPrefix, expert_loads, rate);
}

}  // namespace minke::train

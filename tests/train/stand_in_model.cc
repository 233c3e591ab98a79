// A model with train::Model's interface and hardly any arithmetic: the training loop is tested on
// it, because what the loop promises does not depend on the model, and hundreds of steps do.
#include <utility>

#include "train/model.h"

namespace minke::train {

struct Model::Impl {
  ModelConfig config;
  std::vector<Parameter> parameters;
};

Model::Model(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Model::~Model() = default;

namespace {

constexpr int64_t kExperts = 2;

torch::Tensor Start(std::vector<int64_t> shape, uint64_t seed) {
  torch::Tensor tensor = torch::zeros(shape);
  float* const data = tensor.data_ptr<float>();
  uint64_t state = seed;
  for (int64_t i = 0; i < tensor.numel(); ++i) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    data[i] = static_cast<float>(static_cast<double>(state >> 40) * 0x1p-24 - 0.5) * 0.5F;
  }
  return tensor;
}

}  // namespace

Result<std::unique_ptr<Model>> Model::Create(const ModelConfig& config, std::vector<int32_t>,
                                             uint64_t seed, Initialisation) {
  auto model = std::unique_ptr<Model>(new Model(std::make_unique<Impl>()));
  model->impl_->config = config;
  const int64_t d = config.hidden_size;
  const auto add = [&](const char* name, std::vector<int64_t> shape, ParameterGroup group) {
    Parameter parameter{name, Start(std::move(shape), ++seed), group, false, false};
    parameter.value.requires_grad_(group != ParameterGroup::kBias);
    model->impl_->parameters.push_back(std::move(parameter));
  };
  add("embed.weight", {config.vocab_size, d}, ParameterGroup::kEmbedding);
  add("mix.weight", {d, d}, ParameterGroup::kMuon);
  add("experts", {kExperts, d, d}, ParameterGroup::kMuon);
  add("gain", {d}, ParameterGroup::kAdam);
  add("bias", {kExperts}, ParameterGroup::kBias);
  add("head.weight", {config.vocab_size, d}, ParameterGroup::kEmbedding);
  return model;
}

// The loop is linked whole, so every member that it names has to be here.
Status Model::Load(const std::string& model_dir) {
  return Fail("The model of the loop's tests cannot be read from " + model_dir + ".");
}

std::unique_ptr<Model> Model::Replica() const {
  auto model = std::unique_ptr<Model>(new Model(std::make_unique<Impl>()));
  model->impl_->config = impl_->config;
  for (const Parameter& parameter : impl_->parameters) {
    Parameter copy = parameter;
    copy.value = parameter.value.detach();
    copy.value.requires_grad_(parameter.value.requires_grad());
    model->impl_->parameters.push_back(std::move(copy));
  }
  return model;
}

const ModelConfig& Model::config() const {
  return impl_->config;
}
std::vector<Parameter>& Model::parameters() {
  return impl_->parameters;
}

ForwardResult Model::Forward(const torch::Tensor& ids, const ForwardOptions& options) const {
  const std::vector<Parameter>& p = impl_->parameters;
  const torch::Tensor x = torch::embedding(p[0].value, ids);
  const torch::Tensor before =
      torch::cat({torch::zeros_like(x.slice(1, 0, 1)), x.slice(1, 0, x.size(1) - 1)}, 1);
  const torch::Tensor mixed = torch::tanh(torch::matmul(before, p[1].value.t()));
  torch::Tensor y = x + mixed;
  for (int64_t expert = 0; expert < kExperts; ++expert) {
    y = y + torch::tanh(torch::matmul(y, p[2].value[expert].t()) + p[4].value[expert]);
  }
  ForwardResult result;
  result.hidden = y * p[3].value;
  result.expert_loads = torch::ones({1, kExperts}, torch::kFloat64);
  result.expert_loads[0][0] = static_cast<double>(ids.numel());
  if (options.distill) {
    result.index_loss = p[1].value.square().mean();
    result.index_quality = {{0, 8, 0.5, 0.25, 0.125}};
  }
  return result;
}

torch::Tensor Model::Logits(const torch::Tensor& hidden, const Quantization&) const {
  return torch::matmul(hidden, impl_->parameters[5].value.t());
}

void Model::UpdateRouterBias(const torch::Tensor& expert_loads, double rate) {
  const torch::NoGradGuard no_grad;
  const torch::Tensor mean = expert_loads.mean(1, true);
  impl_->parameters[4].value.add_((mean - expert_loads)[0].sign().to(torch::kFloat32), rate);
}

void Model::UpdateDraftRouterBias(const torch::Tensor&, double) {}

}  // namespace minke::train

// DSpark stages: a stage is a layer whose context comes from elsewhere, and its block sees itself.
#include "train/draft.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <string_view>
#include <vector>

#include "tests/model/golden_model.h"
#include "train/model.h"

namespace minke::train {
namespace {

using torch::Tensor;

template <typename T>
T MustHave(Result<T> result) {
  CHECK(result.has_value(), result.error().message);
  return std::move(*result);
}

Tensor SomeIds(int64_t batch, int64_t tokens) {
  return torch::arange(batch * tokens, torch::kInt64)
      .mul(37)
      .remainder(400)
      .add(3)
      .view({batch, tokens});
}

Tensor ValueOf(Model& model, std::string_view name) {
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.name == name) return parameter.value.detach();
  }
  CHECK(false, name);
  return {};
}

std::unique_ptr<Model> GoldenDrafts() {
  const ModelConfig config =
      MustHave(LoadConfig(minke::testing::GoldenPath("dspark") + "/config.json"));
  std::vector<int32_t> map;
  for (int64_t id = 0; id < config.vocab_size; ++id) {
    map.push_back(static_cast<int32_t>(id % config.engram_compressed_vocab_size));
  }
  auto model = MustHave(Model::Create(config, map, 1, Initialisation::kPlain));
  const Status loaded = model->Load(minke::testing::GoldenPath("dspark"));
  CHECK(loaded.has_value(), loaded.error().message);
  return model;
}

// One layer without compressed rows, which the draft stage copies.
ModelConfig OneLayer(int64_t window) {
  ModelConfig config =
      MustHave(LoadConfig(minke::testing::GoldenPath("tiny_swa") + "/config.json"));
  config.num_hidden_layers = 1;
  config.compress_ratios = {0};
  config.layers.resize(1);
  config.sliding_window = window;
  return config;
}

// Its context is what the layer itself computes of the tokens before: taps where the layer begins,
// projected by the identity and normed as its input is. A block of one token is then a token of the
// layer, which sees one row more than the ring holds.
TEST(Drafts, OfOneTokenAreThoseOfALayer) {
  constexpr int64_t kWindow = 16;
  const ModelConfig plain = OneLayer(kWindow + 1);
  ModelConfig drafting = OneLayer(kWindow);
  drafting.num_nextn_predict_layers = 1;
  drafting.dspark_block_size = 1;
  drafting.dspark_noise_token_id = 7;
  drafting.dspark_target_layer_ids = {0};
  drafting.dspark_markov_rank = 8;
  drafting.dspark_n_routed_experts = plain.n_routed_experts;
  drafting.dspark_num_experts_per_tok = plain.num_experts_per_tok;
  const auto layer = MustHave(Model::Create(plain, {}, 5, Initialisation::kPlain));
  const auto model = MustHave(Model::Create(drafting, {}, 6, Initialisation::kPlain));
  for (Parameter& parameter : model->parameters()) {
    const torch::NoGradGuard no_gradient;
    constexpr std::string_view kStage = "mtp.0.";
    std::string source = parameter.name;
    if (source == "mtp.0.main_norm.weight") source = "layers.0.attn_norm.weight";
    if (source == "mtp.0.norm.weight") source = "norm.weight";
    if (source == "mtp.0.main_proj.weight") {
      parameter.value.copy_(torch::eye(plain.hidden_size));
    } else if (source == "mtp.0.markov_head.head.weight") {
      parameter.value.zero_();
    } else if (source.find("_head.") == std::string::npos) {
      if (source.starts_with(kStage)) source.replace(0, kStage.size(), "layers.0.");
      parameter.value.copy_(ValueOf(*layer, source));
    }
  }
  const torch::NoGradGuard no_gradient;
  const Tensor ids = SomeIds(2, 60);
  // Rounded activations differ: those of the taps are rounded once more, before the projection.
  for (const bool weights : {false, true}) {
    Quantization quantization;
    quantization.weights = weights;
    ForwardOptions options;
    options.quantization = quantization;
    const Tensor hidden = layer->Forward(ids, options).hidden;
    options.drafts = {{0, 0}, {0, 9}, {1, 30}, {1, 57}};
    const DraftResult drafts = model->Forward(ids, options).drafts;
    ASSERT_EQ(drafts.logits.size(0), 4);
    for (int64_t i = 0; i < 4; ++i) {
      const DraftAnchor& anchor = options.drafts[static_cast<size_t>(i)];
      const Tensor expected = layer->Logits(
          hidden[anchor.batch].slice(0, anchor.position + 1, anchor.position + 2), quantization);
      const double largest = expected.abs().max().item<double>();
      EXPECT_GT(largest, 0);
      EXPECT_LT((drafts.logits[i] - expected).abs().max().item<double>(), 1e-4 * largest)
          << "anchor " << i;
    }
  }
}

TEST(Drafts, ABlockSeesItsContextAndAllOfItself) {
  torch::manual_seed(3);
  constexpr int64_t kAnchors = 2, kBlock = 3, kHeads = 2, kDim = 4, kWindow = 5;
  const Tensor q = torch::randn({kAnchors, kBlock, kHeads * kDim});
  const Tensor context = torch::randn({kAnchors, kWindow, kDim});
  const Tensor rows = torch::randn({kAnchors, kBlock, kDim});
  const Tensor sink = torch::randn({kHeads});
  Tensor exists = torch::ones({kAnchors, kWindow}, torch::kBool);
  exists[0].slice(0, 0, 3).fill_(false);
  const Tensor out = AttendDraft(q, context, exists, rows, sink);
  for (int64_t a = 0; a < kAnchors; ++a) {
    for (int64_t i = 0; i < kBlock; ++i) {
      for (int64_t head = 0; head < kHeads; ++head) {
        const Tensor query = q[a][i].slice(0, head * kDim, (head + 1) * kDim);
        double sum = std::exp(sink[head].item<double>());
        Tensor expected = torch::zeros({kDim});
        const auto see = [&](const Tensor& key) {
          const double e = std::exp(query.dot(key).item<double>() / 2);  // 4^-1/2
          sum += e;
          expected = expected + key * e;
        };
        for (int64_t slot = 0; slot < kWindow; ++slot) {
          if (exists[a][slot].item<bool>()) see(context[a][slot]);
        }
        for (int64_t other = 0; other < kBlock; ++other) see(rows[a][other]);
        const Tensor found = out[a][i].slice(0, head * kDim, (head + 1) * kDim);
        EXPECT_LT((found - expected / sum).abs().max().item<double>(), 1e-5);
      }
    }
  }
}

TEST(Drafts, HangOnTheTokensThatTheyAreGiven) {
  const auto model = GoldenDrafts();
  const torch::NoGradGuard no_gradient;
  const Tensor ids = SomeIds(1, 96);
  ForwardOptions options;
  options.drafts = {{0, 50}};
  const Tensor logits = model->Forward(ids, options).drafts.logits[0];
  ASSERT_EQ(logits.size(0), 5);
  const auto hangs = [&](int64_t i, int64_t position) {
    Tensor changed = ids.clone();
    changed[0][position] = 11;
    const Tensor other = model->Forward(changed, options).drafts.logits[0];
    const double change = (other[i] - logits[i]).abs().max().item<double>();
    // Another token reaches other experts, whose products have other sizes and last bits.
    return change > 1e-4 * logits.abs().max().item<double>();
  };
  for (int64_t i = 0; i < 5; ++i) {
    EXPECT_TRUE(hangs(i, 51)) << "the token that is given";
    EXPECT_TRUE(hangs(i, 50)) << "the context";
    EXPECT_FALSE(hangs(i, 56)) << "a later token";
    // Proposal i sees the tokens before it through the Markov head, which reads the last alone.
    for (int64_t before = 1; before < 5; ++before) EXPECT_EQ(hangs(i, 51 + before), before == i);
  }
}

TEST(Drafts, TeachTheStagesAlone) {
  const auto model = GoldenDrafts();
  ForwardOptions options;
  options.drafts = {{0, 3}, {0, 40}, {1, 12}, {1, 80}};
  const DraftResult drafts = model->Forward(SomeIds(2, 96), options).drafts;
  (drafts.logits.square().mean() + drafts.confidence.square().mean()).backward();
  int64_t learning = 0;
  for (const Parameter& parameter : model->parameters()) {
    const bool learns =
        parameter.name.starts_with("mtp.") && parameter.group != ParameterGroup::kBias;
    ASSERT_EQ(parameter.value.grad().defined(), learns) << parameter.name;
    learning += learns ? 1 : 0;
    if (!learns) continue;
    EXPECT_GT(parameter.value.grad().abs().max().item<float>(), 0) << parameter.name;
  }
  EXPECT_GT(learning, 60);
  EXPECT_EQ(drafts.expert_loads.sum().item<double>(), 3 * 4 * 5 * 2);  // stages, blocks, top 2
}

}  // namespace
}  // namespace minke::train

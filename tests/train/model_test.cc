// The trainer's forward pass against the engine's on the same weights, its switches, its seeds and
// replicas.
#include "train/model.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string_view>
#include <utility>

#include "model/layers.h"
#include "tests/model/golden_model.h"
#include "tests/train/nano_config.h"
#include "train/indexer.h"

namespace minke::train {
namespace {

using minke::testing::Compare;
using minke::testing::Distance;
using torch::Tensor;

template <typename T>
T Must(Result<T> result) {
  CHECK(result.has_value(), result.error().message);
  return std::move(*result);
}

std::unique_ptr<Model> GoldenTwin(const minke::Model& engine, const std::string& set) {
  auto model = Must(Model::Create(engine.config(), engine.tables().engram_token_map, 1));
  const Status loaded = model->Load(minke::testing::GoldenPath(set));
  CHECK(loaded.has_value(), loaded.error().message);
  return model;
}

Tensor RowOf(const std::vector<int32_t>& tokens) {
  Tensor ids = torch::empty({1, static_cast<int64_t>(tokens.size())}, torch::kInt64);
  for (size_t i = 0; i < tokens.size(); ++i) ids[0][static_cast<int64_t>(i)] = tokens[i];
  return ids;
}

Tensor LogitsOf(const Model& model, const Tensor& ids, const ForwardOptions& options) {
  const torch::NoGradGuard no_gradient;
  const Tensor hidden = model.Forward(ids, options).hidden;
  return model.Logits(hidden.view({-1, hidden.size(2)}), options.quantization);
}

View<const float> ViewOf(const Tensor& matrix) {
  return {matrix.data_ptr<float>(), matrix.size(0), matrix.size(1)};
}

ForwardOptions Sparse(const Quantization& quantization = Quantization::None()) {
  ForwardOptions options;
  options.sparse = true;
  options.pool = true;
  options.quantization = quantization;
  return options;
}

Distance CompareWithEngine(const std::string& set, const Numerics& numerics,
                           const Quantization& quantization) {
  const auto engine = minke::testing::LoadGoldenModel(set, numerics, FastKernels());
  const std::vector<int32_t> prompt = minke::testing::GoldenPrompt(set);
  const Matrix<float> expected = minke::testing::RunTokens(*engine, prompt);
  const Tensor logits = LogitsOf(*GoldenTwin(*engine, set), RowOf(prompt), Sparse(quantization));
  return Compare(ViewOf(logits), expected.view());
}

class Engine : public ::testing::TestWithParam<const char*> {};

std::string SetName(const ::testing::TestParamInfo<const char*>& info) {
  return info.param;
}

// Float32 on both sides: what remains is the order of sums.
TEST_P(Engine, Float32) {
  const Distance distance = CompareWithEngine(GetParam(), Numerics::F32(), Quantization::None());
  EXPECT_LE(distance.max, 1e-4 * distance.reference_max);
  EXPECT_LE(distance.median, 1e-5);
}

// With quantized caches a last-bit difference now and then falls on the other side of a rounding
// step of the cache, or of a selection, and grows from there: the bulk is exact.
TEST_P(Engine, QuantizedCaches) {
  const Quantization quantization{RowPrecision::kQ4K, true, true, false, false};
  const Distance distance = CompareWithEngine(GetParam(), Numerics::F32CacheQuant(), quantization);
  EXPECT_LE(distance.median, 0.02);
  EXPECT_GE(distance.cosine_tenth, 0.99);
}

// The engine also rounds activations to bf16 between modules, which the trainer does not: 8 bits
// over tens of roundings, on random weights whose selections are near ties. The limits are those
// that the engine itself has to keep against the reference with free selection.
TEST_P(Engine, OfficialNumerics) {
  const Distance distance =
      CompareWithEngine(GetParam(), Numerics::Official(), Quantization::All());
  EXPECT_LE(distance.median, 0.4);
  EXPECT_GE(distance.cosine_tenth, 0.9);
  const Distance unquantized =
      CompareWithEngine(GetParam(), Numerics::Official(), Quantization::None());
  EXPECT_LT(distance.median, unquantized.median) << "quantizing must bring the trainer nearer";
}

INSTANTIATE_TEST_SUITE_P(GoldenSets, Engine, ::testing::Values("full_mini", "wide", "tiny_swa"),
                         SetName);

TEST(TrainModel, DecoderOnATruncatedWindowEqualsTheEngines) {
  const auto engine = minke::testing::LoadGoldenModel("wide", Numerics::F32(), FastKernels());
  ASSERT_TRUE(engine->replay_obstacle().empty());
  const std::vector<int32_t> prompt = minke::testing::GoldenPrompt("wide");
  const auto count = static_cast<int64_t>(prompt.size());
  const int64_t from = count - 40;
  Matrix<float> expected(count - from, engine->config().vocab_size);
  ThreadPool pool(1);
  Arena arena;
  auto state = engine->NewSequence();
  const ForwardRows call{
      .state = state.get(), .tokens = prompt, .logits_from = from, .decoder_from = from};
  ASSERT_TRUE(engine->Forward({&call, 1}, expected.view(), pool, arena).has_value());
  ForwardOptions options = Sparse();
  options.decoder_from = {from};
  const auto twin = GoldenTwin(*engine, "wide");
  const Tensor logits = LogitsOf(*twin, RowOf(prompt), options).slice(0, from).contiguous();
  const Distance distance = Compare(ViewOf(logits), expected.view());
  EXPECT_LE(distance.max, 1e-4 * distance.reference_max);
  const Tensor exact = LogitsOf(*twin, RowOf(prompt), Sparse()).slice(0, from).contiguous();
  EXPECT_GT(Compare(ViewOf(exact), expected.view()).max, 1e-3) << "the truncation had no effect";
}

// ---- the shape of the shipped model ----------------------------------------------------------

std::unique_ptr<Model> Nano(uint64_t seed = 1,
                            Initialisation initialisation = Initialisation::kStructured) {
  return Must(Model::Create(minke::testing::NanoConfig(), minke::testing::NanoTokenMap(), seed,
                            initialisation));
}

Tensor RandomIds(int64_t batch, int64_t tokens) {
  torch::manual_seed(4);
  return torch::randint(8, minke::testing::kNanoVocabulary, {batch, tokens}, torch::kInt64);
}

const Parameter& Find(Model& model, std::string_view name) {
  for (const Parameter& parameter : model.parameters()) {
    if (parameter.name == name) return parameter;
  }
  CHECK(false, std::string(name));
  return model.parameters().front();
}

Tensor LossOf(const Model& model, const Tensor& ids, const ForwardOptions& options) {
  const ForwardResult result = model.Forward(ids, options);
  const Tensor logits =
      model.Logits(result.hidden.view({-1, result.hidden.size(2)}), options.quantization);
  Tensor loss = torch::nn::functional::cross_entropy(logits, ids.view({-1}));
  if (result.index_loss.defined()) loss = loss + result.index_loss;
  return loss;
}

TEST(TrainModel, SameSeedSameModel) {
  const auto a = Nano(3);
  const auto b = Nano(3);
  const auto c = Nano(4);
  const Tensor ids = RandomIds(1, 96);
  const Tensor logits = LogitsOf(*a, ids, {});
  EXPECT_TRUE(torch::equal(logits, LogitsOf(*b, ids, {})));
  EXPECT_FALSE(torch::equal(logits, LogitsOf(*c, ids, {})));
}

TEST(TrainModel, ReplicaHasTheSameMemoryAndItsOwnGradients) {
  const auto model = Nano();
  const auto replica = model->Replica();
  const Tensor ids = RandomIds(2, 96);
  ForwardOptions options = Sparse(Quantization::All());
  options.distill = true;
  LossOf(*model, ids, options).backward();
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    EXPECT_EQ(model->parameters()[i].value.data_ptr(), replica->parameters()[i].value.data_ptr());
    EXPECT_FALSE(replica->parameters()[i].value.grad().defined());
  }
  LossOf(*replica, ids, options).backward();
  for (size_t i = 0; i < model->parameters().size(); ++i) {
    const Parameter& parameter = model->parameters()[i];
    const Tensor& gradient = parameter.value.grad();
    ASSERT_EQ(gradient.defined(), parameter.group != ParameterGroup::kBias) << parameter.name;
    if (!gradient.defined()) continue;
    EXPECT_TRUE(torch::equal(gradient, replica->parameters()[i].value.grad())) << parameter.name;
    EXPECT_TRUE(gradient.isfinite().all().item<bool>()) << parameter.name;
    EXPECT_GT(gradient.abs().max().item<float>(), 0) << parameter.name << " learns nothing";
  }
}

TEST(TrainModel, IndexLossReachesTheIndexersAlone) {
  const auto model = Nano();
  ForwardOptions options;
  options.distill = true;
  const ForwardResult result = model->Forward(RandomIds(1, 128), options);
  EXPECT_GT(result.index_loss.item<float>(), 0);
  result.index_loss.backward();
  for (const Parameter& parameter : model->parameters()) {
    const bool is_index = parameter.name.find(".indexer.") != std::string::npos;
    EXPECT_EQ(parameter.value.grad().defined(), is_index) << parameter.name;
  }
  ASSERT_EQ(result.index_quality.size(), 3u);
  for (const IndexQuality& quality : result.index_quality) {
    EXPECT_EQ(quality.queries, 4);  // positions 64, 80, 96, 112
    EXPECT_GT(quality.mass_recall, 0);
    EXPECT_LE(quality.mass_recall, 1);
  }
  EXPECT_EQ(result.index_quality[0].pool_recall, -1) << "layer 2 comes before the pool";
  EXPECT_EQ(result.index_quality[0].pool_topk_recall, -1);
  EXPECT_GE(result.index_quality[2].pool_recall, 0);
  // 24 blocks of 4 rows hold some of 32 rows of at most 113, and under random weights not all.
  EXPECT_GT(result.index_quality[2].pool_topk_recall, 0);
  EXPECT_LT(result.index_quality[2].pool_topk_recall, 1);
}

TEST(TrainModel, OnlyIndexersLearnWhereNothingElseIsAsked) {
  const auto model = Nano();
  const Tensor ids = RandomIds(2, 128);
  ForwardOptions options;
  options.distill = true;
  options.sparse = true;
  options.pool = true;
  options.quantization = Quantization::All();
  const Tensor hidden = model->Forward(ids, options).hidden.detach();
  options.indexers_only = true;
  options.index_sharpness = 4;
  const ForwardResult result = model->Forward(ids, options);
  EXPECT_TRUE(torch::equal(result.hidden, hidden)) << "the pass itself stays the same";
  EXPECT_FALSE(result.hidden.requires_grad());
  result.index_loss.backward();
  for (const Parameter& parameter : model->parameters()) {
    const bool is_index = parameter.name.find(".indexer.") != std::string::npos;
    ASSERT_EQ(parameter.value.grad().defined(), is_index) << parameter.name;
    if (!is_index) continue;
    EXPECT_GT(parameter.value.grad().abs().max().item<float>(), 0) << parameter.name;
  }
}

TEST(TrainModel, ListsAndPoolsMayHaveOtherSizesThanTheConfigSays) {
  ModelConfig config = minke::testing::NanoConfig();
  ForwardOptions options;
  options.distill = true;
  options.sparse = true;
  options.pool = true;
  options.index_topk = 16;
  options.candidate_topk_blocks = 8;
  const Tensor ids = RandomIds(1, 128);
  const auto run = [&](const ModelConfig& of, const ForwardOptions& with) {
    return Must(Model::Create(of, minke::testing::NanoTokenMap(), 1))->Forward(ids, with);
  };
  const ForwardResult told = run(config, options);
  const ForwardResult larger = run(config, ForwardOptions{.sparse = true, .pool = true});
  config.index_topk = std::exchange(options.index_topk, 0);
  config.candidate_topk_blocks = std::exchange(options.candidate_topk_blocks, 0);
  const ForwardResult configured = run(config, options);
  EXPECT_TRUE(torch::equal(told.hidden, configured.hidden));
  EXPECT_TRUE(torch::equal(told.index_loss, configured.index_loss));
  EXPECT_FALSE(torch::equal(told.hidden, larger.hidden));
}

// Two queries over four rows, of which the first sees two: scores are products with one head.
TEST(ListLoss, IsKlForListsOfOneRowAndForgivesListedRows) {
  IndexVectors vectors;
  vectors.ratio = 2;
  vectors.queries = torch::tensor({{{0.f, 0.f},
                                    {0.f, 0.f},
                                    {0.f, 0.f},
                                    {1.f, 0.f},
                                    {0.f, 0.f},
                                    {0.f, 0.f},
                                    {0.f, 0.f},
                                    {0.f, 2.f}}});
  vectors.weights = torch::ones({1, 8, 1});
  vectors.keys = torch::tensor({{{1.f, 0.f}, {0.f, 1.f}, {0.5f, 1.5f}, {0.f, -1.f}}});
  const std::vector<MeasuredQuery> measured = {{0, 3}, {0, 7}};
  const Tensor target = torch::tensor({{0.25f, 0.75f, 0.f, 0.f}, {0.f, 0.f, 1.f, 0.f}});
  const Tensor p0 = torch::softmax(torch::tensor({1.f, 0.f}), 0);
  const Tensor p1 = torch::softmax(torch::tensor({0.f, 2.f, 3.f, 0.f}), 0);
  const double kl = MeasuredIndexLoss(vectors, measured, target).item<double>();
  const double entropy = -(0.25 * std::log(0.25) + 0.75 * std::log(0.75)) / 2;
  EXPECT_NEAR(ListLoss(vectors, measured, target, 1).item<double>(), kl + entropy, 1e-6);
  const auto term = [](const Tensor& p) {
    const double share = p.item<double>();
    return std::log((1 + 2 * share) / (3 * share));
  };
  const double expected = (0.25 * term(p0[0]) + 0.75 * term(p0[1]) + term(p1[2])) / 2;
  EXPECT_NEAR(ListLoss(vectors, measured, target, 3).item<double>(), expected, 1e-6);
}

TEST(TrainModel, QualityOfAListThatHoldsEverythingIsOne) {
  ModelConfig config = minke::testing::NanoConfig();
  config.index_topk = 96;
  config.candidate_topk_blocks = 64;
  const auto model = Must(Model::Create(config, minke::testing::NanoTokenMap(), 1));
  ForwardOptions options;
  options.distill = true;
  for (const IndexQuality& quality : model->Forward(RandomIds(1, 96), options).index_quality) {
    EXPECT_DOUBLE_EQ(quality.top1_recall, 1);
    EXPECT_NEAR(quality.mass_recall, 1, 1e-5);
    EXPECT_EQ(quality.pool_topk_recall, quality.layer < 4 ? -1 : 1);
  }
}

// Logits of the last position after token 0 has changed, minus those before.
double Influence(const Model& model, const ForwardOptions& options) {
  const Tensor ids = RandomIds(1, 256);
  Tensor changed = ids.clone();
  changed[0][0] = 9;
  changed[0][1] = 10;
  const Tensor difference = LogitsOf(model, ids, options) - LogitsOf(model, changed, options);
  return difference[255].abs().max().item<double>();
}

TEST(TrainModel, OldTokensReachTheEndThroughCompressedRowsOnly) {
  const auto model = Nano();
  EXPECT_GT(Influence(*model, {}), 1e-3);
  ForwardOptions masked;
  masked.mask_compressed = true;
  // Six windows of 31 tokens back, and three tokens of an n-gram, do not reach token 1. What is
  // left is the order of sums, which depends on how many tokens an expert got.
  EXPECT_LE(Influence(*model, masked), 1e-5);
}

TEST(TrainModel, EngramOffIsAnEngramOfZeros) {
  const auto model = Nano();
  const Tensor ids = RandomIds(1, 64);
  ForwardOptions off;
  off.engram = false;
  const Tensor without = LogitsOf(*model, ids, off);
  EXPECT_FALSE(torch::equal(without, LogitsOf(*model, ids, {})));
  Find(*model, "layers.1.engram.embed.weight").value.detach().zero_();
  EXPECT_TRUE(torch::equal(without, LogitsOf(*model, ids, {})));
}

TEST(TrainModel, EveryPartOfQuantizationChangesTheResult) {
  const auto model = Nano();
  const Tensor ids = RandomIds(1, 128);
  const Tensor exact = LogitsOf(*model, ids, Sparse());
  for (const Quantization& part :
       {Quantization{RowPrecision::kBf16}, Quantization{RowPrecision::kQ4K},
        Quantization{RowPrecision::kHarsh}, Quantization{RowPrecision::kFloat, true},
        Quantization{RowPrecision::kFloat, false, true},
        Quantization{RowPrecision::kFloat, false, false, true},
        Quantization{RowPrecision::kFloat, false, false, false, true}}) {
    EXPECT_FALSE(torch::equal(exact, LogitsOf(*model, ids, Sparse(part))));
  }
}

TEST(TrainModel, QuantizedRowsOfABatchAreThoseAlone) {
  const auto model = Nano();
  const Tensor ids = RandomIds(3, 100);
  const Tensor together = LogitsOf(*model, ids, Sparse(Quantization::All()));
  const Tensor alone = LogitsOf(*model, ids.slice(0, 1, 2), Sparse(Quantization::All()));
  const Tensor difference = together.slice(0, 100, 200) - alone;
  EXPECT_LE(difference.abs().median().item<float>(), 1e-4);
}

// Scores of layer 0 from its weights alone: every head prefers its offset. The length of a key
// varies by a tenth between tokens, and a long one beside the offset wins now and then.
TEST(StructuredInitialisation, HeadsOfLayerZeroLookBackByTheirNumber) {
  const torch::NoGradGuard no_gradient;
  const auto model = Nano();
  const ModelConfig& config = model->config();
  const int64_t tokens = 24;
  const Tensor ids = RandomIds(1, tokens)[0];
  const auto normed = [](const Tensor& x) {
    return x * torch::rsqrt(x.square().mean(-1, true) + 1e-6);
  };
  const auto weight = [&](const char* name) {
    return Find(*model, std::string("layers.0.attn.") + name + ".weight").value;
  };
  const Tensor x = normed(Find(*model, "embed.weight").value.index({ids}));
  EXPECT_TRUE(Find(*model, "embed.weight").value.select(1, 0).eq(1).all().item<bool>());
  const Tensor k = normed(torch::matmul(x, weight("wkv").t()));
  const Tensor q = torch::matmul(normed(torch::matmul(x, weight("wq_a").t())), weight("wq_b").t());
  const std::vector<float> frequencies = WindowFrequencies(config);
  for (int64_t head = 0; head < config.num_attention_heads; ++head) {
    int64_t right = 0;
    for (int64_t t = 8; t < tokens; ++t) {
      double best = -1e30;
      int64_t best_offset = -1;
      for (int64_t s = 0; s <= t; ++s) {
        double score = 0;
        for (int64_t c = 0; c < 48; ++c) {
          score += q[t][head * 64 + c].item<double>() * k[s][c].item<double>();
        }
        for (int64_t j = 0; j < 8; ++j) {
          const double angle = static_cast<double>(t - s) * frequencies[static_cast<size_t>(j)];
          const double qa = q[t][head * 64 + 48 + 2 * j].item<double>();
          const double qb = q[t][head * 64 + 49 + 2 * j].item<double>();
          const double ka = k[s][48 + 2 * j].item<double>();
          const double kb = k[s][49 + 2 * j].item<double>();
          score += std::cos(angle) * (qa * ka + qb * kb) + std::sin(angle) * (qa * kb - qb * ka);
        }
        if (score > best) {
          best = score;
          best_offset = t - s;
        }
      }
      right += best_offset == head + 1 ? 1 : 0;
    }
    EXPECT_GE(right, 8) << "of 16 queries, head " << head;
  }
}

TEST(StructuredInitialisation, MarksWhatHoldsIt) {
  const auto model = Nano();
  EXPECT_TRUE(Find(*model, "layers.0.attn.wo_b.weight").structured);
  EXPECT_FALSE(Find(*model, "layers.1.attn.wo_b.weight").structured);
  EXPECT_TRUE(Find(*model, "layers.4.attn.compressor.wkv.weight").structured);
  const auto plain = Nano(1, Initialisation::kPlain);
  for (const Parameter& parameter : plain->parameters()) EXPECT_FALSE(parameter.structured);
}

TEST(StructuredInitialisation, RefusesAWindowShorterThanItsOffsets) {
  ModelConfig config = minke::testing::NanoConfig();
  config.sliding_window = 4;
  const auto refused = Model::Create(config, minke::testing::NanoTokenMap(), 1);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("sliding_window"), std::string::npos);
  EXPECT_TRUE(
      Model::Create(config, minke::testing::NanoTokenMap(), 1, Initialisation::kPlain).has_value());
}

TEST(TrainModel, RouterBiasMovesTowardsEvenLoads) {
  const auto model = Nano();
  const Tensor loads = torch::ones({6, 8}, torch::kFloat64);
  loads[2][3] = 100.0;
  model->UpdateRouterBias(loads, 0.5);
  const Tensor& bias = Find(*model, "layers.2.ffn.gate.bias").value;
  EXPECT_EQ(bias[3].item<float>(), -0.5f);
  EXPECT_EQ(bias[0].item<float>(), 0.5f);
  EXPECT_EQ(Find(*model, "layers.1.ffn.gate.bias").value.abs().max().item<float>(), 0);
  EXPECT_EQ(Find(*model, "layers.2.ffn.gate.bias_vl").value.abs().max().item<float>(), 0);
}

}  // namespace
}  // namespace minke::train

// Weights that are read when they are needed give the bits of weights in memory, whatever the
// budget, and trouble with the disk is an error of the call that meets it.
#include "model/weight_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/model/golden_model.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr int64_t kEverythingFits = int64_t{1} << 30;

Result<std::unique_ptr<Model>> OpenStreamed(const std::string& dir, int64_t budget_bytes,
                                            const Kernels& kernels = FastKernels()) {
  ModelConfig config = TRY(LoadConfig(dir + "/config.json"));
  std::vector<int32_t> token_map;
  if (config.has_engram()) {
    for (const int64_t id : Golden("full_mini/expected.json")["engram_token_map"].Ints()) {
      token_map.push_back(static_cast<int32_t>(id));
    }
  }
  Checkpoint checkpoint = TRY(Checkpoint::Open(dir));
  return Model::Create(std::move(config), std::move(checkpoint), std::move(token_map),
                       Numerics::Official(), kernels, budget_bytes);
}

// The budget that the error about a smaller one names.
int64_t SmallestBudget(const std::string& dir) {
  const auto model = OpenStreamed(dir, 1);
  EXPECT_FALSE(model.has_value());
  if (model) return 0;
  const std::string& message = model.error().message;
  EXPECT_NE(message.find("--weights-ram"), std::string::npos) << message;
  EXPECT_EQ(model.error().code, ErrorCode::kLimit);
  const size_t at = message.rfind("at least ");
  return at == std::string::npos ? 0 : std::atoll(message.c_str() + at + std::strlen("at least "));
}

int64_t QuarterBudget(const std::string& dir) {
  const int64_t least_bytes = SmallestBudget(dir);
  const WeightStreamStats least = (*OpenStreamed(dir, least_bytes))->stream()->stats();
  return least_bytes +
         std::max<int64_t>(0, least.expert_count / 4 - least.expert_slots) * least.expert_bytes;
}

bool EqualLogits(const Matrix<float>& a, const Matrix<float>& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.rows() * a.cols()) * 4) == 0;
}

std::vector<int32_t> SomeTokens(const std::string& set, size_t most) {
  std::vector<int32_t> tokens = GoldenPrompt(set);
  tokens.resize(std::min(tokens.size(), most));
  return tokens;
}

class StreamedSets : public ::testing::TestWithParam<const char*> {};

TEST_P(StreamedSets, SameBitsAsResident) {
  const std::string dir = GoldenPath(GetParam());
  const std::vector<int32_t> tokens = SomeTokens(GetParam(), kSanitized ? 40 : 90);
  const auto resident = LoadGoldenModel(GetParam(), Numerics::Official(), FastKernels());
  const Matrix<float> expected = RunTokens(*resident, tokens);
  for (const int64_t budget : {SmallestBudget(dir), QuarterBudget(dir), kEverythingFits}) {
    for (const int threads : {1, 2}) {
      const auto model = OpenStreamed(dir, budget);
      ASSERT_TRUE(model.has_value()) << model.error().message;
      for (const Cutting& cutting : {Cutting{.chunk = 0, .threads = threads},
                                     Cutting{.chunk = 7, .decode_from = 30, .threads = threads}}) {
        EXPECT_TRUE(EqualLogits(RunTokens(**model, tokens, cutting), expected))
            << budget << " bytes, " << threads << " threads, chunk " << cutting.chunk;
      }
      const WeightStreamStats stats = (*model)->stream()->stats();
      EXPECT_EQ(stats.budget_bytes, budget);
      EXPECT_LE(stats.dense_bytes + stats.expert_slots * stats.expert_bytes, budget);
      EXPECT_GT(stats.read_bytes, 0);
      EXPECT_LE(stats.waited_bytes, stats.read_bytes);
      if (budget == kEverythingFits) {
        EXPECT_EQ(stats.expert_slots, stats.expert_count);
        EXPECT_LE(stats.experts.misses, stats.expert_count) << "each is read once at most";
      } else {
        EXPECT_LE(stats.expert_slots, stats.expert_count / 4);
        EXPECT_GT(stats.experts.misses, stats.expert_count) << "they did not all fit";
      }
    }
  }
}

std::string StreamedSetName(const ::testing::TestParamInfo<const char*>& param) {
  return param.param;
}
INSTANTIATE_TEST_SUITE_P(Sets, StreamedSets, ::testing::Values("full_mini", "tiny_swa"),
                         StreamedSetName);

TEST(WeightStream, TheSmallestBudgetIsTheSmallest) {
  const std::string dir = GoldenPath("full_mini");
  const int64_t least = SmallestBudget(dir);
  EXPECT_TRUE(OpenStreamed(dir, least).has_value());
  EXPECT_FALSE(OpenStreamed(dir, least - 1).has_value());
}

TEST(WeightStream, RowsThatSkipTheDecoderGiveTheSameBits) {
  const std::string dir = GoldenPath("full_mini");
  const std::vector<int32_t> tokens = SomeTokens("full_mini", 60);
  const auto run = [&](const Model& model) {
    ThreadPool pool(2);
    Arena arena;
    const auto state = model.NewSequence();
    Matrix<float> logits(1, model.config().vocab_size);
    const ForwardRows call{
        .state = state.get(), .tokens = tokens, .logits_from = 59, .decoder_from = 20};
    EXPECT_TRUE(model.Forward({&call, 1}, logits.view(), pool, arena));
    return logits;
  };
  const auto resident = LoadGoldenModel("full_mini", Numerics::Official(), FastKernels());
  const auto streamed = OpenStreamed(dir, SmallestBudget(dir));
  ASSERT_TRUE(streamed.has_value());
  EXPECT_TRUE(EqualLogits(run(**streamed), run(*resident)));
}

// What is read is what is used: dense tensors and the mapping are left alone while it runs.
TEST(WeightStream, CountsHitsMissesAndPrefetches) {
  const std::string dir = GoldenPath("full_mini");
  const auto model = OpenStreamed(dir, QuarterBudget(dir));
  ASSERT_TRUE(model.has_value());
  EXPECT_EQ((*model)->stream()->stats().read_bytes, 0) << "dense weights are not counted";
  const std::vector<int32_t> tokens = SomeTokens("full_mini", 40);
  RunTokens(**model, tokens, {.chunk = 1});
  const WeightStreamStats stats = (*model)->stream()->stats();
  const ModelConfig& config = (*model)->config();
  EXPECT_EQ(
      stats.experts.hits + stats.experts.misses,
      static_cast<int64_t>(tokens.size()) * config.num_hidden_layers * config.num_experts_per_tok);
  EXPECT_GT(stats.experts.prefetch_hits, 0);
  EXPECT_GT(stats.engram_blocks.prefetch_hits, 0);
  RecordProperty("prefetched", static_cast<int>(stats.experts.prefetched));
  RecordProperty("prefetch_hits", static_cast<int>(stats.experts.prefetch_hits));
}

// A shard is cut off while the model runs: with everything mapped that would be a SIGBUS.
TEST(WeightStream, ATruncatedShardIsAnErrorOfTheCall) {
  const TempDirectory copy;
  std::filesystem::copy(GoldenPath("full_mini"), copy.path(),
                        std::filesystem::copy_options::recursive);
  const auto model = OpenStreamed(copy.path(), SmallestBudget(copy.path()));
  ASSERT_TRUE(model.has_value()) << model.error().message;
  for (const auto& entry : std::filesystem::directory_iterator(copy.path())) {
    if (entry.path().extension() != ".safetensors") continue;
    std::filesystem::resize_file(entry.path(), 8192);
  }
  const std::string directory = copy.path();
  const std::vector<int32_t> tokens = SomeTokens("full_mini", 20);
  ThreadPool pool(2);
  Arena arena;
  const auto state = (*model)->NewSequence();
  Matrix<float> logits(1, (*model)->config().vocab_size);
  const ForwardRows call{.state = state.get(), .tokens = tokens, .logits_from = 19};
  for (int attempt = 0; attempt < 2; ++attempt) {
    const Status status = (*model)->Forward({&call, 1}, logits.view(), pool, arena);
    ASSERT_FALSE(status.has_value());
    EXPECT_EQ(status.error().code, ErrorCode::kIo);
    for (const std::string_view part :
         {std::string_view(directory), std::string_view(".safetensors"),
          std::string_view("(tensor \"layers.0.")}) {
      EXPECT_NE(status.error().message.find(part), std::string::npos) << status.error().message;
    }
    ASSERT_TRUE(state->Begin(0)) << "the engine forgets what was begun";
  }
}

}  // namespace
}  // namespace minke::testing

// Weights that are read as they are needed, or copied at the start, as an engine's user meets them.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "tests/engine/engine_support.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

const std::string kNano = std::string(MINKE_SOURCE_DIR) + "/models/nano";
constexpr int64_t kWholeModel = int64_t{1} << 30;

EngineOptions StreamedOptions(int64_t weights_ram_bytes, int threads = 1) {
  EngineOptions options = Options(kNano);
  options.weights_ram_bytes = weights_ram_bytes;
  options.threads = threads;
  return options;
}

int64_t LeastWeightsRam() {
  const std::string message = OpenError(StreamedOptions(1));
  const size_t at = message.rfind("at least ");
  EXPECT_NE(at, std::string::npos) << message;
  return at == std::string::npos ? 0 : std::atoll(message.c_str() + at + std::strlen("at least "));
}

// Ids and the logits that each was drawn from.
struct DrawnAnswer {
  std::vector<int32_t> ids;
  std::vector<float> logits;
  WeightsUse weights;
};

DrawnAnswer DrawAnswer(const EngineOptions& engine_options) {
  const auto engine = Open(engine_options);
  if (engine == nullptr) return {};
  DrawnAnswer answer;
  GenerationOptions options = Greedy(24);
  options.on_token = [&](const TokenEvent& event) {
    answer.logits.insert(answer.logits.end(), event.logits.begin(), event.logits.end());
  };
  const auto session = engine->NewSession();
  const GenerationResult result = Generate(*engine, *session, Prompt(150), options);
  answer.ids = result.ids;
  answer.weights = result.weights;
  return answer;
}

TEST(StreamedWeights, TheShippedModelAnswersTheSameWithEveryBudget) {
  const DrawnAnswer resident = DrawAnswer(Options(kNano));
  EXPECT_FALSE(resident.weights.streamed);
  ASSERT_EQ(resident.ids.size(), 24u);
  const int64_t least = LeastWeightsRam();
  const WeightsUse all = Open(StreamedOptions(kWholeModel))->cache_status().weights;
  EXPECT_EQ(all.expert_slots, all.expert_count);
  for (const int threads : {1, 2}) {
    for (const int64_t budget : {least, least + (int64_t{1} << 18), kWholeModel}) {
      const DrawnAnswer streamed = DrawAnswer(StreamedOptions(budget, threads));
      EXPECT_EQ(streamed.ids, resident.ids) << budget;
      ASSERT_EQ(streamed.logits.size(), resident.logits.size());
      EXPECT_EQ(std::memcmp(streamed.logits.data(), resident.logits.data(),
                            resident.logits.size() * sizeof(float)),
                0)
          << budget << " bytes, " << threads << " threads";
      EXPECT_TRUE(streamed.weights.streamed);
      EXPECT_GT(streamed.weights.read_bytes, 0);
      if (budget == least) continue;  // every layer takes the slots of the one before
      EXPECT_GT(streamed.weights.expert_hits, 0);
      EXPECT_GT(streamed.weights.expert_prefetch_hits, 0);
    }
  }
}

TEST(StreamedWeights, TotalsAreThoseOfTheAnswer) {
  const auto engine = Open(StreamedOptions(LeastWeightsRam()));
  ASSERT_NE(engine, nullptr);
  const auto session = engine->NewSession();
  int64_t read_bytes = 0;
  for (size_t tokens : {40, 80}) {
    const GenerationResult result = Generate(*engine, *session, Prompt(tokens), Greedy(2));
    read_bytes += result.weights.read_bytes;
  }
  EXPECT_EQ(engine->cache_status().weights.read_bytes, read_bytes);
}

// The error is that of the answer; the engine goes on, and so does the next answer's error.
TEST(StreamedWeights, ADamagedDiskEndsTheAnswerAlone) {
  const TempDirectory copy;
  std::filesystem::copy(kNano, copy.path());
  EngineOptions options = StreamedOptions(LeastWeightsRam());
  options.model_dir = copy.path();
  const auto engine = Open(options);
  ASSERT_NE(engine, nullptr);
  const auto session = engine->NewSession();
  EXPECT_TRUE(engine->Generate(*session, Prompt(20), Greedy(2)).has_value());
  std::filesystem::resize_file(copy.Path("model.safetensors"), 4096);
  for (int attempt = 0; attempt < 2; ++attempt) {
    const auto result = engine->Generate(*session, Prompt(60), Greedy(2));
    ASSERT_FALSE(result.has_value());
    EXPECT_EQ(result.error().code, ErrorCode::kIo);
    EXPECT_NE(result.error().message.find("model.safetensors"), std::string::npos)
        << result.error().message;
  }
}

TEST(CopiedWeights, TheShippedModelAnswersTheSame) {
  const DrawnAnswer resident = DrawAnswer(Options(kNano));
  EngineOptions options = Options(kNano);
  options.threads = 2;
  options.pin_threads = true;
  const auto engine = Open(options);
  ASSERT_NE(engine, nullptr);
  uint64_t copied = 0;
  ASSERT_TRUE(engine->CopyWeights([&](uint64_t done, uint64_t) { copied = done; }));
  EXPECT_GT(copied, 0u);
  const auto session = engine->NewSession();
  EXPECT_EQ(Generate(*engine, *session, Prompt(150), Greedy(24)).ids, resident.ids);
}

TEST(CopiedWeights, AreNotForWeightsThatAreReadAsTheyAreNeeded) {
  const auto engine = Open(StreamedOptions(kWholeModel));
  ASSERT_NE(engine, nullptr);
  const Status copied = engine->CopyWeights({});
  ASSERT_FALSE(copied);
  EXPECT_NE(copied.error().message.find("--weights-ram"), std::string::npos);
}

}  // namespace
}  // namespace minke::testing

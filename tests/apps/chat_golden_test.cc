// tests/golden/chat end to end: messages to prompt, ids, last logits and greedy continuation. All
// cases through the library, some through the real program.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/json.h"
#include "engine/engine.h"
#include "tests/apps/process.h"
#include "tests/support/golden.h"

namespace minke::testing {
namespace {

constexpr size_t kCaseCount = 32;
constexpr size_t kSureTokensF32 = 752;  // tests/golden/README.md
constexpr double kLogitDifferenceMax = 2e-4;

// The request of a case as a messages file has it. The cases were encoded by the official encoder,
// which drops the reasoning of earlier turns unless told otherwise.
Json Request(const Json& golden_case) {
  Json request;
  request.Set("messages", *golden_case.Find("messages"));
  request.Set("thinking_mode", *golden_case.Find("thinking_mode"));
  request.Set("reasoning_effort", *golden_case.Find("reasoning_effort"));
  request.Set("drop_thinking", true);
  return request;
}

struct Answer {
  std::string prompt;
  std::vector<int32_t> prompt_ids;
  std::vector<int32_t> ids;
  std::vector<float> last_logits;  // after the last prompt token
};

Answer AskLibrary(const Engine& engine, const Json& golden_case, int64_t max_tokens) {
  Answer answer;
  const ChatPrompt prompt =
      engine.EncodeChat(DumpJson(Request(golden_case), JsonStyle::kCompact), "case", {}).value();
  answer.prompt = prompt.text;
  answer.prompt_ids = prompt.ids;
  GenerationOptions options;
  options.max_tokens = max_tokens;
  options.ignore_eos = true;
  options.on_token = [&](const TokenEvent& event) {
    if (answer.last_logits.empty()) {
      answer.last_logits.assign(event.logits.begin(), event.logits.end());
    }
  };
  answer.ids = engine.Generate(*engine.NewSession(), prompt.ids, options).value().ids;
  return answer;
}

Answer AskProgram(const Json& golden_case, int64_t max_tokens, const std::string& numerics,
                  const std::string& kernels) {
  const TemporaryFolder folder;
  const std::string messages =
      folder.Write("messages.json", DumpJson(Request(golden_case), JsonStyle::kCompact));
  const std::string logits = folder.Path("logits.bin");
  const Finished run =
      RunMinke({"generate", "--model", GoldenPath("chat"), "--messages", messages, "--numerics",
                numerics, "--max-tokens", std::to_string(max_tokens), "--ignore-eos", "--json",
                "--threads", "1", "--kernels", kernels, "--logits-out", logits});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const Json json = ParseJson(run.out, "output").value();
  Answer answer;
  answer.prompt = json.Find("prompt")->as_string();
  answer.prompt_ids = GoldenIds(*json.Find("prompt_ids"));
  answer.ids = GoldenIds(*json.Find("ids"));
  const std::string bytes = TemporaryFolder::Read(logits);
  answer.last_logits.resize(512);
  EXPECT_EQ(bytes.size(), static_cast<size_t>(max_tokens) * 512 * sizeof(float));
  std::memcpy(answer.last_logits.data(), bytes.data(), std::min(bytes.size(), 512 * sizeof(float)));
  return answer;
}

// Checks prompt, ids and the sure part of the continuation; returns how many tokens that is.
size_t CheckAnswer(const Json& golden_case, const Answer& answer, const std::string& suffix) {
  EXPECT_EQ(answer.prompt, golden_case.Find("prompt")->as_string());
  EXPECT_EQ(answer.prompt_ids, GoldenIds(*golden_case.Find("prompt_ids")));
  const std::vector<int32_t> expected = GoldenIds(*golden_case.Find("greedy_ids" + suffix));
  const auto sure = static_cast<size_t>(golden_case.Find("sure_prefix" + suffix)->as_int());
  EXPECT_LE(sure, expected.size());
  EXPECT_GE(answer.ids.size(), sure);
  for (size_t i = 0; i < std::min(sure, answer.ids.size()); ++i) {
    EXPECT_EQ(answer.ids[i], expected[i]) << "token " << i;
  }
  return sure;
}

double MaxDifference(const std::vector<float>& logits, const float* expected) {
  double difference = 0;
  for (size_t i = 0; i < logits.size(); ++i) {
    difference = std::max(difference, std::fabs(static_cast<double>(logits[i]) - expected[i]));
  }
  return difference;
}

std::unique_ptr<Engine> OpenChat(NumericMode numerics) {
  EngineOptions options;
  options.model_dir = GoldenPath("chat");
  options.threads = 1;
  options.numerics = numerics;
  options.kernels = KernelChoice::kFast;  // the same bits as the twins, in a fraction of the time
  return Engine::Open(options).value();
}

TEST(ChatGolden, Float32ReproducesEverySureToken) {
  const Json golden = GoldenJson("chat/case.json");
  const GoldenMatrix logits = GoldenLogits("chat", "last_logits_f32");
  const JsonArray& cases = golden.Find("cases")->as_array();
  ASSERT_EQ(cases.size(), kCaseCount);
  const std::unique_ptr<Engine> engine = OpenChat(NumericMode::kF32);
  size_t sure = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    const Answer answer = AskLibrary(*engine, cases[i], 24);
    sure += CheckAnswer(cases[i], answer, "_f32");
    ASSERT_EQ(answer.last_logits.size(), static_cast<size_t>(logits.cols));
    const float* expected = logits.Row(static_cast<int64_t>(i));
    EXPECT_GT(MaxDifference(std::vector<float>(answer.last_logits.size(), 0), expected), 1.0);
    EXPECT_LT(MaxDifference(answer.last_logits, expected), kLogitDifferenceMax);
  }
  EXPECT_EQ(sure, kSureTokensF32);
}

TEST(ChatGolden, OfficialNumericsReproduceTheSurePrefixes) {
  const Json golden = GoldenJson("chat/case.json");
  const std::unique_ptr<Engine> engine = OpenChat(NumericMode::kOfficial);
  size_t sure = 0;
  for (const Json& golden_case : golden.Find("cases")->as_array()) {
    sure += CheckAnswer(golden_case, AskLibrary(*engine, golden_case, 20), "");
  }
  EXPECT_GT(sure, 0u);
}

TEST(ChatGolden, TheProgramReproducesEverySureTokenInFloat32) {
  const Json golden = GoldenJson("chat/case.json");
  const GoldenMatrix logits = GoldenLogits("chat", "last_logits_f32");
  const JsonArray& cases = golden.Find("cases")->as_array();
  size_t sure = 0;
  for (size_t i = 0; i < cases.size(); ++i) {
    SCOPED_TRACE("case " + std::to_string(i));
    // The twins, which are the default of float32, take their time: every tenth case.
    const Answer answer = AskProgram(cases[i], 24, "f32", i % 10 == 1 ? "default" : "fast");
    sure += CheckAnswer(cases[i], answer, "_f32");
    EXPECT_LT(MaxDifference(answer.last_logits, logits.Row(static_cast<int64_t>(i))),
              kLogitDifferenceMax);
  }
  EXPECT_EQ(sure, kSureTokensF32);
}

TEST(ChatGolden, TheProgramReproducesTheSurePrefixesOfOfficialNumerics) {
  const Json golden = GoldenJson("chat/case.json");
  size_t sure = 0;
  for (const Json& golden_case : golden.Find("cases")->as_array()) {
    const int64_t length = golden_case.Find("sure_prefix")->as_int();
    if (length < 2) continue;
    sure += CheckAnswer(golden_case, AskProgram(golden_case, length, "official", "default"), "");
  }
  EXPECT_GT(sure, 10u);
}

}  // namespace
}  // namespace minke::testing

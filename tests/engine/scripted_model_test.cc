// The scripted stand-in for the model, in the real engine and the real service.
#include "tests/support/scripted_model.h"

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/service_support.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr const char* kCall =
    "I look it up.</think>\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"find\">\n"
    "<｜DSML｜ parameter name=\"what\" string=\"true\">wörld</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>";

std::unique_ptr<ScriptedModel> Scripted() {
  ScriptedModelOptions options;
  options.scripts = {{"<tool_result>", "It came.</think>The answer is 42."},
                     {"find", kCall},
                     {"", "Hm.</think>Hello."}};
  Result<std::unique_ptr<ScriptedModel>> model = ScriptedModel::Create(kChatModel, options);
  EXPECT_TRUE(model.has_value()) << model.error().message;
  return std::move(model).value();
}

std::string Ask(const Engine& engine, const std::string& messages, bool thinking,
                GenerationResult* result = nullptr) {
  const auto prompt = engine.EncodeChat(
      messages, "test",
      {.thinking = thinking, .effort = "", .drop_thinking = false, .context_messages = 0});
  EXPECT_TRUE(prompt.has_value()) << prompt.error().message;
  GenerationOptions options;
  options.max_tokens = 500;
  GenerationResult made = Generate(engine, *engine.NewSession(), prompt->ids, options);
  EXPECT_EQ(made.finish_reason, FinishReason::kStop);
  if (result != nullptr) *result = made;
  return made.text;
}

TEST(ScriptedModel, WritesItsTextToTheByte) {
  const auto model = Scripted();
  EngineOptions options = Options();
  options.forward = model->function();
  const auto engine = Open(options);
  const std::string user = R"([{"role":"user","content":"please find it"}])";
  EXPECT_EQ(Ask(*engine, user, true), kCall);
  GenerationResult result;
  const std::string hello = R"([{"role":"user","content":"hi"}])";
  EXPECT_EQ(Ask(*engine, hello, true, &result), "Hm.</think>Hello.");
  EXPECT_EQ(result.reasoning, "Hm.");
  EXPECT_EQ(result.answer, "Hello.");
  EXPECT_EQ(Ask(*engine, hello, false), "Hello.");
  const std::string tool =
      R"([{"role":"user","content":"please find it"},
          {"role":"assistant","content":"","reasoning_content":"I look it up.","tool_calls":[
            {"id":"1","type":"function","function":{"name":"find","arguments":"{}"}}]},
          {"role":"tool","tool_call_id":"1","content":"42"}])";
  EXPECT_EQ(Ask(*engine, tool, true), "It came.</think>The answer is 42.");
  // Sent again, it is cached to its last token.
  EXPECT_EQ(Ask(*engine, tool, true, &result), "It came.</think>The answer is 42.");
  EXPECT_EQ(result.cache.computed_tokens, 1);
}

TEST(ScriptedModel, SharesNothingOnDiskWithTheModel) {
  const TempDirectory disk;
  const auto model = Scripted();
  EngineOptions options = Options();
  options.cache.disk_dir = disk.path();
  {
    const auto engine = Open(options);
    Generate(*engine, *engine->NewSession(), Prompt(300), Greedy(1));
  }
  options.forward = model->function();
  const auto engine = Open(options);
  const GenerationResult result = Generate(*engine, *engine->NewSession(), Prompt(300), Greedy(1));
  EXPECT_EQ(result.cache.cached_tokens, 0);
  EXPECT_EQ(result.cache.reason, "other_model");
}

TEST(ScriptedModel, GoesOnAfterItWasPushedOut) {
  const auto model = Scripted();
  EngineOptions engine_options = Options();
  engine_options.forward = model->function();
  ServiceOptions options;
  options.running_max = 1;
  std::vector<Answer> answers(3);
  const auto service = StartService(engine_options, options);
  const auto prompt =
      service->engine().EncodeChat(R"([{"role":"user","content":"please find it"}])", "test", {});
  ASSERT_TRUE(prompt.has_value());
  const auto request = [&](int priority) {
    ServiceRequest made;
    made.prompt = prompt->ids;
    made.priority = priority;
    return made;
  };
  for (size_t i = 0; i < 2; ++i) {
    answers[i].on_token = [&, i, seen = 0](const ServiceToken&) mutable {
      if (++seen == 5) Submit(*service, request(static_cast<int>(i) + 1), answers[i + 1]);
      return AnswerVerdict::kGoOn;
    };
  }
  Submit(*service, request(0), answers[0]);
  for (Answer& answer : answers) {
    EXPECT_EQ(answer.Value().finish_reason, FinishReason::kStop);
    std::vector<int32_t> ids = answer.ids();
    ids.pop_back();
    EXPECT_EQ(service->engine().Detokenize(ids).value(), kCall);
  }
  ASSERT_TRUE(service->WaitUntilIdle(60));
  EXPECT_EQ(service->status().preemptions, 2);
}

}  // namespace
}  // namespace minke::testing

// The commands as a user meets them: help, exit codes, errors, JSON.
#include <sys/wait.h>

#include <algorithm>
#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/apps/process.h"
#include "tests/support/golden.h"

namespace minke::testing {
namespace {

Json Output(const Finished& run) {
  EXPECT_EQ(run.exit_code, 0) << run.err;
  Result<Json> json = ParseJson(run.out, "output");
  EXPECT_TRUE(json.has_value()) << run.out;
  return json.value_or(Json());
}

TEST(Program, SaysItsVersion) {
  const Finished run = RunMinke({"--version"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_TRUE(run.out.starts_with("minke ")) << run.out;
}

TEST(Program, OutputThatCannotBeWrittenIsAnError) {
  const TemporaryFolder folder;
  const std::string err = folder.Path("err");
  for (const std::string& arguments :
       {std::string("--version"), "inspect --json --model " + kMiniModel}) {
    const std::string line =
        std::string(MINKE_BINARY_DIR) + "/minke " + arguments + " > /dev/full 2> " + err;
    const int status = std::system(line.c_str());
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << line << ": " << status;
    EXPECT_NE(TemporaryFolder::Read(err).find("standard output"), std::string::npos);
  }
}

TEST(Program, EveryCommandTeaches) {
  for (const char* command : {"generate", "chat", "tokenize", "inspect", "logits"}) {
    const Finished run = RunMinke({command, "--help"});
    EXPECT_EQ(run.exit_code, 0);
    EXPECT_EQ(run.err, "");
    EXPECT_NE(run.out.find("--model DIR"), std::string::npos) << command;
    EXPECT_NE(run.out.find(std::string("Examples:\n  minke ") + command), std::string::npos);
    size_t begin = 0;
    while (begin < run.out.size()) {
      const size_t end = std::min(run.out.find('\n', begin), run.out.size());
      EXPECT_LE(end - begin, 100u) << run.out.substr(begin, end - begin);
      begin = end + 1;
    }
  }
  const Finished top = RunMinke({"--help"});
  EXPECT_EQ(top.exit_code, 0);
  EXPECT_NE(top.out.find("logits"), std::string::npos);
}

TEST(Program, WrongUseExitsWithTwoAndTheWayOut) {
  const std::vector<std::vector<std::string>> wrong = {
      {"nonsense"},
      {"generate"},
      {"generate", "--prompt", "x", "--messages", "y"},
      {"generate", "--raw"},
      {"generate", "--prompt", "x", "--temperature", "-1"},
      {"generate", "--prompt", "x", "--temperature", "hot"},
      {"generate", "--prompt", "x", "--top-p", "0"},
      {"generate", "--prompt", "x", "--threads", "0"},
      {"generate", "--prompt", "x", "--thinking", "maybe"},
      {"generate", "--messages", "x", "--system", "y"},
      {"chat", "--unknown-flag"},
      {"tokenize", "text", "--file", "f"},
      {"inspect", "--model", "a", "--config", "b"},
      {"logits"}};
  for (const std::vector<std::string>& arguments : wrong) {
    const Finished run = RunMinke(arguments);
    EXPECT_EQ(run.exit_code, 2) << arguments[0] << ": " << run.err;
    EXPECT_TRUE(run.err.starts_with("minke: error: ")) << run.err;
    EXPECT_NE(run.err.find("--help"), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
  EXPECT_EQ(RunMinke({}).exit_code, 2);
}

TEST(Program, AWrongWordIsNamedWithTheHelpOfItsOwnCommand) {
  const struct {
    std::vector<std::string> arguments;
    const char* says;
  } cases[] = {
      {{"foo"}, "There is no command foo (minke --help "},
      {{"cache", "foo"}, "There is no command foo (minke cache --help "},
      {{"--foo"}, "not expected: --foo (minke --help "},
      {{"cache", "gc", "--foo"}, "not expected: --foo (minke cache gc --help "},
      {{"cache", "gc"}, "--kv-disk is required (minke cache gc --help "},
      {{"cache", "ls", "--kv-disk", "d", "--limit", "-1"}, "(minke cache ls --help "},
      {{"eval", "perplexity", "--foo"}, "not expected: --foo (minke eval perplexity --help "},
      {{"chat", "--foo"}, "not expected: --foo (minke chat --help "}};
  for (const auto& wrong : cases) {
    const Finished run = RunMinke(wrong.arguments);
    EXPECT_EQ(run.exit_code, 2) << wrong.says;
    EXPECT_NE(run.err.find(wrong.says), std::string::npos) << run.err;
  }
}

TEST(Program, WorkThatFailsExitsWithOneAndASentence) {
  const TemporaryFolder folder;
  const std::vector<std::vector<std::string>> failing = {
      {"generate", "--model", "/nonexistent", "--prompt", "x"},
      {"chat", "--model", "/nonexistent"},
      {"tokenize", "--model", "/nonexistent", "x"},
      {"inspect", "--model", "/nonexistent"},
      {"inspect", "--config", "/nonexistent/config.json"},
      {"generate", "--model", kMiniModel, "--messages", "/nonexistent.json"},
      {"generate", "--model", kMiniModel, "--messages", folder.Write("bad.json", "[")},
      {"generate", "--model", kMiniModel, "--messages", folder.Write("empty.json", "[]")},
      {"generate", "--model", kMiniModel, "--messages",
       folder.Write("role.json", R"([{"role": 1}])")},
      {"generate", "--model", kMiniModel, "--prompt", "x", "--effort", "101"},
      {"generate", "--model", kMiniModel, "--prompt", "\xff"},
      {"generate", "--model", kMiniModel, "--prompt", "x", "--context", "10"},
      {"generate", "--model", kMiniModel, "--prompt", "x", "--stop", ""},
      {"generate", "--model", kMiniModel, "--prompt", "x", "-n", "1", "--logits-out",
       "/nonexistent/l"},
      {"tokenize", "--model", kMiniModel, "--decode", "1 2 600"},
      {"tokenize", "--model", kMiniModel, "--file", "/nonexistent"}};
  for (const std::vector<std::string>& arguments : failing) {
    const Finished run = RunMinke(arguments);
    EXPECT_EQ(run.exit_code, 1) << arguments[0] << " " << arguments.back();
    const size_t error = run.err.find("minke: error: ");
    ASSERT_NE(error, std::string::npos) << run.err;
    EXPECT_EQ(std::count(run.err.begin() + static_cast<std::ptrdiff_t>(error), run.err.end(), '\n'),
              1)
        << run.err;
  }
}

TEST(Program, FindsTheModelByFlagThenVariable) {
  const std::vector<std::string> arguments = {"tokenize", "x"};
  EXPECT_EQ(RunMinke(arguments, "", {"MINKE_MODEL=" + kMiniModel}).exit_code, 0);
  EXPECT_EQ(RunMinke(arguments, "", {"MINKE_MODEL=/nonexistent"}).exit_code, 1);
  EXPECT_EQ(RunMinke({"tokenize", "--model", kMiniModel, "x"}, "", {"MINKE_MODEL=/nonexistent"})
                .exit_code,
            0);
}

TEST(GenerateCommand, JsonHasEveryPart) {
  const Json json = Output(RunMinke({"generate", "--model", kMiniModel, "--prompt", "Hi", "--json",
                                     "--max-tokens", "6", "--logprobs", "2", "--seed", "11",
                                     "--temperature", "1", "--ignore-eos", "--threads", "1"}));
  EXPECT_TRUE(json.Find("random_weights")->as_bool());
  EXPECT_EQ(json.Find("seed")->as_int(), 11);
  EXPECT_EQ(json.Find("ids")->as_array().size(), 6u);
  EXPECT_EQ(json.Find("prompt_ids")->as_array().front().as_int(), 0);
  EXPECT_NE(json.Find("prompt")->as_string().find("Hi"), std::string::npos);
  EXPECT_EQ(json.Find("finish_reason")->as_string(), "length");
  EXPECT_TRUE(json.Find("content")->is_string());
  EXPECT_TRUE(json.Find("reasoning_content")->is_string());
  const Json& usage = *json.Find("usage");
  EXPECT_EQ(usage.Find("completion_tokens")->as_int(), 6);
  EXPECT_EQ(usage.Find("total_tokens")->as_int(), usage.Find("prompt_tokens")->as_int() + 6);
  EXPECT_EQ(json.Find("cache")->Find("bytes_per_token")->as_double(), 105.0);
  EXPECT_GT(json.Find("timings")->Find("prefill_seconds")->as_double(), 0.0);
  const JsonArray& logprobs = json.Find("logprobs")->as_array();
  ASSERT_EQ(logprobs.size(), 6u);
  EXPECT_EQ(logprobs[3].Find("top_logprobs")->as_array().size(), 2u);
  EXPECT_LE(logprobs[3].Find("logprob")->as_double(), 0.0);
}

TEST(GenerateCommand, ASeedRepeatsAnAnswer) {
  const auto ids = [](const char* seed, const char* threads) {
    const Json json = Output(RunMinke(
        {"generate", "--model", kMiniModel, "--prompt", "Hi", "--json", "--max-tokens", "12",
         "--seed", seed, "--temperature", "1", "--ignore-eos", "--threads", threads}));
    return DumpJson(*json.Find("ids"), JsonStyle::kCompact);
  };
  EXPECT_EQ(ids("7", "1"), ids("7", "2"));
  EXPECT_NE(ids("7", "1"), ids("8", "1"));
}

TEST(GenerateCommand, StreamsTextAndSaysFigures) {
  const Finished run =
      RunMinke({"generate", "--model", kMiniModel, "--prompt", "Why?", "--max-tokens", "40",
                "--seed", "1", "--temperature", "1", "--stats"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_TRUE(run.out.starts_with("Thinking:\n")) << run.out;
  EXPECT_NE(run.err.find("random"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("tokens/s"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("105 bytes per token"), std::string::npos) << run.err;
}

TEST(GenerateCommand, ReadsMessagesFromStandardInput) {
  const char* messages = R"({"messages": [{"role": "user", "content": "Hi"}],
                             "thinking_mode": "chat"})";
  const Json json = Output(RunMinke(
      {"generate", "--model", kMiniModel, "--messages", "-", "--json", "--max-tokens", "1"},
      messages));
  EXPECT_EQ(json.Find("prompt")->as_string(),
            "<｜begin▁of▁sentence｜><｜User｜>Hi<｜Assistant｜></think>");
}

TEST(GenerateCommand, RawContinuesAText) {
  const Json json = Output(RunMinke({"generate", "--model", kMiniModel, "--raw", "--prompt", "Once",
                                     "--json", "--max-tokens", "3", "--ignore-eos"}));
  EXPECT_EQ(json.Find("prompt")->as_string(), "Once");
  EXPECT_EQ(json.Find("prompt_ids")->as_array().front().as_int(), 0);
  EXPECT_EQ(json.Find("content"), nullptr);
}

TEST(TokenizeCommand, GoesBothWays) {
  const std::string text = "Hello, wörld! <｜User｜>";
  const Finished ids = RunMinke({"tokenize", "--model", kMiniModel, text});
  EXPECT_EQ(ids.exit_code, 0) << ids.err;
  EXPECT_EQ(RunMinke({"tokenize", "--model", kMiniModel, "--decode", ids.out}).out, text + "\n");
  EXPECT_EQ(RunMinke({"tokenize", "--model", kMiniModel}, text).out, ids.out);
  const Json json = Output(RunMinke({"tokenize", "--model", kMiniModel, "--json", text}));
  EXPECT_EQ(json.Find("text")->as_string(), text);
  EXPECT_EQ(json.Find("count")->as_int(),
            static_cast<int64_t>(json.Find("ids")->as_array().size()));
  const TemporaryFolder folder;
  EXPECT_EQ(RunMinke({"tokenize", "--model", kMiniModel, "--file", folder.Write("t", text)}).out,
            ids.out);
  EXPECT_EQ(
      RunMinke({"tokenize", "--model", kMiniModel, "--decode", folder.Write("i", ids.out)}).out,
      text + "\n");
}

TEST(TokenizeCommand, EncodesAGoldenChat) {
  const Json golden = GoldenJson("chat/case.json");
  const Json& golden_case = golden.Find("cases")->as_array().front();
  const TemporaryFolder folder;
  const std::string file =
      folder.Write("m.json", DumpJson(*golden_case.Find("messages"), JsonStyle::kCompact));
  const Json json = Output(
      RunMinke({"tokenize", "--model", kMiniModel, "--chat", file, "--thinking", "off", "--json"}));
  EXPECT_EQ(GoldenIds(*json.Find("ids")), GoldenIds(*golden_case.Find("prompt_ids")));
  EXPECT_EQ(json.Find("text")->as_string(), golden_case.Find("prompt")->as_string());
}

TEST(InspectCommand, ComputesTheReleasedFigures) {
  const Json json =
      Output(RunMinke({"inspect", "--config", GoldenPath("released/config.json"), "--json"}));
  EXPECT_EQ(json.Find("tensors")->as_int(), 96085);
  EXPECT_EQ(json.Find("tensor_bytes")->as_int(), 510286023000);
  EXPECT_EQ(json.Find("parameters")->Find("total")->as_int(), 763205315794);
  EXPECT_EQ(json.Find("kv_bytes_per_token")->as_double(), 890.0);
  EXPECT_EQ(json.Find("window_state_bytes")->as_int(), 2703360);
  EXPECT_EQ(json.Find("layers")->as_array()[2].Find("mode")->as_string(), "Full");
}

TEST(InspectCommand, ReadsACheckpoint) {
  const Finished run = RunMinke({"inspect", "--model", kMiniModel});
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("Reindex"), std::string::npos);
}

}  // namespace
}  // namespace minke::testing

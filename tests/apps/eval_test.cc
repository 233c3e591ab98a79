// minke eval in processes of its own, on random weights: what it writes, and what its exit status
// says.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "apps/commands.h"
#include "checkpoint/safetensors.h"
#include "core/json.h"
#include "tests/apps/process.h"

namespace minke::testing {
namespace {

const std::string kMini = std::string(MINKE_SOURCE_DIR) + "/models/mini";

Finished Eval(std::vector<std::string> arguments) {
  arguments.insert(arguments.begin(), "eval");
  arguments.insert(arguments.end(), {"--model", kMini, "--threads", "1"});
  return RunMinke(arguments);
}

Finished EvalRecall(std::vector<std::string> more) {
  std::vector<std::string> arguments = {"recall", "--cases", "2", "--lengths", "400"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return Eval(arguments);
}

TEST(EvalRecallCommand, WritesSharesByLengthAndDistance) {
  const TemporaryFolder folder;
  const std::string plot = folder.Path("recall.svg");
  const Finished run = EvalRecall({"--json", "--plot", plot});
  ASSERT_EQ(run.exit_code, kExitSuccess) << run.err;
  const Json report = ParseJson(run.out, "output").value();
  for (const char* key : {"results", "unseen_keys", "unseen_phrasing", "word_values"}) {
    const JsonArray& results = report.Find(key)->as_array();
    ASSERT_GE(results.size(), 2U) << key;
    const Json& whole = results[0];
    EXPECT_EQ(whole.Find("length")->as_int(), 400);
    EXPECT_TRUE(whole.Find("distance")->is_null());
    EXPECT_EQ(whole.Find("digits_exact")->as_double(), 0);  // the weights are random
    EXPECT_EQ(whole.Find("answer_exact")->as_double(), 0);
    EXPECT_EQ(whole.Find("cases")->as_int(), key == std::string("results") ? 2 : 1);
    int64_t parts = 0;
    for (size_t i = 1; i < results.size(); ++i) {
      EXPECT_GT(results[i].Find("distance")->as_int(), 0);
      EXPECT_LE(results[i].Find("distance")->as_int(), 512);
      parts += results[i].Find("cases")->as_int();
    }
    EXPECT_EQ(parts, whole.Find("cases")->as_int());
  }
  EXPECT_TRUE(report.Find("random_weights")->as_bool());
  EXPECT_EQ(report.Find("filler")->as_string(), "made-up sentences");
  const std::string svg = TemporaryFolder::Read(plot);
  EXPECT_EQ(svg.find("<svg "), 0U);
  EXPECT_NE(svg.find("unseen nouns"), std::string::npos);
}

TEST(EvalRecallCommand, SaysTheSameForASeed) {
  const auto results = [](const std::vector<std::string>& more) {
    const Finished run = EvalRecall(more);
    EXPECT_EQ(run.exit_code, kExitSuccess) << run.err;
    const size_t seconds = run.out.rfind("Text between");
    return run.out.substr(0, seconds);
  };
  const std::string first = results({"--seed", "3"});
  EXPECT_NE(first.find("distance"), std::string::npos);
  EXPECT_EQ(first, results({"--seed", "3"}));
  EXPECT_NE(first, results({"--seed", "4"}));
}

TEST(EvalRecallCommand, ExitStatusSaysWhetherItIsGoodEnough) {
  EXPECT_EQ(EvalRecall({"--require", "400=0"}).exit_code, kExitSuccess);
  const Finished low = EvalRecall({"--require", "400=0.5"});
  EXPECT_EQ(low.exit_code, kExitFailure);
  EXPECT_NE(low.err.find("At 400 tokens 0.0 % of 2 answers"), std::string::npos) << low.err;
  EXPECT_NE(low.out.find("digits"), std::string::npos);
}

TEST(EvalRecallCommand, TakesAFileBetweenTheFacts) {
  const TemporaryFolder folder;
  const std::string filler = folder.Write("book.txt", "A sentence of the book. Another one.\n");
  const Finished run = EvalRecall({"--filler", filler, "--thinking", "on", "--questions", "1"});
  EXPECT_EQ(run.exit_code, kExitSuccess) << run.err;
  EXPECT_NE(run.out.find("book.txt"), std::string::npos);
}

TEST(EvalRecallCommand, HostileFlags) {
  const TemporaryFolder folder;
  const std::string empty = folder.Write("empty.txt", "\n\n");
  const struct {
    std::vector<std::string> flags;
    int exit_code;
    const char* says;
  } cases[] = {
      {{"--require", "400"}, kExitUsage, "--require takes LENGTH=SHARE"},
      {{"--require", "400=1.5"}, kExitUsage, "\"400=1.5\""},
      {{"--require", "400=nan"}, kExitUsage, "\"400=nan\""},
      {{"--require", "=0.5"}, kExitUsage, "\"=0.5\""},
      {{"--require", "512=0.5"}, kExitUsage, "which --lengths does not have"},
      {{"--require", "400=0.5,400=0.6"}, kExitUsage, "twice"},
      {{"--lengths", "127"}, kExitUsage, "--lengths"},
      {{"--lengths", "x"}, kExitUsage, "--lengths"},
      {{"--cases", "0"}, kExitUsage, "--cases"},
      {{"--questions", "0"}, kExitUsage, "--questions"},
      {{"--thinking", "maybe"}, kExitUsage, "--thinking"},
      {{"--prefill", "half"}, kExitUsage, "--prefill"},
      {{"--filler", ""}, kExitUsage, "--filler"},
      {{"--filler", empty}, kExitFailure, "has no text in it"},
      {{"--filler", folder.Path("none.txt")}, kExitFailure, "none.txt"},
      {{"--plot", folder.Path("no/where.svg")}, kExitFailure, "where.svg"},
      {{"--plot", folder.Path(".")}, kExitFailure, "is a folder"},
      {{"--lengths", "400,500,400"}, kExitFailure, "400 twice"},
      // The mini tokenizer takes more than 128 tokens for three facts.
      {{"--lengths", "128"}, kExitFailure, "which is more than the 128 asked for"},
  };
  for (const auto& hostile : cases) {
    const Finished run = EvalRecall(hostile.flags);
    EXPECT_EQ(run.exit_code, hostile.exit_code) << hostile.says << run.err;
    EXPECT_NE(run.err.find(hostile.says), std::string::npos) << run.err;
  }
}

TEST(EvalPerplexityCommand, CountsTokensBytesAndWindows) {
  const TemporaryFolder folder;
  const std::string text(100, 'x');
  const std::string file = folder.Write("text.txt", "\n" + text + "\n\f\n" + text + "\n");
  const Finished run = Eval({"perplexity", "--file", file, "--json", "--window", "64"});
  ASSERT_EQ(run.exit_code, kExitSuccess) << run.err;
  const Json report = ParseJson(run.out, "output").value();
  EXPECT_EQ(report.Find("bytes")->as_int(), 200);
  EXPECT_EQ(report.Find("documents")->as_int(), 2);
  const int64_t tokens = report.Find("tokens")->as_int();
  EXPECT_EQ(report.Find("windows")->as_int(), 2 * ((tokens / 2 + 63) / 64));
  const double nats = report.Find("nats_per_token")->as_double();
  EXPECT_GT(nats, 0);
  EXPECT_NEAR(report.Find("bits_per_byte")->as_double(),
              nats * static_cast<double>(tokens) / 200 / std::log(2.0), 1e-9);
  EXPECT_NEAR(report.Find("perplexity")->as_double(), std::exp(nats), 1e-6 * std::exp(nats));
}

TEST(EvalPerplexityCommand, RefusesBytesThatAreNoTextAndSaysWhere) {
  const TemporaryFolder folder;
  const std::string text = "Grüße, 你好.\n";
  const std::string file = folder.Write("image.png", text + "\xff\xd8\xff");
  const Finished binary = Eval({"perplexity", "--file", file});
  EXPECT_EQ(binary.exit_code, kExitFailure);
  EXPECT_EQ(binary.out, "");
  EXPECT_NE(binary.err.find(file + " is no UTF-8 text"), std::string::npos) << binary.err;
  EXPECT_NE(binary.err.find("offset " + std::to_string(text.size()) + " (0xff"), std::string::npos)
      << binary.err;
  const Finished cut = Eval({"perplexity", "--file", folder.Write("cut.txt", text + "\xe4\xbd")});
  EXPECT_EQ(cut.exit_code, kExitFailure);
  EXPECT_NE(cut.err.find("offset " + std::to_string(text.size())), std::string::npos) << cut.err;
  EXPECT_EQ(Eval({"perplexity", "--file", folder.Write("good.txt", text)}).exit_code, 0);
}

// Weights that are no numbers make no figure.
TEST(EvalPerplexityCommand, AModelThatComputesNoNumbersIsAnError) {
  const TemporaryFolder folder;
  const std::string model = folder.Path("model");
  std::filesystem::copy(kMini, model, std::filesystem::copy_options::recursive);
  {
    const Result<Checkpoint> checkpoint = Checkpoint::Open(model);
    ASSERT_TRUE(checkpoint.has_value());
    const TensorView* norm = checkpoint->Find("norm.weight");
    ASSERT_NE(norm, nullptr);
    const std::string path = model + "/model.safetensors";
    std::string bytes = TemporaryFolder::Read(path);
    const std::string_view values(reinterpret_cast<const char*>(norm->bytes.data()),
                                  norm->bytes.size());
    const size_t at = bytes.find(values);
    ASSERT_NE(at, std::string::npos);
    std::fill_n(bytes.begin() + static_cast<std::ptrdiff_t>(at), values.size(), '\xff');
    std::ofstream(path, std::ios::binary) << bytes;
  }
  const std::string file = folder.Write("text.txt", "The path runs along the hills.");
  const Finished run = RunMinke({"eval", "perplexity", "--file", file, "--model", model});
  EXPECT_EQ(run.exit_code, kExitFailure);
  EXPECT_EQ(run.out, "");
  EXPECT_NE(run.err.find(model), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("no numbers"), std::string::npos) << run.err;
}

TEST(EvalPerplexityCommand, SaysThatWeightsAreRandomAndWhatItComputedWith) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("text.txt", "The path runs along the hills.");
  const Finished run = Eval({"perplexity", "--file", file, "--json"});
  EXPECT_NE(run.err.find("weights of this model are random"), std::string::npos) << run.err;
  const auto kernels = [](const Finished& finished) {
    const Result<Json> json = ParseJson(finished.out, "output");
    return json.has_value() ? json->Find("kernels")->as_string() : finished.err;
  };
  const std::string target = kernels(RunMinke(
      {"generate", "--model", kMini, "--threads", "1", "-n", "1", "--prompt", "x", "--json"}));
  EXPECT_EQ(kernels(run), target);
  EXPECT_EQ(kernels(Eval({"perplexity", "--file", file, "--json", "--kernels", "reference"})),
            "reference");
  EXPECT_EQ(kernels(RunMinke({"logits", "--model", kMini, "--tokens", folder.Write("ids", "0 1"),
                              "--out", folder.Path("out"), "--json"})),
            target);
}

// Random weights foresee about nothing: close to the logarithm of the vocabulary, and not below
// what the logits of `minke logits` say.
TEST(EvalPerplexityCommand, AgreesWithTheLogits) {
  const TemporaryFolder folder;
  const std::string file = folder.Write("text.txt", "The path runs along the hills.");
  const Finished run = Eval({"perplexity", "--file", file, "--json"});
  ASSERT_EQ(run.exit_code, kExitSuccess) << run.err;
  const Json report = ParseJson(run.out, "output").value();
  const Finished ids = RunMinke({"tokenize", "--file", file, "--json", "--model", kMini});
  const JsonArray targets = ParseJson(ids.out, "output").value().Find("ids")->as_array();
  std::string read = "0";
  for (size_t i = 0; i + 1 < targets.size(); ++i) read += " " + std::to_string(targets[i].as_int());
  const std::string out = folder.Path("logits.bin");
  const std::string tokens = folder.Write("ids.txt", read);
  ASSERT_EQ(RunMinke({"logits", "--model", kMini, "--tokens", tokens, "--out", out}).exit_code, 0);
  const std::string bytes = TemporaryFolder::Read(out);
  constexpr size_t kRowValues = 512;
  ASSERT_EQ(bytes.size(), targets.size() * kRowValues * sizeof(float));
  double nats = 0;
  for (size_t row = 0; row < targets.size(); ++row) {
    std::vector<float> logits(kRowValues);
    std::copy_n(bytes.data() + row * kRowValues * sizeof(float), kRowValues * sizeof(float),
                reinterpret_cast<char*>(logits.data()));
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit));
    nats += std::log(sum) - static_cast<double>(logits[static_cast<size_t>(targets[row].as_int())]);
  }
  EXPECT_NEAR(report.Find("nats_per_token")->as_double(),
              nats / static_cast<double>(targets.size()), 1e-9);
}

TEST(EvalPerplexityCommand, HostileFlags) {
  const TemporaryFolder folder;
  const std::string empty = folder.Write("empty.txt", " \n\f\n ");
  const struct {
    std::vector<std::string> flags;
    int exit_code;
    const char* says;
  } cases[] = {
      {{}, kExitUsage, "--file"},
      {{"--file", empty}, kExitFailure, "has no text in it"},
      {{"--file", folder.Path("none.txt")}, kExitFailure, "none.txt"},
      {{"--file", empty, "--window", "15"}, kExitUsage, "--window"},
      {{"--file", empty, "--window", "1048576", "--numerics", "f64"}, kExitUsage, "--numerics"},
  };
  for (const auto& hostile : cases) {
    std::vector<std::string> arguments = {"perplexity"};
    arguments.insert(arguments.end(), hostile.flags.begin(), hostile.flags.end());
    const Finished run = Eval(arguments);
    EXPECT_EQ(run.exit_code, hostile.exit_code) << hostile.says << run.err;
    EXPECT_NE(run.err.find(hostile.says), std::string::npos) << run.err;
  }
}

TEST(EvalCommand, NeedsToKnowWhat) {
  const Finished run = RunMinke({"eval"});
  EXPECT_EQ(run.exit_code, kExitUsage);
}

}  // namespace
}  // namespace minke::testing

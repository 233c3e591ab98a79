// --pin and --weights-memory: where threads and weights are changes no answer.
#include <pthread.h>

#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "core/processors.h"
#include "tests/apps/process.h"

namespace minke::testing {
namespace {

Finished Write(std::vector<std::string> more) {
  std::vector<std::string> arguments = {
      "generate", "--model", kMiniModel, "--prompt",   "Hi", "--max-tokens", "8",
      "--seed",   "3",       "--json",   "--logprobs", "2",  "--ignore-eos", "--temperature",
      "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunMinke(arguments);
}

// Of the answer, without the timings.
std::string GeneratedText(const Finished& run) {
  EXPECT_EQ(run.exit_code, 0) << run.err;
  const size_t begin = run.out.find("\"logprobs\"");
  const size_t ids = run.out.find("\"ids\"");
  EXPECT_NE(begin, std::string::npos) << run.out;
  EXPECT_NE(ids, std::string::npos) << run.out;
  return run.out.substr(ids, run.out.find(']', ids) - ids) + run.out.substr(begin, 400);
}

TEST(MachineFlags, ChangeNoAnswer) {
  const std::string expected = GeneratedText(Write({"--threads", "1"}));
  for (const char* threads : {"1", "2", "5"}) {
    EXPECT_EQ(GeneratedText(Write({"--threads", threads, "--pin"})), expected);
    EXPECT_EQ(GeneratedText(Write({"--threads", threads, "--weights-memory", "copied", "--pin"})),
              expected);
  }
  EXPECT_EQ(GeneratedText(Write({"--weights-memory", "copied"})), expected);
}

TEST(MachineFlags, AreThereForCommandsWithoutAnEngine) {
  const TemporaryFolder folder;
  const std::string ids = folder.Write("ids.txt", "0 5 17 3");
  const std::string text = folder.Write("text.txt", "The path runs along the hills.");
  const auto logits = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"logits", "--model", kMiniModel,        "--tokens",
                                          ids,      "--out",   folder.Path("out")};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished run = RunMinke(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return TemporaryFolder::Read(folder.Path("out"));
  };
  EXPECT_EQ(logits({"--weights-memory", "copied", "--pin"}), logits({}));
  const auto score = [&](std::vector<std::string> more) {
    std::vector<std::string> arguments = {"eval",     "perplexity", "--model",
                                          kMiniModel, "--file",     text};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished run = RunMinke(arguments);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    return run.out;
  };
  EXPECT_EQ(score({"--weights-memory", "copied", "--pin"}), score({}));
}

TEST(MachineFlags, TooManyThreadsToPinIsANoteAndNoError) {
  const int threads = static_cast<int>(AllowedProcessors().size()) + 1;
  const Finished run = Write({"--threads", std::to_string(threads), "--pin"});
  EXPECT_EQ(run.exit_code, 0);
  EXPECT_NE(run.err.find("minke: note: --pin binds no thread"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("there are " + std::to_string(threads) + " threads"), std::string::npos)
      << run.err;
  EXPECT_EQ(Write({"--threads", "1", "--pin"}).err.find("--pin"), std::string::npos);
  EXPECT_EQ(Write({"--threads", std::to_string(threads)}).err.find("--pin"), std::string::npos);
}

// As under taskset: a child has the mask of the thread that starts it.
TEST(MachineFlags, PinningKeepsToTheMaskOfTheProcess) {
  const int last = AllowedProcessors().back();
  std::jthread([last] {
    ASSERT_TRUE(BindThread(::pthread_self(), {&last, 1}));
    EXPECT_EQ(Write({"--threads", "1", "--pin"}).err.find("--pin"), std::string::npos);
    EXPECT_NE(Write({"--threads", "2", "--pin"}).err.find("may use 1 processor."),
              std::string::npos);
  });
}

TEST(MachineFlags, KindsOfMemoryExcludeEachOther) {
  for (const std::vector<std::string>& wrong :
       {std::vector<std::string>{"--weights-memory", "copied", "--weights-ram", "1GiB"},
        {"--weights-memory", "copied", "--prewarm"},
        {"--weights-memory", "elsewhere"}}) {
    const Finished run = Write(wrong);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_NE(run.err.find("--weights-memory"), std::string::npos) << run.err;
  }
}

}  // namespace
}  // namespace minke::testing

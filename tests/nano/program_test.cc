// The program as the demonstration runs it: processes that go on where the one before stopped.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "tests/apps/process.h"
#include "tests/nano/nano_support.h"

namespace minke::testing {
namespace {

const std::string kQuestion = "What is the access code of the harbour gate?";
const std::string kAnswer = "The access code of the harbour gate is 4827.";

std::vector<std::string> With(std::vector<std::string> arguments,
                              const std::vector<std::string>& more) {
  arguments.insert(arguments.end(), more.begin(), more.end());
  arguments.insert(arguments.end(), {"--model", kNano, "--thinking", "off", "--temperature", "0",
                                     "--max-tokens", "60", "--stats"});
  return arguments;
}

TEST(NanoProgram, ChatGoesOnAboutADocumentInAnotherProcess) {
  const TemporaryFolder folder;
  const std::string disk = folder.Path("kv");
  const Finished first =
      RunMinke(With({"chat"}, {"--document", kDocumentPath, "--kv-disk", disk}), kQuestion + "\n");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  EXPECT_EQ(first.out.substr(0, first.out.find('\n')), kAnswer);
  EXPECT_NE(first.err.find("0 of "), std::string::npos) << first.err;
  EXPECT_NE(first.err.find("79.5 bytes per token"), std::string::npos) << first.err;
  const Finished second = RunMinke(With({"chat"}, {"--kv-disk", disk, "--resume"}),
                                   "And the pin of the library safe?\n");
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(second.out.substr(0, second.out.find('\n')), "The pin of the library safe is 6150.");
  EXPECT_NE(second.err.find("prompt tokens cached (disk), 0 replayed"), std::string::npos)
      << second.err;
}

TEST(NanoProgram, GenerateAsksAboutADocument) {
  const TemporaryFolder folder;
  const std::string part = folder.Write("part.txt", Document(5) + "\n\n");
  const Finished run = RunMinke(With({"generate"}, {"--document", part, "--prompt", kQuestion}));
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out.substr(0, run.out.find('\n')), kAnswer);
  const Finished piped =
      RunMinke(With({"generate"}, {"--document", "-", "--prompt", kQuestion}), Document(5));
  EXPECT_EQ(piped.out, run.out) << piped.err;
}

TEST(NanoProgram, WhatIsNoDocumentIsRefusedByName) {
  const TemporaryFolder folder;
  const std::string empty = folder.Write("empty.txt", " \n\n");
  const std::string bytes = folder.Write("bytes.bin", "abc\xff");
  const struct {
    std::vector<std::string> flags;
    int exit_code;
    const char* says;
  } cases[] = {
      {{"generate", "--prompt", "x", "--document", folder.Path("none.txt")}, 1, "none.txt"},
      {{"generate", "--prompt", "x", "--document", empty}, 1, "has no text in it"},
      {{"generate", "--prompt", "x", "--document", bytes}, 1, "bytes.bin is no UTF-8 text: byte 3"},
      {{"generate", "--document", empty}, 2, "--prompt"},
      {{"generate", "--raw", "--prompt", "x", "--document", empty}, 2, "--document"},
      {{"generate", "--prompt", "x", "--document", ""}, 2, "--document"},
      {{"chat", "--document", "-"}, 2, "standard input has the questions"},
      {{"chat", "--document", empty}, 1, "has no text in it"},
      {{"chat", "--document", empty, "--kv-disk", "d", "--resume"}, 2, "--document"},
  };
  for (const auto& hostile : cases) {
    const Finished run = RunMinke(With(hostile.flags, {}), "x\n");
    EXPECT_EQ(run.exit_code, hostile.exit_code) << hostile.says << run.err;
    EXPECT_NE(run.err.find(hostile.says), std::string::npos) << run.err;
  }
}

// Without --model and $MINKE_MODEL: the presets build two folders below the models.
TEST(NanoProgram, IsTheModelThatIsMeantWhereNoneIsNamed) {
  if (!FileExists(std::string(MINKE_BINARY_DIR) + "/../../models/nano/config.json")) {
    GTEST_SKIP() << "the build folder is not two folders below the models";
  }
  const Finished named = RunMinke({"inspect", "--model", kNano});
  const Finished run = RunMinke({"inspect"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out, named.out);
}

}  // namespace
}  // namespace minke::testing

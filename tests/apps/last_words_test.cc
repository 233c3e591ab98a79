// The program when it cannot go on.
#include <sys/wait.h>

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <string>

#include <gtest/gtest.h>

#include "tests/apps/process.h"
#include "tests/support/resident_memory.h"

namespace minke::testing {
namespace {

TEST(LastWords, WeightsThatAreCutWhileTheyAreInUseAreNamed) {
  if (kSanitized) GTEST_SKIP() << "the signal is the sanitizer's";
  const TemporaryFolder folder;
  std::filesystem::copy(kMiniModel, folder.Path("model"));
  TerminalProcess chat({"chat", "--model", folder.Path("model"), "--weights-memory", "mapped"});
  ASSERT_TRUE(chat.WaitFor("/help lists the commands")) << chat.seen();
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  const std::string weights = folder.Path("model") + "/model.safetensors";
  std::filesystem::resize_file(weights, 4096);
  chat.Type("Why?\r");
  EXPECT_TRUE(chat.WaitFor("minke: error: The file " + weights + " became shorter")) << chat.seen();
  EXPECT_TRUE(chat.WaitFor("--weights-memory copied")) << chat.seen();
  EXPECT_EQ(chat.Wait(), 1);
}

// One that no mapped file explains stays what it was.
TEST(LastWords, OtherBusErrorsKeepTheirStatus) {
  if (kSanitized) GTEST_SKIP() << "the signal is the sanitizer's";
  TerminalProcess chat({"chat", "--model", kMiniModel});
  ASSERT_TRUE(chat.WaitFor("/help lists the commands")) << chat.seen();
  chat.Send(SIGBUS);
  EXPECT_EQ(chat.Wait(), 128 + SIGBUS);
}

TEST(LastWords, MemoryThatRunsOutIsAnErrorAndNoAbort) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer does not live with little address space";
  const TemporaryFolder folder;
  const std::string text = folder.Write("text", std::string(size_t{8} << 20, 'x'));
  const std::string err = folder.Path("err");
  const std::string line = "ulimit -v 70000; " + std::string(MINKE_BINARY_DIR) +
                           "/minke tokenize --model " + kMiniModel + " --file " + text +
                           " > /dev/null 2> " + err;
  const int status = std::system(line.c_str());
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  const std::string words = TemporaryFolder::Read(err);
  EXPECT_TRUE(words.starts_with("minke: error: The system gives no more memory")) << words;
  EXPECT_NE(words.find("ulimit -v"), std::string::npos) << words;
}

}  // namespace
}  // namespace minke::testing

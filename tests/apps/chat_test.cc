// minke chat in a terminal and from a pipe.
#include <algorithm>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/apps/process.h"

namespace minke::testing {
namespace {

// Greedy on random weights soon repeats itself and never ends: an answer to be interrupted.
std::vector<std::string> EndlessChat() {
  return {"chat", "--model", kMiniModel, "--temperature", "0", "--threads", "1", "--seed", "1"};
}

TEST(ChatCommand, CtrlCStopsTheAnswerAndNotTheProgram) {
  TerminalProcess chat(EndlessChat());
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  chat.Type("The quick brown fox\n");
  ASSERT_TRUE(chat.WaitFor("Thinking:")) << chat.seen();
  ASSERT_TRUE(chat.WaitFor("ue")) << chat.seen();
  chat.Type("\x03");
  ASSERT_TRUE(chat.WaitFor("(stopped; ")) << chat.seen();
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  // The interrupted answer is in the cache, and the conversation goes on from it.
  chat.Type("And then?\n");
  ASSERT_TRUE(chat.WaitFor("Thinking:")) << chat.seen();
  chat.Type("\x03");
  ASSERT_TRUE(chat.WaitFor("(stopped; ")) << chat.seen();
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  chat.Type("/stats\n");
  ASSERT_TRUE(chat.WaitFor("were in the cache")) << chat.seen();
  EXPECT_EQ(chat.seen().find("(0 were in the cache"), std::string::npos) << chat.seen();
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  chat.Type("/exit\n");
  EXPECT_EQ(chat.Wait(), 0) << chat.seen();
}

TEST(ChatCommand, TheSecondCtrlCAtThePromptLeaves) {
  TerminalProcess chat(EndlessChat());
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  chat.Type("half a ques");
  chat.Type("\x03");
  ASSERT_TRUE(chat.WaitFor("Ctrl-C again")) << chat.seen();
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  // A line in between starts the count anew.
  chat.Type("/help\n");
  ASSERT_TRUE(chat.WaitFor("/reset")) << chat.seen();
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  chat.Type("\x03");
  ASSERT_TRUE(chat.WaitFor("Ctrl-C again")) << chat.seen();
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  chat.Type("\x03");
  EXPECT_EQ(chat.Wait(), 0) << chat.seen();
}

TEST(ChatCommand, CtrlDLeaves) {
  TerminalProcess chat(EndlessChat());
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  chat.Type("\x04");
  EXPECT_EQ(chat.Wait(), 0) << chat.seen();
}

TEST(ChatCommand, ThinkingIsDimAndModelOutputCannotMoveTheCursor) {
  TerminalProcess chat(
      {"chat", "--model", kMiniModel, "--seed", "2", "--threads", "1", "--max-tokens", "300"});
  ASSERT_TRUE(chat.WaitFor("> ")) << chat.seen();
  chat.Type("Hello\n");
  ASSERT_TRUE(chat.WaitFor("\x1b[2mThinking:")) << chat.seen();
  const size_t begin = chat.seen().size();
  ASSERT_TRUE(chat.WaitFor("of context)")) << chat.seen();
  const std::string answer = chat.seen().substr(begin);
  for (size_t i = 0; i < answer.size(); ++i) {
    const auto byte = static_cast<unsigned char>(answer[i]);
    const bool ours = answer.compare(i, 4, "\x1b[2m") == 0 || answer.compare(i, 4, "\x1b[0m") == 0;
    EXPECT_TRUE(byte >= 0x20 || byte == '\n' || byte == '\t' || byte == '\r' || ours)
        << "byte " << int{byte} << " at " << i;
  }
  EXPECT_NE(answer.find("\\x"), std::string::npos) << "the model wrote no control character";
}

TEST(GenerateCommand, CtrlCEndsItWithASentence) {
  TerminalProcess generate(
      {"generate", "--model", kMiniModel, "--prompt", "The quick brown fox", "--threads", "1"});
  ASSERT_TRUE(generate.WaitFor("Thinking:")) << generate.seen();
  ASSERT_TRUE(generate.WaitFor("ue")) << generate.seen();
  generate.Type("\x03");
  EXPECT_EQ(generate.Wait(), 1);
  EXPECT_NE(generate.seen().find("Stopped by Ctrl-C"), std::string::npos) << generate.seen();
}

TEST(ChatCommand, AnswersAPipeLineByLine) {
  const Finished run = RunMinke({"chat", "--model", kMiniModel, "--max-tokens", "8", "--seed", "1",
                                 "--thinking", "off", "--threads", "1"},
                                "One\n\nTwo \\\nlines\n/stats\n/reset\n/stats\nThree");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out.find("> "), std::string::npos) << run.out;
  EXPECT_EQ(run.out.find('\x1b'), std::string::npos);
  EXPECT_NE(run.out.find("(a new conversation)"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("0 of 1048576 tokens"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("last turn"), std::string::npos) << run.out;
}

TEST(ChatCommand, ASeedRepeatsAConversation) {
  const auto run = [](const char* seed) {
    return RunMinke({"chat", "--model", kMiniModel, "--max-tokens", "20", "--seed", seed,
                     "--threads", "1"},
                    "One\nTwo\n")
        .out;
  };
  const std::string first = run("3");
  EXPECT_GT(first.size(), 40u);
  EXPECT_EQ(first, run("3"));
  EXPECT_NE(first, run("4"));
}

TEST(ChatCommand, AFullContextIsSaidInWords) {
  const Finished run = RunMinke({"chat", "--model", kMiniModel, "--context", "40", "--thinking",
                                 "off", "--temperature", "0", "--threads", "1"},
                                "The quick brown fox\nMore\n/reset\nAgain\n");
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find("context of 40 tokens is full"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("the context holds 40"), std::string::npos) << run.err;
  EXPECT_NE(run.err.find("/reset"), std::string::npos) << run.err;
}

TEST(ChatCommand, AWrongCommandListsTheRightOnes) {
  const Finished run = RunMinke({"chat", "--model", kMiniModel}, "/sats\n/exit\nnever asked\n");
  EXPECT_EQ(run.exit_code, 0) << run.err;
  EXPECT_NE(run.out.find("no command /sats"), std::string::npos) << run.out;
  EXPECT_NE(run.out.find("/stats"), std::string::npos) << run.out;
}

}  // namespace
}  // namespace minke::testing

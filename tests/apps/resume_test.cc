// The cache on the command line: conversations that go on in another process, what generate
// reports, what explain says.
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <string>
#include <vector>

#include "core/json.h"
#include "tests/apps/process.h"

namespace minke::testing {
namespace {

const std::string kChat = std::string(MINKE_GOLDEN_DIR) + "/chat";
const std::string kFullMini = std::string(MINKE_GOLDEN_DIR) + "/full_mini";

std::vector<std::string> ChatArguments(const std::vector<std::string>& more) {
  std::vector<std::string> arguments = {"chat", "--model", kChat,    "--thinking", "off",
                                        "-n",   "12",      "--seed", "3"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return arguments;
}

int64_t Number(const Json& json, const char* group, const char* key) {
  const Json* part = json.Find(group);
  const Json* value = part == nullptr ? nullptr : part->Find(key);
  EXPECT_NE(value, nullptr) << group << "." << key;
  return value == nullptr ? -1 : value->as_int();
}

TEST(Resume, TheNextProcessGoesOnAsIfTheFirstHadStayed) {
  TemporaryFolder folder;
  const std::string disk = folder.Path("cache");
  const Finished whole = RunMinke(ChatArguments({}), "One\nTwo\nThree\n");
  ASSERT_EQ(whole.exit_code, 0) << whole.err;
  const Finished first = RunMinke(ChatArguments({"--kv-disk", disk}), "One\nTwo\n");
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Finished second = RunMinke(ChatArguments({"--kv-disk", disk, "--resume"}), "Three\n");
  ASSERT_EQ(second.exit_code, 0) << second.err;
  EXPECT_EQ(first.out + second.out, whole.out);
  EXPECT_EQ(first.err.find("going on with"), std::string::npos) << first.err;
  struct stat status = {};
  ASSERT_EQ(::stat((disk + "/conversation.json").c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 0777, 0600u);
}

TEST(Resume, NoneIsNoDirectory) {
  const bool had_one = std::filesystem::exists("none");
  const Finished asked = RunMinke(ChatArguments({"--kv-disk", "none"}), "One\n");
  EXPECT_EQ(asked.exit_code, 0) << asked.err;
  EXPECT_EQ(std::filesystem::exists("none"), had_one);
  const Finished resumed = RunMinke(ChatArguments({"--kv-disk", "none", "--resume"}), "Two\n");
  EXPECT_EQ(resumed.exit_code, 1);
  EXPECT_NE(resumed.err.find("--resume needs the directory"), std::string::npos) << resumed.err;
}

TEST(Resume, APipeIsToldWhatItGoesOnWith) {
  TemporaryFolder folder;
  const std::vector<std::string> resumed =
      ChatArguments({"--kv-disk", folder.Path("cache"), "--resume"});
  const std::string question = "Tell me of the sea " + std::string(60, 'e') + "!";
  ASSERT_EQ(RunMinke(ChatArguments({"--kv-disk", folder.Path("cache")}), "One\n" + question + "\n")
                .exit_code,
            0);
  const Finished second = RunMinke(resumed, "Three\n");
  EXPECT_NE(second.err.find("minke: note: going on with a conversation of 4 messages and "),
            std::string::npos)
      << second.err;
  EXPECT_NE(second.err.find(" tokens, whose last question began \"Tell me of the sea eee"),
            std::string::npos)
      << second.err;
  EXPECT_EQ(second.err.find('!'), std::string::npos) << second.err;
  EXPECT_EQ(second.out.find("going on"), std::string::npos);
  const Finished third = RunMinke(resumed, "Four\n");
  EXPECT_NE(third.err.find(" 6 messages and "), std::string::npos) << third.err;
  EXPECT_NE(third.err.find("whose last question was \"Three\"."), std::string::npos) << third.err;
}

// A program that is asked to end writes what it knows first (serving.md 6.E, 69).
TEST(Resume, SigtermInTheMiddleOfAnAnswerKeepsTheConversation) {
  TemporaryFolder folder;
  const std::string disk = folder.Path("cache");
  {
    TerminalProcess chat({"chat", "--model", kChat, "--seed", "3", "--kv-disk", disk});
    ASSERT_TRUE(chat.WaitFor("> "));
    chat.Type("Tell me something long\n");
    ASSERT_TRUE(chat.WaitFor("Thinking:"));
    chat.Send(SIGTERM);
    EXPECT_EQ(chat.Wait(), 1);
  }
  EXPECT_NE(TemporaryFolder::Read(disk + "/conversation.json").find("something long"),
            std::string::npos);
  const Finished stats = RunMinke({"cache", "stats", "--kv-disk", disk, "--json"});
  EXPECT_GT(ParseJson(stats.out, "stats")->Find("snapshots")->as_int(), 0) << stats.out;
  EXPECT_EQ(RunMinke(ChatArguments({"--kv-disk", disk, "--resume"}), "And?\n").exit_code, 0);
}

TEST(Resume, TenantsHaveTheirOwnConversationsAndForgetErasesThem) {
  TemporaryFolder folder;
  const std::string disk = folder.Path("cache");
  const std::vector<std::string> alice = {"--kv-disk", disk, "--tenant", "alice"};
  ASSERT_EQ(RunMinke(ChatArguments(alice), "my PIN is 4711\n").exit_code, 0);
  const Finished bob =
      RunMinke(ChatArguments({"--kv-disk", disk, "--tenant", "bob", "--resume"}), "And?\n");
  EXPECT_EQ(bob.exit_code, 1);
  EXPECT_NE(bob.err.find("no conversation to go on with"), std::string::npos) << bob.err;
  const auto holds_pin = [&] {
    bool found = false;
    for (const auto& entry : std::filesystem::directory_iterator(disk)) {
      found = found || TemporaryFolder::Read(entry.path()).find("4711") != std::string::npos;
    }
    return found;
  };
  EXPECT_TRUE(holds_pin());
  ASSERT_EQ(RunMinke({"cache", "forget", "--kv-disk", disk, "--tenant", "alice"}).exit_code, 0);
  EXPECT_FALSE(holds_pin());
}

// What is damaged once is computed once, and then there again.
TEST(CacheFlags, ADamagedBlockHealsWithTheNextAnswer) {
  TemporaryFolder folder;
  const std::string disk = folder.Path("cache");
  std::string text;
  for (int i = 0; i < 60; ++i) text += "QZXJKV";
  const auto run = [&] {
    const Finished finished = RunMinke({"generate", "--model", kChat, "--raw", "--prompt", text,
                                        "-n", "3", "--ignore-eos", "--json", "--kv-disk", disk});
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return *ParseJson(finished.out, "output");
  };
  const Json first = run();
  const int64_t total = Number(first, "usage", "prompt_tokens");
  ASSERT_GT(total, 260);
  std::string segment = TemporaryFolder::Read(disk + "/segment-00000001.mks");
  segment[4996] = static_cast<char>(segment[4996] ^ 1);
  folder.Write("cache/segment-00000001.mks", segment);
  const Json damaged = run();
  EXPECT_EQ(damaged.Find("cache")->Find("reason")->as_string(), "damaged");
  EXPECT_EQ(damaged.Find("ids")->as_array().size(), first.Find("ids")->as_array().size());
  EXPECT_EQ(Number(run(), "usage", "prompt_cache_hit_tokens"), total - 1);
}

TEST(Resume, WhatCannotBeResumedIsNamed) {
  TemporaryFolder folder;
  const std::string disk = folder.Path("cache");
  const auto error = [&] {
    const Finished run = RunMinke(ChatArguments({"--kv-disk", disk, "--resume"}), "Hello\n");
    EXPECT_EQ(run.exit_code, 1);
    return run.err;
  };
  EXPECT_NE(error().find("conversation.json does not exist"), std::string::npos);
  ASSERT_EQ(RunMinke(ChatArguments({"--kv-disk", disk}), "One\n").exit_code, 0);
  const std::string path = disk + "/conversation.json";
  const std::string good = TemporaryFolder::Read(path);
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    folder.Write("cache/conversation.json", text);
    return error();
  };
  EXPECT_NE(with("\"format\":1", "\"format\":9").find("another version"), std::string::npos);
  EXPECT_NE(with("layers", "floors").find("another model"), std::string::npos);
  EXPECT_NE(with("\"ids\":[0", "\"ids\":[-7").find("no token of this model"), std::string::npos);
  EXPECT_NE(with("\"ids\":[0", "\"ids\":[").find("conversation.json"), std::string::npos);
  folder.Write("cache/conversation.json", good.substr(0, good.size() / 2));
  EXPECT_NE(error().find("conversation.json"), std::string::npos);
}

TEST(CacheFlags, GenerateReportsHitsAndMisses) {
  TemporaryFolder folder;
  const std::vector<std::string> arguments = {
      "generate", "--model", kChat,    "--prompt",  "Why is the sky blue, and the sea?",
      "-n",       "4",       "--json", "--kv-disk", folder.Path("cache")};
  const Finished first = RunMinke(arguments);
  ASSERT_EQ(first.exit_code, 0) << first.err;
  const Finished second = RunMinke(arguments);
  ASSERT_EQ(second.exit_code, 0) << second.err;
  const Json a = *ParseJson(first.out, "first");
  const Json b = *ParseJson(second.out, "second");
  EXPECT_EQ(a.Find("text")->as_string(), b.Find("text")->as_string());
  const int64_t total = Number(b, "usage", "prompt_tokens");
  EXPECT_EQ(Number(a, "usage", "prompt_cache_hit_tokens"), 0);
  EXPECT_EQ(Number(b, "usage", "prompt_cache_hit_tokens"), total - 1);
  EXPECT_EQ(Number(b, "usage", "prompt_cache_miss_tokens"), 1);
  EXPECT_EQ(Number(b, "cache", "disk_tokens"), total - 1);
  EXPECT_EQ(b.Find("cache")->Find("tier")->as_string(), "disk");
  EXPECT_EQ(b.Find("cache")->Find("reason")->as_string(), "none");
}

TEST(CacheFlags, ExplainSaysWhereAPromptDiffers) {
  TemporaryFolder folder;
  const std::string disk = folder.Path("cache");
  const auto run = [&](const char* command, const char* question) {
    std::vector<std::string> arguments = {command,  "--model",   kChat, "--prompt",
                                          question, "--kv-disk", disk};
    if (std::string(command) == "cache") {
      arguments.insert(arguments.begin() + 1, "explain");
      arguments.push_back("--json");
    } else {
      arguments.insert(arguments.end(), {"-n", "1"});
    }
    const Finished finished = RunMinke(arguments);
    EXPECT_EQ(finished.exit_code, 0) << finished.err;
    return finished.out;
  };
  run("generate", "The same beginning, then a clock: 12:01");
  const Json json = *ParseJson(run("cache", "The same beginning, then a clock: 12:02"), "output");
  EXPECT_EQ(json.Find("reason")->as_string(), "diverged");
  EXPECT_GT(json.Find("first_difference")->as_int(), 10);
  EXPECT_NE(json.Find("around")->as_string().find("clock"), std::string::npos);
  const Json same = *ParseJson(run("cache", "The same beginning, then a clock: 12:01"), "output");
  EXPECT_EQ(same.Find("computed_tokens")->as_int(), 1);
  EXPECT_TRUE(same.Find("first_difference")->is_null());
}

TEST(CacheFlags, WhatCannotBeIsRefusedInWords) {
  const auto error = [](const std::vector<std::string>& more, int exit_code) {
    std::vector<std::string> arguments = {"generate", "--prompt", "x", "-n", "1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const Finished run = RunMinke(arguments);
    EXPECT_EQ(run.exit_code, exit_code);
    return run.err;
  };
  EXPECT_NE(error({"--model", kChat, "--kv-ram", "12"}, 2).find("--kv-ram"), std::string::npos);
  EXPECT_NE(error({"--model", kChat, "--kv-ram", "20000B"}, 1).find("--kv-ram"), std::string::npos);
  const std::string swa = std::string(MINKE_GOLDEN_DIR) + "/tiny_swa";
  EXPECT_NE(error({"--model", swa, "--prefill", "replay"}, 1).find("--prefill exact"),
            std::string::npos);
  TemporaryFolder folder;
  const std::string file = folder.Write("file", "not a directory");
  EXPECT_NE(error({"--model", kChat, "--kv-disk", file}, 1).find("is not a directory"),
            std::string::npos);
}

}  // namespace
}  // namespace minke::testing

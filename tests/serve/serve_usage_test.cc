// Every number of the usage that answers carry is the engine's own, in all families of agents,
// streamed and not, for everything that can become of a prompt.
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/api_keys.h"
#include "tests/serve/family_answers.h"
#include "tests/serve/serve_support.h"
#include "tests/serve/whole_server.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr std::string_view kUsageAnswer = "Five six seven eight nine ten.";

std::unique_ptr<WholeServer> StartForUsage(PrefillMode mode, const TempDirectory& disk) {
  WholeServerOptions options;
  options.model_dir = std::string(MINKE_GOLDEN_DIR) + "/chat";
  options.engine.threads = 1;
  options.engine.prefill = mode;
  options.engine.cache.disk_dir = disk.Path("kv");
  options.script.scripts = {{"", "Hm.</think>" + std::string(kUsageAnswer)}};
  auto server = WholeServer::Start(std::move(options));
  EXPECT_TRUE(server.has_value()) << server.error().message;
  return server.has_value() ? std::move(*server) : nullptr;
}

struct Line {
  std::string role;
  std::string text;
};

// The families spell a conversation of plain lines alike.
std::string MessagesOf(const std::vector<Line>& lines) {
  std::string list;
  for (const Line& line : lines) {
    list += fmt::format(R"({}{{"role":"{}","content":"{}"}})", list.empty() ? "" : ",", line.role,
                        line.text);
  }
  return "[" + list + "]";
}

std::string UsageBody(ApiFamily family, bool stream, const std::string& user,
                      const std::vector<Line>& lines) {
  const bool responses = family == ApiFamily::kResponses;
  const std::string who = family == ApiFamily::kMessages
                              ? fmt::format(R"("metadata":{{"user_id":"{}"}})", user)
                              : fmt::format(R"("user":"{}")", user);
  return fmt::format(
      R"({{"model":"deepseek-flash","stream":{},{},"{}":{},"{}":200,{}}})", stream, who,
      responses ? "input" : "messages", MessagesOf(lines),
      responses ? "max_output_tokens" : "max_tokens",
      responses ? R"("reasoning":{"effort":"none"})" : R"("thinking":{"type":"disabled"})");
}

// The last usage in the answer.
Json UsageIn(const std::string& answer, bool stream) {
  std::string_view text = answer;
  if (stream) {
    const size_t usage = text.rfind("\"usage\":{");
    if (usage == std::string_view::npos) return {};
    const size_t line = text.rfind("data: ", usage) + 6;
    text = text.substr(line, text.find('\n', line) - line);
  }
  const Result<Json> json = ParseJson(text, "the answer");
  if (!json.has_value()) return {};
  const Json* holder = json->Find("response");
  const Json* usage = (holder != nullptr ? *holder : *json).Find("usage");
  return usage != nullptr ? *usage : Json();
}

int64_t NumberOf(const Json& json, std::string_view name) {
  const Json* member = json.Find(name);
  EXPECT_TRUE(member != nullptr && member->is_integer()) << name;
  return member != nullptr && member->is_integer() ? member->as_int() : -1;
}

// The members of the family: prompt, hit and answer.
void ExpectFamilyUsage(ApiFamily family, const Json& usage, const CacheUse& use, int64_t prompt,
                       int64_t answer) {
  const int64_t hit = use.cached_tokens;
  if (family == ApiFamily::kMessages) {
    EXPECT_EQ(NumberOf(usage, "input_tokens"), prompt - hit);
    EXPECT_EQ(NumberOf(usage, "cache_read_input_tokens"), hit);
    EXPECT_EQ(NumberOf(usage, "output_tokens"), answer);
    return;
  }
  const bool chat = family == ApiFamily::kChat;
  EXPECT_EQ(NumberOf(usage, chat ? "prompt_tokens" : "input_tokens"), prompt);
  EXPECT_EQ(NumberOf(usage, chat ? "completion_tokens" : "output_tokens"), answer);
  EXPECT_EQ(NumberOf(usage, "total_tokens"), prompt + answer);
  const Json* details = usage.Find(chat ? "prompt_tokens_details" : "input_tokens_details");
  ASSERT_NE(details, nullptr);
  EXPECT_EQ(NumberOf(*details, "cached_tokens"), hit);
  if (!chat) return;
  EXPECT_EQ(NumberOf(usage, "prompt_cache_hit_tokens"), hit);
  EXPECT_EQ(NumberOf(usage, "prompt_cache_miss_tokens"), prompt - hit);
}

void ExpectDetail(const Json& usage, const CacheUse& use) {
  const Json* detail = usage.Find("minke");
  ASSERT_NE(detail, nullptr);
  EXPECT_EQ(NumberOf(*detail, "cached_ram_tokens"), use.ram_tokens);
  EXPECT_EQ(NumberOf(*detail, "cached_disk_tokens"), use.disk_tokens);
  EXPECT_EQ(NumberOf(*detail, "replayed_tokens"), use.replayed_tokens);
  EXPECT_EQ(NumberOf(*detail, "computed_tokens"), use.computed_tokens);
  EXPECT_EQ(NumberOf(*detail, "first_difference"), use.first_difference);
  EXPECT_EQ(detail->Find("cache_tier")->as_string(), use.tier);
  EXPECT_EQ(detail->Find("miss_reason")->as_string(), use.reason);
}

// Asks one server by one way.
class UsageAsker {
 public:
  UsageAsker(WholeServer& server, ApiFamily family, bool stream)
      : server_(server), family_(family), stream_(stream) {}

  // What the engine says of the prompt at this moment. Then the answer, which must agree, and by as
  // much the counters of the engine must rise.
  CacheUse Ask(const std::string& user, const std::vector<Line>& lines) {
    Service& service = server_.service();
    ChatOptions plain;
    plain.thinking = false;
    const auto prompt = service.engine().EncodeChat(MessagesOf(lines), "lines", plain);
    EXPECT_TRUE(prompt.has_value());
    EXPECT_TRUE(service.WaitUntilIdle(60));
    const auto use = service.ExplainCache(prompt->ids, TenantOf("", user));
    EXPECT_TRUE(use.has_value());
    const ServiceStatus before = service.status();
    test::RawClient client(server_.port());
    const test::RawAnswer answer =
        client.Ask(PostTo(PathOf(family_), UsageBody(family_, stream_, user, lines)));
    EXPECT_EQ(answer.status, 200) << answer.body;
    const Json usage = UsageIn(answer.body, stream_);
    EXPECT_TRUE(service.WaitUntilIdle(60));
    const ServiceStatus after = service.status();
    const auto total = static_cast<int64_t>(prompt->ids.size());
    const int64_t written = after.answer_tokens - before.answer_tokens;
    EXPECT_GT(written, 5);
    EXPECT_EQ(use->cached_tokens + use->replayed_tokens + use->computed_tokens, total);
    ExpectFamilyUsage(family_, usage, *use, total, written);
    ExpectDetail(usage, *use);
    EXPECT_EQ(after.prompt_tokens - before.prompt_tokens, total);
    EXPECT_EQ(after.cached_ram_tokens - before.cached_ram_tokens, use->ram_tokens);
    EXPECT_EQ(after.cached_disk_tokens - before.cached_disk_tokens, use->disk_tokens);
    EXPECT_EQ(after.replayed_tokens - before.replayed_tokens, use->replayed_tokens);
    EXPECT_EQ(after.computed_tokens - before.computed_tokens, use->computed_tokens);
    return *use;
  }

 private:
  WholeServer& server_;
  ApiFamily family_;
  bool stream_;
};

void ExpectUsageOfTheEngine(WholeServer& server, ApiFamily family, bool stream) {
  const std::string name = fmt::format("{}{}", PathOf(family), stream);
  const ::testing::ScopedTrace trace(__FILE__, __LINE__, name);
  UsageAsker asker(server, family, stream);
  std::string story = name + " Tell it to me.";
  for (int i = 0; i < 60; ++i) story += fmt::format(" Then {} came by.", i);
  const std::vector<Line> first = {{"user", story}};
  std::vector<Line> second = first;
  second.push_back({"assistant", std::string(kUsageAnswer)});
  second.push_back({"user", "And then?"});
  // Rows of half of it are known then, but no snapshot.
  const std::vector<Line> other = {{"user", story.substr(0, story.size() / 2) + " Or not?"}};

  const CacheUse cold = asker.Ask("a", first);
  EXPECT_EQ(cold.tier, "none");
  EXPECT_GT(asker.Ask("a", first).ram_tokens, 128);
  EXPECT_GT(asker.Ask("a", second).ram_tokens, 128);
  const CacheUse diverged = asker.Ask("a", other);
  EXPECT_GT(diverged.replayed_tokens, 0);
  EXPECT_EQ(asker.Ask("b", first).reason, "other_tenant");
  ASSERT_TRUE(server.service().WaitUntilIdle(60));  // what is to be on disk is there
  server.service().engine().DropCacheMemory();
  const CacheUse from_disk = asker.Ask("a", second);
  EXPECT_GT(from_disk.disk_tokens, 128);
  EXPECT_EQ(from_disk.tier, "disk");
}

void ExpectUsageOfTheEngine(PrefillMode mode) {
  const TempDirectory disk;
  const auto server = StartForUsage(mode, disk);
  ASSERT_NE(server, nullptr);
  for (const ApiFamily family : {ApiFamily::kChat, ApiFamily::kResponses, ApiFamily::kMessages}) {
    for (const bool stream : {false, true}) ExpectUsageOfTheEngine(*server, family, stream);
  }
}

TEST(Usage, IsThatOfTheEngine) {
  ExpectUsageOfTheEngine(PrefillMode::kExact);
}

TEST(Usage, IsThatOfTheEngineWhichReplays) {
  ExpectUsageOfTheEngine(PrefillMode::kReplay);
}

}  // namespace
}  // namespace minke::testing

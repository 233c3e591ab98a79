// Whole servers on a scripted model: what a model wrote is found again by the prefix cache,
// however its client spells it, and every family names the length where it cut an answer.
#include "server/kept_turns.h"

#include <cstdint>
#include <cstdlib>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "server/server.h"
#include "tests/server/raw_client.h"
#include "tests/support/scripted_model.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

const std::string kTurnsModel = std::string(MINKE_GOLDEN_DIR) + "/chat";

// Written otherwise than the server would render it: an order of its own, and more white space.
constexpr const char* kOddCall =
    "I look.</think>\n\nLet me see.\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"find\">\n"
    "<｜DSML｜ parameter name=\"where\" string=\"false\">{\"b\":  1,\"a\":2}</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"what\" string=\"true\">tea</｜DSML｜ parameter>\n"
    "</｜DSML｜ invoke>\n</｜DSML｜ calls>";

class TurnsServer {
 public:
  explicit TurnsServer(const TempDirectory& disk) {
    ScriptedModelOptions scripts;
    scripts.scripts = {{"<tool_result>", "It came.</think>Tea it is."},
                       {"find", kOddCall},
                       {"", "Hm, one two three four.</think>Five six seven eight nine ten."}};
    auto model = ScriptedModel::Create(kTurnsModel, std::move(scripts));
    EXPECT_TRUE(model.has_value()) << model.error().message;
    model_ = std::move(*model);
    EngineOptions engine_options;
    engine_options.model_dir = kTurnsModel;
    engine_options.threads = 1;
    // A plain completion has no turn that a script would fit; it says one token for ever.
    engine_options.forward = [script =
                                  model_->function()](std::span<const ForwardSequence> sequences) {
      constexpr size_t kChatTokensMin = 12;
      const Status status = script(sequences);
      for (const ForwardSequence& sequence : sequences) {
        if (sequence.history.size() >= kChatTokensMin || sequence.logits.empty()) continue;
        sequence.logits[5] = 1e9F;
      }
      return status;
    };
    engine_options.cache.disk_dir = disk.Path("kv");
    auto engine = Engine::Open(engine_options);
    EXPECT_TRUE(engine.has_value()) << engine.error().message;
    auto service = Service::Start(std::move(*engine), {});
    EXPECT_TRUE(service.has_value()) << service.error().message;
    ServerOptions options;
    options.http.port = 0;
    options.turns_file = disk.Path("kv.turns");
    options.version = "1";
    auto server = Server::Start(options, std::move(*service));
    EXPECT_TRUE(server.has_value()) << server.error().message;
    server_ = std::move(*server);
  }

  std::string Post(const std::string& path, const std::string& body) {
    const std::string url = server_->url();
    test::RawClient client(
        static_cast<uint16_t>(std::atoi(url.substr(url.rfind(':') + 1).c_str())));
    const test::RawAnswer answer = client.Ask(
        fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    path, body.size(), body));
    EXPECT_EQ(answer.status, 200) << answer.body;
    return answer.body;
  }
  Json Ask(const std::string& path, const std::string& body) {
    Result<Json> json = ParseJson(Post(path, body), "answer");
    EXPECT_TRUE(json.has_value());
    return json.has_value() ? std::move(*json) : Json();
  }
  Server& server() { return *server_; }

 private:
  std::unique_ptr<ScriptedModel> model_;
  std::unique_ptr<Server> server_;
};

const Json& At(const Json& json, std::initializer_list<const char*> path) {
  static const Json kNothing;
  const Json* at = &json;
  for (const char* name : path) {
    const bool index = at->is_array();
    const auto i = static_cast<size_t>(index ? std::atoi(name) : 0);
    if (index && i >= at->as_array().size()) return kNothing;
    at = index ? &at->as_array()[i] : at->Find(name);
    if (at == nullptr) return kNothing;
  }
  return *at;
}

std::string TextAt(const Json& json, std::initializer_list<const char*> path) {
  const Json& at = At(json, path);
  return at.is_string() ? at.as_string() : std::string();
}

constexpr const char* kFindTool =
    R"("tools":[{"type":"function","function":{"name":"find","parameters":{"type":"object",
    "properties":{"what":{"type":"string"},"where":{"type":"object"}}}}}])";

std::string ChatTurns(const std::string& more) {
  return std::string(R"({"model":"deepseek-flash",)") + kFindTool +
         R"(,"messages":[{"role":"user","content":"find it"})" + more + "]}";
}

// The second turn as a client sends it that lost the reasoning and the white space, and spells the
// arguments in its own way.
std::string SecondTurn(const Json& first, const std::string& content, const std::string& what) {
  const std::string id = TextAt(first, {"choices", "0", "message", "tool_calls", "0", "id"});
  const std::string arguments =
      R"({ \"what\" : \")" + what + R"(\",\"where\":{ \"a\": 2, \"b\": 1} })";
  return ChatTurns(R"(,{"role":"assistant","content":")" + content + R"(","tool_calls":[{"id":")" +
                   id + R"(","type":"function","function":{"name":"find","arguments":")" +
                   arguments + R"("}}]},{"role":"tool","tool_call_id":")" + id +
                   R"(","content":"here"})");
}

int64_t Number(const Json& json, std::initializer_list<const char*> path) {
  const Json& at = At(json, path);
  EXPECT_TRUE(at.is_integer());
  return at.is_integer() ? at.as_int() : -1;
}

// Up to the end of the first turn, of which the last token is not in the cache.
void ExpectWholeTurnCached(const Json& first, const Json& second) {
  EXPECT_GE(Number(second, {"usage", "prompt_cache_hit_tokens"}),
            Number(first, {"usage", "total_tokens"}) - 1);
}

TEST(KeptTurns, AClientThatSpellsTheCallAnewHitsTheCacheToTheEndOfTheTurn) {
  const TempDirectory disk;
  Json first;
  {
    TurnsServer server(disk);
    first = server.Ask("/v1/chat/completions", ChatTurns(""));
    EXPECT_EQ(TextAt(first, {"choices", "0", "finish_reason"}), "tool_calls");
    ExpectWholeTurnCached(
        first, server.Ask("/v1/chat/completions", SecondTurn(first, "Let me see.", "tea")));
    // What the client has edited is read as it stands.
    const Json edited =
        server.Ask("/v1/chat/completions", SecondTurn(first, "Let me see.", "coffee"));
    EXPECT_LE(Number(edited, {"usage", "prompt_cache_hit_tokens"}),
              Number(first, {"usage", "prompt_tokens"}));
    EXPECT_TRUE(server.server().Drain(20));
  }
  TurnsServer again(disk);
  EXPECT_TRUE(again.server().warnings().empty());
  ExpectWholeTurnCached(
      first, again.Ask("/v1/chat/completions", SecondTurn(first, "\\nLet me see. ", "tea")));
}

TEST(KeptTurns, ADamagedFileIsAWarningAndAnEmptyMap) {
  const TempDirectory disk;
  disk.Write("kv.turns", "MINKERPL and then nothing of the kind");
  TurnsServer server(disk);
  ASSERT_EQ(server.server().warnings().size(), 1u);
  EXPECT_NE(server.server().warnings()[0].find("kv.turns"), std::string::npos);
  const Json first = server.Ask("/v1/chat/completions", ChatTurns(""));
  ExpectWholeTurnCached(
      first, server.Ask("/v1/chat/completions", SecondTurn(first, "Let me see.", "tea")));
}

TEST(Answers, EveryFamilyNamesTheLengthWhereItCutAnAnswer) {
  const TempDirectory disk;
  TurnsServer server(disk);
  const std::string messages = R"("messages":[{"role":"user","content":"hi"}])";
  const std::string model = R"({"model":"deepseek-flash",)";
  const std::string chat = model + messages + R"(,"max_tokens":4)";
  EXPECT_EQ(At(server.Ask("/v1/chat/completions", chat + "}"), {"choices", "0", "finish_reason"})
                .as_string(),
            "length");
  EXPECT_NE(server.Post("/v1/chat/completions", chat + R"(,"stream":true})")
                .find(R"("finish_reason":"length")"),
            std::string::npos);
  const std::string text = model + R"("prompt":"hi","max_tokens":4)";
  EXPECT_EQ(
      At(server.Ask("/v1/completions", text + "}"), {"choices", "0", "finish_reason"}).as_string(),
      "length");
  EXPECT_NE(server.Post("/v1/completions", text + R"(,"stream":true})")
                .find(R"("finish_reason":"length")"),
            std::string::npos);
  const std::string response = model + R"("input":"hi","max_output_tokens":4)";
  const Json cut = server.Ask("/v1/responses", response + "}");
  EXPECT_EQ(TextAt(cut, {"status"}), "incomplete");
  EXPECT_EQ(TextAt(cut, {"incomplete_details", "reason"}), "max_output_tokens");
  const std::string events = server.Post("/v1/responses", response + R"(,"stream":true})");
  EXPECT_NE(events.find("response.incomplete"), std::string::npos);
  EXPECT_NE(events.find(R"("reason":"max_output_tokens")"), std::string::npos);
  EXPECT_EQ(At(server.Ask("/v1/messages", chat + "}"), {"stop_reason"}).as_string(), "max_tokens");
  EXPECT_NE(server.Post("/v1/messages", chat + R"(,"stream":true})")
                .find(R"("stop_reason":"max_tokens")"),
            std::string::npos);
}

}  // namespace
}  // namespace minke::testing

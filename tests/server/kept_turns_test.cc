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

// The parser drops the empty lines, so that the text alone is not what was written.
constexpr const char* kOddText =
    "I think.\n\n</think>\n\n\nFive six seven eight nine ten eleven twelve thirteen.";
constexpr const char* kOddTextShown = "Five six seven eight nine ten eleven twelve thirteen.";

class TurnsServer {
 public:
  explicit TurnsServer(const TempDirectory& disk) {
    ScriptedModelOptions scripts;
    scripts.scripts = {{"<tool_result>", "It came.</think>Tea it is."},
                       {"find", kOddCall},
                       {"plain", kOddText},
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
    const test::RawAnswer answer =
        Ask(fmt::format("POST {} HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
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
  // Earlier turns whose exact tokens were known.
  int64_t TurnsFound() {
    constexpr std::string_view kLine = "minke_replay_turns_total{found=\"yes\"} ";
    const std::string metrics = Ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n").body;
    const size_t at = metrics.find(kLine);
    EXPECT_NE(at, std::string::npos) << metrics;
    return at == std::string::npos ? -1 : std::atoll(metrics.c_str() + at + kLine.size());
  }

 private:
  test::RawAnswer Ask(const std::string& request) {
    const std::string url = server_->url();
    test::RawClient client(
        static_cast<uint16_t>(std::atoi(url.substr(url.rfind(':') + 1).c_str())));
    return client.Ask(request);
  }

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

// ---- turns without calls, in all families ----

struct TurnFamily {
  const char* path;
  const char* list;        // of messages
  const char* max_tokens;  // the member
};
constexpr TurnFamily kTurnFamilies[] = {
    {"/v1/chat/completions", "messages", "max_tokens"},
    {"/v1/responses", "input", "max_output_tokens"},
    {"/v1/messages", "messages", "max_tokens"},
};

std::string TurnBody(const TurnFamily& family, const std::string& list, int max_tokens) {
  return fmt::format(R"({{"model":"deepseek-flash","{}":[{}],"{}":{}}})", family.list, list,
                     family.max_tokens, max_tokens);
}

std::string UserLine(const std::string& text) {
  return R"({"role":"user","content":")" + text + R"("})";
}

// Tokens of a prompt and its answer; and those of a prompt that came from the cache.
int64_t AllTokens(const TurnFamily& family, const Json& answer) {
  if (family.path != std::string("/v1/messages")) return Number(answer, {"usage", "total_tokens"});
  return Number(answer, {"usage", "input_tokens"}) +
         Number(answer, {"usage", "cache_read_input_tokens"}) +
         Number(answer, {"usage", "output_tokens"});
}
int64_t HitTokens(const TurnFamily& family, const Json& answer) {
  const std::string path = family.path;
  if (path == "/v1/messages") return Number(answer, {"usage", "cache_read_input_tokens"});
  const bool chat = path == "/v1/chat/completions";
  return Number(
      answer, {"usage", chat ? "prompt_tokens_details" : "input_tokens_details", "cached_tokens"});
}

// What the family shows of an answer's text.
std::string ShownText(const TurnFamily& family, const Json& answer) {
  const std::string path = family.path;
  if (path == "/v1/chat/completions") {
    return TextAt(answer, {"choices", "0", "message", "content"});
  }
  if (path == "/v1/messages") return TextAt(answer, {"content", "1", "text"});
  return TextAt(answer, {"output", "1", "content", "0", "text"});
}

TEST(KeptTurns, AClientThatSendsTheTextAloneHitsTheCacheToTheEndOfTheTurn) {
  const TempDirectory disk;
  TurnsServer server(disk);
  for (const TurnFamily& family : kTurnFamilies) {
    // Whole, and cut by the limit, which the client sees whole all the same.
    for (const int max_tokens : {400, 30}) {
      SCOPED_TRACE(fmt::format("{} {}", family.path, max_tokens));
      const std::string ask = UserLine(fmt::format("{} plain {}", family.path, max_tokens));
      const Json first = server.Ask(family.path, TurnBody(family, ask, max_tokens));
      const std::string text = ShownText(family, first);
      ASSERT_FALSE(text.empty());
      EXPECT_EQ(text == kOddTextShown, max_tokens == 400) << text;
      const std::string turn = R"(,{"role":"assistant","content":"\n)" + text + R"( "},)";
      const Json second =
          server.Ask(family.path, TurnBody(family, ask + turn + UserLine("and then?"), 40));
      EXPECT_GE(HitTokens(family, second), AllTokens(family, first) - 1);
      // Other words are no turn of the model's.
      const std::string edited = R"(,{"role":"assistant","content":"x)" + text + R"("},)";
      const Json third =
          server.Ask(family.path, TurnBody(family, ask + edited + UserLine("and then?"), 40));
      EXPECT_LT(HitTokens(family, third), AllTokens(family, first) - 1);
    }
  }
}

// A client that has shortened its history keeps the latest turns as they were: by their ids they
// are still what the model wrote, though nothing before them is.
TEST(KeptTurns, ATurnIsKnownByTheIdsOfItsItemsAfterAnotherBeginning) {
  const TempDirectory disk;
  TurnsServer server(disk);
  const TurnFamily& responses = kTurnFamilies[1];
  const Json response =
      server.Ask(responses.path, TurnBody(responses, UserLine("plain and long"), 400));
  const std::string text =
      R"(,"content":[{"type":"output_text","text":")" + std::string(kOddTextShown) + R"("}]},)";
  const auto ask = [&](const std::string& item) {
    const int64_t before = server.TurnsFound();
    server.Ask(responses.path,
               TurnBody(responses, UserLine("short") + item + UserLine("and then?"), 40));
    return server.TurnsFound() - before;
  };
  const std::string message = R"({"type":"message","role":"assistant","id":")";
  EXPECT_EQ(ask("," + message + "msg_other\"" + text), 0);
  EXPECT_EQ(ask("," + message + TextAt(response, {"output", "1", "id"}) + "\"" + text), 1);
  // The item of the reasoning tells as well.
  EXPECT_EQ(ask(R"(,{"type":"reasoning","summary":[],"id":")" +
                TextAt(response, {"output", "0", "id"}) + "\"}," + message + "msg_other\"" + text),
            1);
  // In Messages the signature of the thinking does, which is the id of the message.
  const TurnFamily& messages = kTurnFamilies[2];
  const Json answer =
      server.Ask(messages.path, TurnBody(messages, UserLine("plain and longer"), 400));
  const auto ask_signed = [&](const std::string& signature) {
    const int64_t before = server.TurnsFound();
    const std::string turn =
        fmt::format(R"(,{{"role":"assistant","content":[{{"type":"thinking","thinking":"I think.",)"
                    R"("signature":"{}"}},{{"type":"text","text":"{}"}}]}},)",
                    signature, kOddTextShown);
    server.Ask(messages.path,
               TurnBody(messages, UserLine("short") + turn + UserLine("and then?"), 40));
    return server.TurnsFound() - before;
  };
  EXPECT_EQ(ask_signed("of another service"), 0);
  EXPECT_EQ(ask_signed(TextAt(answer, {"content", "0", "signature"})), 1);
}

// Calls of the other two families, spelled anew: their arguments are a text in Responses and a
// value in Messages.
TEST(KeptTurns, CallsOfAgentsHitTheCacheToTheEndOfTheTurn) {
  const TempDirectory disk;
  TurnsServer server(disk);
  const std::string schema =
      R"({"type":"object","properties":{"what":{"type":"string"},"where":{"type":"object"}}})";
  const std::string responses_tools =
      R"("tools":[{"type":"function","name":"find","parameters":)" + schema + "}]";
  const auto respond = [&](const std::string& list) {
    return server.Ask("/v1/responses", R"({"model":"deepseek-flash",)" + responses_tools +
                                           R"(,"input":[)" + list + "]}");
  };
  const Json first = respond(UserLine("find it"));
  const std::string call_id = TextAt(first, {"output", "2", "call_id"});
  ASSERT_FALSE(call_id.empty());
  const Json second = respond(
      UserLine("find it") +
      R"(,{"type":"message","role":"assistant","content":"Let me see."},{"type":"function_call",)"
      R"("name":"find","arguments":"{\"what\":\"tea\", \"where\":{\"b\":1,\"a\":2}}","call_id":")" +
      call_id + R"("},{"type":"function_call_output","output":"here","call_id":")" + call_id +
      R"("})");
  EXPECT_GE(HitTokens(kTurnFamilies[1], second), AllTokens(kTurnFamilies[1], first) - 1);

  const auto message = [&](const std::string& list) {
    return server.Ask("/v1/messages",
                      R"({"model":"deepseek-flash","max_tokens":400,"tools":[{"name":"find",)"
                      R"("input_schema":)" +
                          schema + R"(}],"messages":[)" + list + "]}");
  };
  const Json call = message(UserLine("find it"));
  const std::string use_id = TextAt(call, {"content", "2", "id"});
  ASSERT_FALSE(use_id.empty());
  const Json result = message(
      UserLine("find it") +
      R"(,{"role":"assistant","content":[{"type":"text","text":"Let me see."},{"type":"tool_use",)"
      R"("name":"find","input":{"what":"tea","where":{"a":2,"b":1}},"id":")" +
      use_id +
      R"("}]},{"role":"user","content":[{"type":"tool_result","content":"here","tool_use_id":")" +
      use_id + R"("}]})");
  EXPECT_GE(HitTokens(kTurnFamilies[2], result), AllTokens(kTurnFamilies[2], call) - 1);
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

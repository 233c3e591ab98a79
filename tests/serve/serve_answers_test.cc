// What every answer of the whole server has, whichever part of it answers.
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/serve/serve_support.h"
#include "tests/serve/whole_server.h"

namespace minke::testing {
namespace {

constexpr int64_t kSmallBodyBytes = 2000;

// Lines of the log, from any thread.
class LogLines {
 public:
  void Add(std::string_view line) {
    const std::lock_guard<std::mutex> lock(mutex_);
    text_ += std::string(line) + "\n";
  }
  bool Has(const std::string& part) const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return text_.find(part) != std::string::npos;
  }

 private:
  mutable std::mutex mutex_;
  std::string text_;
};

std::unique_ptr<WholeServer> StartForAnswers(LogLines* log, ForwardFunction forward = {}) {
  WholeServerOptions options;
  options.model_dir = std::string(MINKE_GOLDEN_DIR) + "/chat";
  options.engine.threads = 1;
  options.engine.forward = std::move(forward);
  options.script.scripts = {{"", "Hm.</think>So it is."}};
  options.server.http.body_bytes_max = kSmallBodyBytes;
  options.server.http.header_bytes_max = kSmallBodyBytes;
  options.server.log = [log](std::string_view line) { log->Add(line); };
  auto server = WholeServer::Start(std::move(options));
  EXPECT_TRUE(server.has_value()) << server.error().message;
  return server.has_value() ? std::move(*server) : nullptr;
}

std::string HeaderOf(const test::RawAnswer& answer, const std::string& name) {
  const auto header = answer.headers.find(name);
  return header != answer.headers.end() ? header->second : std::string();
}

std::string Plain(const std::string& method, const std::string& path,
                  const std::string& headers = "") {
  return method + " " + path + " HTTP/1.1\r\nHost: localhost\r\n" + headers + "\r\n";
}

struct ErrorOf {
  std::string type;
  std::string code;  // of the OpenAI families
  std::string message;
  std::string request_id;  // of Messages
};
ErrorOf ReadError(const std::string& body) {
  const auto text = [](const Json& json, std::string_view name) {
    const Json* member = json.Find(name);
    return member != nullptr && member->is_string() ? member->as_string() : std::string();
  };
  const Result<Json> json = ParseJson(body, "body");
  EXPECT_TRUE(json.has_value()) << body;
  if (!json.has_value()) return {};
  const Json* error = json->Find("error");
  EXPECT_NE(error, nullptr) << body;
  if (error == nullptr) return {};
  return {text(*error, "type"), text(*error, "code"), text(*error, "message"),
          text(*json, "request_id")};
}

TEST(ServeAnswers, EveryOneHasARequestId) {
  LogLines log;
  const auto server = StartForAnswers(&log);
  ASSERT_NE(server, nullptr);
  const std::string large(kSmallBodyBytes + 1, 'x');
  const std::string chat =
      R"({"model":"deepseek-flash","messages":[{"role":"user","content":"hi"}],"stream":true})";
  struct Case {
    std::string request;
    int status;
  };
  const std::vector<Case> cases = {
      {Plain("GET", "/"), 200},
      {Plain("GET", "/health"), 200},
      {Plain("GET", "/metrics"), 200},
      {Plain("GET", "/v1/models"), 200},
      {Plain("GET", "/v1/usage"), 200},
      {Plain("OPTIONS", "/v1/messages"), 204},
      {Plain("GET", "/nothing"), 404},
      {Plain("DELETE", "/v1/models"), 405},
      {"GET / HTTP/1.1\r\nHost: other\r\n\r\n", 403},
      {PostTo("/v1/chat/completions", chat), 200},
      {PostTo("/v1/chat/completions", "{"), 400},
      {PostTo("/v1/chat/completions", large), 413},
      {PostTo("/v1/responses", large), 413},
      {PostTo("/v1/messages", large), 413},
      {"x\r\n\r\n", 400},
      {Plain("GET", "/", "A: " + large + "\r\n"), 431},
      {Plain("POST", "/v1/messages", "Transfer-Encoding: gzip\r\n"), 501},
  };
  for (const Case& one : cases) {
    const std::string shown = one.request.substr(0, 60);
    test::RawClient client(server->port());
    const test::RawAnswer answer = client.Ask(one.request);
    EXPECT_EQ(answer.status, one.status) << shown;
    const std::string id = HeaderOf(answer, "x-request-id");
    EXPECT_FALSE(id.empty()) << shown;
    if (one.status < 400) continue;
    const ErrorOf error = ReadError(answer.body);
    const bool messages = shown.find("/v1/messages") != std::string::npos;
    EXPECT_EQ(error.request_id, messages ? id : std::string()) << shown;
    EXPECT_TRUE(log.Has(R"("request_id":")" + id + "\"")) << shown;
  }
  // The client's own, also where only the HTTP server saw it.
  for (const std::string& body : {std::string("{"), large}) {
    test::RawClient client(server->port());
    const test::RawAnswer answer = client.Ask(
        "POST /v1/messages HTTP/1.1\r\nHost: localhost\r\nX-Request-Id: mine-7\r\n"
        "Content-Length: " +
        std::to_string(body.size()) + "\r\n\r\n" + body);
    EXPECT_EQ(HeaderOf(answer, "x-request-id"), "mine-7");
    EXPECT_EQ(ReadError(answer.body).request_id, "mine-7");
  }
}

TEST(ServeAnswers, AnErrorInAStreamNamesTheRequest) {
  LogLines log;
  const auto server =
      StartForAnswers(&log, [](std::span<const ForwardSequence> sequences) -> Status {
        for (const ForwardSequence& sequence : sequences) {
          constexpr size_t kTokensMax = 60;
          if (sequence.history.size() > kTokensMax) return Fail(ErrorCode::kModel, "It broke.");
          if (!sequence.logits.empty()) sequence.logits[5] = 1e9F;
        }
        return {};
      });
  ASSERT_NE(server, nullptr);
  test::RawClient client(server->port());
  const test::RawAnswer answer = client.Ask(PostTo(
      "/v1/messages",
      R"({"model":"deepseek-flash","max_tokens":200,"stream":true,"messages":[{"role":"user",)"
      R"("content":"hi"}]})"));
  EXPECT_EQ(answer.status, 200);
  const size_t event = answer.body.find("event: error\ndata: ");
  ASSERT_NE(event, std::string::npos) << answer.body;
  const size_t data = answer.body.find('{', event);
  const ErrorOf error = ReadError(answer.body.substr(data, answer.body.find('\n', data) - data));
  EXPECT_EQ(error.type, "api_error");
  EXPECT_EQ(error.request_id, HeaderOf(answer, "x-request-id"));
}

// A name that nobody knows is not there: 404, in the envelope of who asks.
TEST(ServeAnswers, AModelThatIsNotThereIsA404) {
  LogLines log;
  const auto server = StartForAnswers(&log);
  ASSERT_NE(server, nullptr);
  const auto ask = [&](const std::string& path, const std::string& headers = "") {
    test::RawClient client(server->port());
    return client.Ask(Plain("GET", path, headers));
  };
  EXPECT_EQ(ask("/v1/models/deepseek-flash").status, 200);
  EXPECT_EQ(ask("/models/claude-sonnet-5").status, 200) << "an alias";
  for (const char* path : {"/v1/models/gpt-9", "/models/gpt-9", "/beta/v1/models/a/b"}) {
    const test::RawAnswer answer = ask(path);
    EXPECT_EQ(answer.status, 404) << path;
    const ErrorOf error = ReadError(answer.body);
    EXPECT_EQ(error.code, "model_not_found");
    EXPECT_EQ(error.type, "invalid_request_error");
    EXPECT_NE(error.message.find("deepseek-flash"), std::string::npos) << "what there is";
  }
  for (const test::RawAnswer& answer :
       {ask("/anthropic/v1/models/gpt-9"),
        ask("/v1/models/gpt-9", "anthropic-version: 2023-06-01\r\n")}) {
    EXPECT_EQ(answer.status, 404);
    const ErrorOf error = ReadError(answer.body);
    EXPECT_EQ(error.type, "not_found_error");
    EXPECT_EQ(error.request_id, HeaderOf(answer, "x-request-id"));
  }
  // A request with the name is a bad one, as with the hosted service (serving.md 1.1).
  test::RawClient client(server->port());
  EXPECT_EQ(client
                .Ask(PostTo("/v1/chat/completions",
                            R"({"model":"gpt-9","messages":[{"role":"user","content":"hi"}]})"))
                .status,
            400);
}

}  // namespace
}  // namespace minke::testing

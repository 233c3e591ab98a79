// The bytes of what a model writes come apart anywhere: whatever the split, a stream joins to the
// answer that comes whole. Over the answers of tests/golden/server, without sockets.
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "core/file.h"
#include "core/json.h"
#include "server/answer_task.h"
#include "tests/serve/family_answers.h"
#include "tests/serve/joined_answer.h"
#include "tests/support/scripted_model.h"

namespace minke::testing {
namespace {

// Collects what an answer sends.
class KeptExchange : public HttpExchange {
 public:
  explicit KeptExchange(std::string* bytes) : bytes_(bytes) {}
  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override { return {}; }
  void Respond(int /*status*/, HttpHeaders /*headers*/, std::string body) override {
    *bytes_ += body;
  }
  void Start(int /*status*/, HttpHeaders /*headers*/) override {}
  void Send(std::string bytes) override { *bytes_ += bytes; }
  void Close() override {}
  void OnGone(std::function<void()> /*callback*/) override {}
  bool gone() const override { return false; }

 private:
  HttpRequest request_;
  std::string* const bytes_;
};

class QuietHost : public AnswerHost {
 public:
  void Price(Usage* /*usage*/) const override {}
  void OnInterTokenSeconds(double /*seconds*/) override {}
  void OnKeepAlive() override {}
  std::string TokenBytes(int32_t /*id*/) const override { return {}; }
  void OnAnswerEnd(const AnswerRecord& /*record*/) override {}
  void KeepTurn(const TurnPlace& /*place*/, WrittenTurn /*turn*/) override {}
};

struct ByteToken {
  std::string bytes;
  bool is_control = false;
};

// What the model writes, in its own tokens.
std::vector<ByteToken> TokensOf(const Tokenizer& tokenizer, const ApiRequest& request,
                                std::string_view says) {
  constexpr std::string_view kOpened = "\n\n<｜DSML｜ calls>\n";  // by the prompt, not by the model
  if (request.in_calls()) says.remove_prefix(kOpened.size());
  std::vector<ByteToken> tokens;
  for (const int32_t id : ScriptIds(tokenizer, says)) {
    tokens.push_back({std::string(tokenizer.TokenBytes(id)), tokenizer.IsControl(id)});
  }
  return tokens;
}

// The runs of plain bytes between control tokens, which come whole, cut before the byte `at`,
// counted over all of them; kWhole: nowhere, kBytes: everywhere.
constexpr int64_t kWhole = -1;
constexpr int64_t kBytes = -2;
std::vector<ByteToken> SplitAt(const std::vector<ByteToken>& tokens, int64_t at) {
  std::vector<ByteToken> split;
  bool open = false;  // the last one is a run that goes on
  int64_t byte = 0;
  for (const ByteToken& token : tokens) {
    if (token.is_control) {
      split.push_back(token);
      open = false;
      continue;
    }
    for (const char c : token.bytes) {
      if (!open || at == kBytes || byte == at) split.emplace_back();
      split.back().bytes += c;
      open = true;
      ++byte;
    }
  }
  return split;
}

std::string WriteTask(const ApiRequest& request, const std::vector<ByteToken>& tokens) {
  QuietHost host;
  std::string bytes;
  AnswerJob job;
  job.request = request;
  job.ids = {
      .id = "0123456789abcdef0123456789abcdef", .created = 1, .model = "m", .fingerprint = "f"};
  AnswerTask task(host, std::move(job), std::make_shared<KeptExchange>(&bytes));
  task.Begin();
  task.OnStart({});
  ServiceResult result;
  result.finish_reason = FinishReason::kStop;
  for (const ByteToken& token : tokens) {
    ServiceToken drawn;
    drawn.bytes = token.bytes;
    drawn.is_control = token.is_control;
    ++result.answer_tokens;
    if (task.OnToken(drawn) == AnswerVerdict::kEnough) break;
  }
  task.OnEnd(result);
  return bytes;
}

using SplitReadFunction = ApiResult<ApiRequest> (*)(const Json&, const ApiReadOptions&);
SplitReadFunction ReaderOf(ApiFamily family) {
  switch (family) {
    case ApiFamily::kChat:
      return ReadChatRequest;
    case ApiFamily::kCompletions:
      return ReadCompletionsRequest;
    case ApiFamily::kResponses:
      return ReadResponsesRequest;
    case ApiFamily::kMessages:
      return ReadMessagesRequest;
  }
  return nullptr;
}

ApiRequest RequestOf(ApiFamily family, const Json& golden, bool stream) {
  Json body = *golden.Find("request");
  body.Set("stream", stream);
  ApiResult<ApiRequest> request = ReaderOf(family)(body, {});
  EXPECT_TRUE(request.has_value()) << request.error().message;
  return request.has_value() ? std::move(*request) : ApiRequest();
}

void ExpectSplitsJoin(ApiFamily family, const Tokenizer& tokenizer, const Json& golden) {
  const ApiRequest streamed = RequestOf(family, golden, true);
  const ApiRequest whole = RequestOf(family, golden, false);
  const std::vector<ByteToken> tokens =
      TokensOf(tokenizer, whole, golden.Find("says")->as_string());
  const std::string expected = JoinBody(family, WriteTask(whole, SplitAt(tokens, kWhole)));
  ASSERT_EQ(expected.find("BAD"), std::string::npos) << expected;
  const auto joined = [&](const std::vector<ByteToken>& split) {
    return JoinEvents(family, EventsOf(WriteTask(streamed, split)));
  };
  ASSERT_EQ(joined(SplitAt(tokens, kWhole)), expected);
  ASSERT_EQ(joined(tokens), expected) << "in tokens";
  ASSERT_EQ(joined(SplitAt(tokens, kBytes)), expected) << "byte by byte";
  ASSERT_EQ(JoinBody(family, WriteTask(whole, SplitAt(tokens, kBytes))), expected);
  int64_t bytes = 0;
  for (const ByteToken& token : tokens) bytes += static_cast<int64_t>(token.bytes.size());
  for (int64_t at = 1; at < bytes; ++at) {
    ASSERT_EQ(joined(SplitAt(tokens, at)), expected) << "split before byte " << at;
  }
}

TEST(ServerGolden, EveryByteSplitJoinsToTheWholeAnswer) {
  const std::string golden_dir = MINKE_GOLDEN_DIR;
  const Result<Tokenizer> tokenizer = Tokenizer::Load(golden_dir + "/chat/tokenizer.json");
  ASSERT_TRUE(tokenizer.has_value()) << tokenizer.error().message;
  const std::vector<std::pair<ApiFamily, std::string>> files = {
      {ApiFamily::kChat, "chat"},
      {ApiFamily::kCompletions, "completions"},
      {ApiFamily::kResponses, "responses"},
      {ApiFamily::kMessages, "messages"}};
  for (const auto& [family, name] : files) {
    const std::string path = golden_dir + "/server/" + name + ".json";
    constexpr uint64_t kBytesMax = 1 << 20;
    const Result<std::string> text = ReadFile(path, kBytesMax);
    ASSERT_TRUE(text.has_value()) << text.error().message;
    const Result<Json> cases = ParseJson(*text, path);
    ASSERT_TRUE(cases.has_value()) << cases.error().message;
    ASSERT_GT(cases->as_array().size(), 4U);
    for (const Json& golden : cases->as_array()) {
      SCOPED_TRACE(name + " " + golden.Find("name")->as_string());
      ExpectSplitsJoin(family, *tokenizer, golden);
    }
  }
}

}  // namespace
}  // namespace minke::testing

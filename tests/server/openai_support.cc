#include "tests/server/openai_support.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

#include "tests/support/golden.h"
#include "text/utf8.h"

namespace minke::testing {

namespace {

Json Sorted(const Json& value) {
  if (value.is_array()) {
    JsonArray list;
    for (const Json& entry : value.as_array()) list.push_back(Sorted(entry));
    return Json(std::move(list));
  }
  if (!value.is_object()) return value;
  JsonObject members;
  for (const JsonMember& member : value.as_object()) {
    members.emplace_back(member.first, Sorted(member.second));
  }
  std::sort(members.begin(), members.end(),
            [](const JsonMember& a, const JsonMember& b) { return a.first < b.first; });
  return Json(std::move(members));
}

std::string TextOf(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value == nullptr ? "" : value->as_string();
}

AnswerFinish FinishOf(const std::string& name) {
  const std::pair<const char*, AnswerFinish> kFinishes[] = {
      {"stop", AnswerFinish::kStop},
      {"stop_string", AnswerFinish::kStopString},
      {"length", AnswerFinish::kLength},
      {"tool_calls", AnswerFinish::kToolCalls},
      {"overloaded", AnswerFinish::kOverloaded}};
  for (const auto& [known, finish] : kFinishes) {
    if (name == known) return finish;
  }
  CHECK(false, name);
  return AnswerFinish::kStop;
}

AnswerPiece PieceOf(const Json& step) {
  using Kind = AnswerPiece::Kind;
  AnswerPiece piece;
  if (step.Find("reasoning") != nullptr) {
    piece.kind = Kind::kReasoning;
    piece.text = TextOf(step, "reasoning");
  } else if (step.Find("content") != nullptr) {
    piece.kind = Kind::kContent;
    piece.text = TextOf(step, "content");
  } else if (const Json* call = step.Find("call")) {
    piece.kind = Kind::kToolCall;
    piece.tool_index = static_cast<int>(call->as_int());
    piece.tool_namespace = TextOf(step, "namespace");
    piece.name = TextOf(step, step.Find("short_name") == nullptr ? "name" : "short_name");
  } else if (const Json* arguments = step.Find("arguments")) {
    piece.kind = Kind::kToolArguments;
    piece.tool_index = static_cast<int>(arguments->as_int());
    piece.text = TextOf(step, "text");
  } else {
    const Json* end = step.Find("call_end");
    CHECK(end != nullptr, DumpJson(step, JsonStyle::kCompact));
    piece.kind = Kind::kToolCallEnd;
    piece.tool_index = static_cast<int>(end->as_int());
  }
  return piece;
}

void PlayLogprob(const Json& step, AnswerWriter* writer) {
  ApiLogprob logprob;
  logprob.bytes = TextOf(step, "logprob");
  logprob.logprob = step.Find("value")->as_double();
  for (const Json& pair : step.Find("top")->as_array()) {
    logprob.alternatives.emplace_back(pair.as_array()[0].as_string(),
                                      pair.as_array()[1].as_double());
  }
  writer->Logprob(logprob, step.Find("in_reasoning")->as_bool());
}

std::string PlayStep(const Json& step, AnswerWriter* writer) {
  if (step.Find("logprob") != nullptr) {
    PlayLogprob(step, writer);
    return {};
  }
  if (step.Find("end") != nullptr) {
    AnswerEnd end;
    end.finish = FinishOf(TextOf(step, "end"));
    end.stop_string = TextOf(step, "stop_string");
    end.usage = GoldenUsage();
    return writer->End(end);
  }
  if (step.Find("error") != nullptr) {
    return writer->Error(GoldenStreamError(TextOf(step, "error")));
  }
  return writer->Piece(PieceOf(step));
}

}  // namespace

std::string CanonicalJson(const Json& value) {
  return DumpJson(Sorted(value), JsonStyle::kCompact);
}

Json MustParseJson(std::string_view text) {
  Result<Json> value = ParseJson(text, "test input");
  CHECK(value.has_value(), value.error().message);
  return std::move(*value);
}

AnswerIds GoldenIdsOfAnswer() {
  return {.id = "0123456789abcdef0123456789abcdef",
          .created = 1'790'000'000,
          .model = "deepseek-flash",
          .fingerprint = "fp_minke",
          .request_id = "0123456789abcdef0123456789abcdef"};
}

Usage GoldenUsage() {
  Usage usage;
  usage.prompt_tokens = 100;
  usage.hit_tokens = 64;
  usage.miss_tokens = 36;
  usage.completion_tokens = 20;
  usage.reasoning_tokens = 5;
  usage.cache.cached_tokens = 64;
  usage.cache.ram_tokens = 60;
  usage.cache.disk_tokens = 4;
  usage.cache.replayed_tokens = 30;
  usage.cache.computed_tokens = 6;
  usage.cache.tier = "disk";
  usage.cache.reason = "diverged";
  usage.cache.first_difference = 70;
  usage.cost = 0.25;
  usage.currency = "USD";
  usage.queue_seconds = 0.5;
  usage.prefill_seconds = 1.5;
  usage.decode_seconds = 2.5;
  return usage;
}

ApiError GoldenStreamError(std::string message) {
  ApiError error;
  error.status = 500;
  error.message = std::move(message);
  error.type = "internal_error";
  error.code = "internal_error";
  return error;
}

void SseReader::Push(std::string_view bytes) {
  for (const char byte : bytes) {
    if (byte == '\n') {
      EndLine();
    } else {
      line_ += byte;
    }
  }
}

void SseReader::EndLine() {
  constexpr std::string_view kData = "data: ";
  constexpr std::string_view kName = "event: ";
  const std::string line = std::exchange(line_, "");
  if (line.empty()) {
    if (data_.empty()) return;
    events_.push_back(std::exchange(data_, ""));
    names_.push_back(std::exchange(name_, ""));
    return;
  }
  if (line[0] == ':') {
    // A comment never stands inside an event (6.F 93).
    EXPECT_EQ(data_, "");
    comments_.push_back(line);
    return;
  }
  if (line.compare(0, kName.size(), kName) == 0) {
    EXPECT_EQ(name_ + data_, "") << "a name inside an event";
    name_ = line.substr(kName.size());
    return;
  }
  ASSERT_EQ(line.substr(0, kData.size()), kData);
  ASSERT_EQ(data_, "") << "two data lines in one event";
  data_ = line.substr(kData.size());
}

ApiRequest MustRead(ReadFunction read, const Json& body) {
  ApiResult<ApiRequest> request = read(body, ApiReadOptions());
  CHECK(request.has_value(), request.error().message);
  return std::move(*request);
}

void ExpectGoldenAnswer(const Json& golden, ReadFunction read, WriterFunction make) {
  SCOPED_TRACE(TextOf(golden, "name"));
  const ApiRequest request = MustRead(read, *golden.Find("request"));
  const std::unique_ptr<AnswerWriter> writer = make(request, GoldenIdsOfAnswer());
  std::string written = writer->Start(GoldenUsage());
  for (const Json& step : golden.Find("answer")->as_array()) {
    written += PlayStep(step, writer.get());
  }
  const Json* frames = golden.Find("frames");
  EXPECT_EQ(request.stream, frames != nullptr);
  if (frames == nullptr) {
    EXPECT_EQ(CanonicalJson(MustParseJson(written)), CanonicalJson(*golden.Find("body")));
    return;
  }
  SseReader reader;
  reader.Push(written);
  EXPECT_TRUE(reader.at_border());
  ASSERT_EQ(reader.events().size(), frames->as_array().size());
  for (size_t i = 0; i < reader.events().size(); ++i) {
    const Json& frame = frames->as_array()[i];
    if (frame.is_string()) {
      EXPECT_EQ(reader.events()[i], frame.as_string());
    } else {
      EXPECT_EQ(CanonicalJson(MustParseJson(reader.events()[i])), CanonicalJson(frame));
    }
  }
}

void ExpectGoldenErrors(const std::string& path, ReadFunction read) {
  const Json file = GoldenJson(path);
  const Json& base = *file.Find("base");
  ASSERT_TRUE(read(base, ApiReadOptions()).has_value());
  ASSERT_GT(file.Find("cases")->as_array().size(), 0U);
  for (const Json& golden : file.Find("cases")->as_array()) {
    SCOPED_TRACE(TextOf(golden, "name"));
    Json body = base;
    if (const Json* changes = golden.Find("set")) {
      for (const JsonMember& member : changes->as_object()) body.Set(member.first, member.second);
    }
    if (const Json* removed = golden.Find("remove")) {
      for (const Json& key : removed->as_array()) body.Set(key.as_string(), Json());
    }
    const ApiResult<ApiRequest> request = read(body, ApiReadOptions());
    if (request.has_value()) {
      ADD_FAILURE() << "accepted";
      continue;
    }
    EXPECT_EQ(request.error().status, golden.Find("status")->as_int());
    EXPECT_EQ(request.error().code, "invalid_request_error");
    EXPECT_EQ(request.error().type, "invalid_request_error");
    EXPECT_EQ(request.error().param, TextOf(golden, "param")) << request.error().message;
    const std::string exact = TextOf(golden, "message");
    if (!exact.empty()) {
      EXPECT_EQ(request.error().message, exact);
    }
    const std::string part = TextOf(golden, "contains");
    EXPECT_NE(request.error().message.find(part), std::string::npos) << request.error().message;
    EXPECT_NE(exact + part, "");
  }
}

std::string WriteAnswer(AnswerWriter* writer, const std::vector<AnswerPiece>& pieces,
                        AnswerFinish finish) {
  std::string written = writer->Start(GoldenUsage());
  for (const AnswerPiece& piece : pieces) written += writer->Piece(piece);
  AnswerEnd end;
  end.finish = finish;
  end.usage = GoldenUsage();
  return written + writer->End(end);
}

std::vector<AnswerPiece> SplitPieces(const std::vector<AnswerPiece>& pieces, unsigned seed) {
  std::mt19937 generator(seed);
  std::vector<AnswerPiece> split;
  for (const AnswerPiece& piece : pieces) {
    std::string_view rest = piece.text;
    do {
      size_t bytes = rest.empty() ? 0 : generator() % (rest.size() + 1);
      bytes = ValidUtf8Prefix(rest.substr(0, bytes));
      if (bytes == 0) bytes = rest.empty() ? 0 : static_cast<size_t>(ReadUtf8(rest).bytes);
      AnswerPiece part = piece;
      part.text = std::string(rest.substr(0, bytes));
      split.push_back(std::move(part));
      rest.remove_prefix(bytes);
    } while (!rest.empty());
  }
  return split;
}

}  // namespace minke::testing

#include "tests/serve/family_answers.h"

#include <fmt/format.h>

#include "core/json.h"

namespace minke::testing {
namespace {

std::string MemberText(const Json& json, std::string_view name) {
  const Json* member = json.Find(name);
  return member != nullptr && member->is_string() ? member->as_string() : std::string();
}

const Json* FirstOf(const Json& json, std::string_view name) {
  const Json* list = json.Find(name);
  const bool any = list != nullptr && list->is_array() && !list->as_array().empty();
  return any ? &list->as_array().front() : nullptr;
}

// The texts of the parts of a list that have the type.
std::string TextsOf(const Json* list, std::string_view type) {
  std::string text;
  if (list == nullptr || !list->is_array()) return text;
  for (const Json& part : list->as_array()) {
    if (MemberText(part, "type") == type) text += MemberText(part, "text");
  }
  return text;
}

std::string TextOfEvent(ApiFamily family, const Json& event) {
  const std::string type = MemberText(event, "type");
  switch (family) {
    case ApiFamily::kChat: {
      const Json* choice = FirstOf(event, "choices");
      const Json* delta = choice != nullptr ? choice->Find("delta") : nullptr;
      return delta != nullptr ? MemberText(*delta, "content") : std::string();
    }
    case ApiFamily::kCompletions: {
      const Json* choice = FirstOf(event, "choices");
      return choice != nullptr ? MemberText(*choice, "text") : std::string();
    }
    case ApiFamily::kResponses:
      return type == "response.output_text.delta" ? MemberText(event, "delta") : std::string();
    case ApiFamily::kMessages: {
      const Json* delta = event.Find("delta");
      return type == "content_block_delta" && delta != nullptr ? MemberText(*delta, "text")
                                                               : std::string();
    }
  }
  return {};
}

std::string LastEventOf(ApiFamily family) {
  switch (family) {
    case ApiFamily::kResponses:
      return "response.completed";
    case ApiFamily::kMessages:
      return "message_stop";
    default:
      return "[DONE]";
  }
}

}  // namespace

const char* PathOf(ApiFamily family) {
  switch (family) {
    case ApiFamily::kChat:
      return "/v1/chat/completions";
    case ApiFamily::kCompletions:
      return "/v1/completions";
    case ApiFamily::kResponses:
      return "/v1/responses";
    case ApiFamily::kMessages:
      return "/v1/messages";
  }
  return "";
}

std::string QuestionBody(ApiFamily family, std::string_view question, bool stream) {
  std::string rest;
  switch (family) {
    case ApiFamily::kChat:
      rest = fmt::format(R"("messages":[{{"role":"user","content":"{}"}}],)"
                         R"("thinking":{{"type":"disabled"}})",
                         question);
      break;
    case ApiFamily::kCompletions:
      rest = fmt::format(R"("prompt":"{}\n")", question);
      break;
    case ApiFamily::kResponses:
      rest = fmt::format(R"("input":"{}","reasoning":{{"effort":"none"}})", question);
      break;
    case ApiFamily::kMessages:
      rest = fmt::format(R"("messages":[{{"role":"user","content":"{}"}}],)"
                         R"("thinking":{{"type":"disabled"}})",
                         question);
      break;
  }
  const char* const limit = family == ApiFamily::kResponses ? "max_output_tokens" : "max_tokens";
  return fmt::format(R"({{"model":"deepseek-flash","stream":{},"temperature":0,"{}":600,{}}})",
                     stream, limit, rest);
}

std::string AnswerTextOf(ApiFamily family, std::string_view body) {
  const Result<Json> json = ParseJson(body, "the answer");
  if (!json) return "BAD: " + json.error().message;
  const Json* choice = FirstOf(*json, "choices");
  switch (family) {
    case ApiFamily::kChat: {
      const Json* message = choice != nullptr ? choice->Find("message") : nullptr;
      return message != nullptr ? MemberText(*message, "content") : "BAD: " + std::string(body);
    }
    case ApiFamily::kCompletions:
      return choice != nullptr ? MemberText(*choice, "text") : "BAD: " + std::string(body);
    case ApiFamily::kMessages:
      return TextsOf(json->Find("content"), "text");
    case ApiFamily::kResponses:
      break;
  }
  std::string text;
  const Json* output = json->Find("output");
  if (output == nullptr || !output->is_array()) return "BAD: " + std::string(body);
  for (const Json& item : output->as_array()) text += TextsOf(item.Find("content"), "output_text");
  return text;
}

std::string StreamedTextOf(ApiFamily family, std::string_view events) {
  constexpr std::string_view kData = "data: ";
  std::string text;
  std::string last;
  while (!events.empty()) {
    const size_t end = std::min(events.find('\n'), events.size() - 1);
    std::string_view line = events.substr(0, end);
    events.remove_prefix(end + 1);
    if (!line.starts_with(kData)) continue;
    line.remove_prefix(kData.size());
    last = line;
    if (line == "[DONE]") continue;
    const Result<Json> event = ParseJson(line, "an event");
    if (!event) return "BAD: " + event.error().message;
    text += TextOfEvent(family, *event);
    if (event->Find("error") != nullptr && !event->Find("error")->is_null()) {
      return "BAD: " + std::string(line);
    }
  }
  if (last.find(LastEventOf(family)) == std::string::npos) return "BAD: the last event is " + last;
  return text;
}

}  // namespace minke::testing

#include "tests/serve/joined_answer.h"

#include <map>
#include <utility>

namespace minke::testing {
namespace {

const Json& NoJson() {
  static const Json kNothing;
  return kNothing;
}

const Json& MemberOf(const Json& json, std::string_view name) {
  const Json* member = json.Find(name);
  return member != nullptr ? *member : NoJson();
}

std::string WordOf(const Json& json, std::string_view name) {
  const Json& member = MemberOf(json, name);
  return member.is_string() ? member.as_string() : std::string();
}

const JsonArray& ListOf(const Json& json, std::string_view name) {
  static const JsonArray kNone;
  const Json& member = MemberOf(json, name);
  return member.is_array() ? member.as_array() : kNone;
}

// The same spelling for equal arguments; text that is no JSON as it stands.
std::string Respelled(const std::string& arguments) {
  const Result<Json> json = ParseJson(arguments, "arguments");
  return json ? DumpJson(*json, JsonStyle::kCompact) : arguments;
}

class JoinedParts {
 public:
  // More of the part with that key, which begins where it is not the last one's.
  void Add(const std::string& key, const std::string& kind, const std::string& text) {
    if (parts_.empty() || parts_.back().key != key) {
      if (text.empty()) return;
      parts_.push_back({key, kind, {}});
    }
    parts_.back().text += text;
  }
  void Call(const std::string& key, const std::string& name, const std::string& id) {
    parts_.push_back({key, "call " + name + " " + id, {}});
  }
  void Arguments(const std::string& key, const std::string& text) {
    for (Part& part : parts_) {
      if (part.key == key) part.text += text;
    }
  }
  void End(const std::string& reason) { end_ += reason; }
  void Bad(const std::string& what) { end_ += " BAD " + what; }

  std::string Lines() const {
    std::string lines;
    for (const Part& part : parts_) {
      const bool call = part.kind.starts_with("call ");
      lines += part.kind + " " + (call ? Respelled(part.text) : part.text) + "\n";
    }
    return lines + "end " + end_;
  }

 private:
  struct Part {
    std::string key;
    std::string kind;
    std::string text;
  };
  std::vector<Part> parts_;
  std::string end_;
};

std::string WholeArguments(const Json& value) {
  return value.is_string() ? value.as_string() : DumpJson(value, JsonStyle::kCompact);
}

// A message, or a delta of one.
void JoinChat(const Json& message, JoinedParts* joined) {
  joined->Add("thinking", "thinking", WordOf(message, "reasoning_content"));
  joined->Add("text", "text", WordOf(message, "content"));
  for (const Json& call : ListOf(message, "tool_calls")) {
    const Json& function = MemberOf(call, "function");
    const Json& index = MemberOf(call, "index");
    const std::string id = WordOf(call, "id");
    const std::string key = "call" + (index.is_integer() ? std::to_string(index.as_int()) : id);
    if (!id.empty()) joined->Call(key, WordOf(function, "name"), id);
    joined->Arguments(key, WordOf(function, "arguments"));
  }
}

void JoinChoice(ApiFamily family, const Json& answer, JoinedParts* joined) {
  for (const Json& choice : ListOf(answer, "choices")) {
    if (family == ApiFamily::kCompletions) {
      joined->Add("text", "text", WordOf(choice, "text"));
    } else {
      JoinChat(MemberOf(choice, choice.Find("delta") != nullptr ? "delta" : "message"), joined);
    }
    joined->End(WordOf(choice, "finish_reason"));
  }
}

void JoinBlock(const Json& block, const std::string& key, bool whole, JoinedParts* joined) {
  const std::string type = WordOf(block, "type");
  if (type == "thinking") joined->Add(key, "thinking", WordOf(block, "thinking"));
  if (type == "text") joined->Add(key, "text", WordOf(block, "text"));
  if (type != "tool_use") return;
  joined->Call(key, WordOf(block, "name"), WordOf(block, "id"));
  if (whole) joined->Arguments(key, WholeArguments(MemberOf(block, "input")));
}

void JoinMessageEvent(const Json& event, JoinedParts* joined) {
  const std::string type = WordOf(event, "type");
  const Json& index = MemberOf(event, "index");
  const std::string key = index.is_integer() ? std::to_string(index.as_int()) : std::string();
  const Json& delta = MemberOf(event, "delta");
  if (type == "content_block_start") {
    JoinBlock(MemberOf(event, "content_block"), key, /*whole=*/false, joined);
  } else if (type == "content_block_delta") {
    joined->Add(key, "thinking", WordOf(delta, "thinking"));
    joined->Add(key, "text", WordOf(delta, "text"));
    joined->Arguments(key, WordOf(delta, "partial_json"));
  } else if (type == "message_delta") {
    joined->End(WordOf(delta, "stop_reason") + WordOf(delta, "stop_sequence"));
  }
}

std::string CallNameOf(const Json& item) {
  const std::string space = WordOf(item, "namespace");
  return (space.empty() ? "" : space + "::") + WordOf(item, "name");
}

void JoinItem(const Json& item, bool whole, JoinedParts* joined) {
  const std::string type = WordOf(item, "type");
  const std::string id = WordOf(item, "id");
  if (type == "function_call" || type == "custom_tool_call") {
    joined->Call(id, CallNameOf(item), WordOf(item, "call_id"));
    if (whole) joined->Arguments(id, WordOf(item, "arguments") + WordOf(item, "input"));
    return;
  }
  if (!whole) return;
  for (const Json& part : ListOf(item, "content")) {
    joined->Add(id, type == "reasoning" ? "thinking" : "text", WordOf(part, "text"));
  }
}

void EndResponse(const Json& response, JoinedParts* joined) {
  joined->End(WordOf(response, "status") +
              WordOf(MemberOf(response, "incomplete_details"), "reason"));
}

void JoinResponse(const Json& response, JoinedParts* joined) {
  for (const Json& item : ListOf(response, "output")) JoinItem(item, /*whole=*/true, joined);
  EndResponse(response, joined);
}

// The answer as the deltas give it, and once more as the last event has it.
void JoinResponseEvent(const Json& event, JoinedParts* joined, std::string* last) {
  const std::string type = WordOf(event, "type");
  const std::string id = WordOf(event, "item_id");
  const std::string delta = WordOf(event, "delta");
  if (type == "response.output_item.added") {
    JoinItem(MemberOf(event, "item"), /*whole=*/false, joined);
  } else if (type == "response.reasoning_text.delta") {
    joined->Add(id, "thinking", delta);
  } else if (type == "response.output_text.delta") {
    joined->Add(id, "text", delta);
  } else if (!delta.empty()) {
    joined->Arguments(id, delta);
  } else if (type == "response.completed" || type == "response.incomplete") {
    EndResponse(MemberOf(event, "response"), joined);
    JoinedParts whole;
    JoinResponse(MemberOf(event, "response"), &whole);
    *last = whole.Lines();
  }
}

}  // namespace

std::vector<SentEvent> EventsOf(std::string_view stream) {
  std::vector<SentEvent> events;
  SentEvent event;
  while (!stream.empty()) {
    const size_t end = stream.find('\n');
    const std::string_view line = stream.substr(0, end);
    stream.remove_prefix(end == std::string_view::npos ? stream.size() : end + 1);
    if (line.starts_with("event: ")) event.name = line.substr(7);
    if (line.starts_with("data: ")) event.data += line.substr(6);
    if (!line.empty() || event.data.empty()) continue;
    events.push_back(std::exchange(event, SentEvent()));
  }
  return events;
}

std::string JoinBody(ApiFamily family, std::string_view body) {
  const Result<Json> json = ParseJson(body, "the answer");
  if (!json) return "BAD " + json.error().message;
  JoinedParts joined;
  switch (family) {
    case ApiFamily::kChat:
    case ApiFamily::kCompletions:
      JoinChoice(family, *json, &joined);
      break;
    case ApiFamily::kResponses:
      JoinResponse(*json, &joined);
      break;
    case ApiFamily::kMessages: {
      int index = 0;
      for (const Json& block : ListOf(*json, "content")) {
        JoinBlock(block, std::to_string(index++), /*whole=*/true, &joined);
      }
      joined.End(WordOf(*json, "stop_reason") + WordOf(*json, "stop_sequence"));
      break;
    }
  }
  return joined.Lines();
}

std::string JoinEvents(ApiFamily family, const std::vector<SentEvent>& events) {
  JoinedParts joined;
  std::string last;
  for (const SentEvent& event : events) {
    if (event.data == "[DONE]") continue;
    const Result<Json> json = ParseJson(event.data, "an event");
    if (!json) {
      joined.Bad(event.data);
    } else if (family == ApiFamily::kResponses) {
      JoinResponseEvent(*json, &joined, &last);
    } else if (family == ApiFamily::kMessages) {
      JoinMessageEvent(*json, &joined);
    } else {
      JoinChoice(family, *json, &joined);
    }
  }
  if (family == ApiFamily::kResponses && last != joined.Lines()) joined.Bad("last: " + last);
  return joined.Lines();
}

}  // namespace minke::testing

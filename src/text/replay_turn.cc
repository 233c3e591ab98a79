// What two spellings of one turn have in common.
#include <algorithm>
#include <utility>

#include "text/replay_map.h"

namespace minke {

namespace {

std::string_view Trimmed(std::string_view text) {
  constexpr std::string_view kWhiteSpace = " \t\r\n";
  const size_t from = text.find_first_not_of(kWhiteSpace);
  if (from == std::string_view::npos) return {};
  return text.substr(from, text.find_last_not_of(kWhiteSpace) + 1 - from);
}

// The text of a message; false if it holds more than text.
bool PlainText(const ChatMessage& message, std::string* text) {
  bool first = true;
  for (const ContentPart& part : message.content) {
    if (part.kind != ContentPart::Kind::kText) return false;
    if (!first) *text += "\n\n";
    first = false;
    *text += part.text;
  }
  return true;
}

// Arguments as a value, also where a client has encoded them once more (serving.md 2.5).
Json ArgumentsValue(const Json& arguments) {
  constexpr int kEncodingsMax = 2;
  Json value = arguments;
  for (int i = 0; i < kEncodingsMax && value.is_string(); ++i) {
    Result<Json> parsed =
        ParseJson(value.as_string(), "arguments", JsonParseOptions{.reject_duplicate_keys = false});
    if (!parsed.has_value()) break;
    value = std::move(*parsed);
  }
  return value;
}

// As values: the order of keys and the spelling of numbers do not count. The depth of both is
// bounded by kJsonDepthLimit.
bool SameValue(const Json& a, const Json& b);

std::vector<const JsonMember*> ByKey(const JsonObject& object) {
  std::vector<const JsonMember*> members;
  for (const JsonMember& member : object) members.push_back(&member);
  std::sort(members.begin(), members.end(), [](const JsonMember* one, const JsonMember* other) {
    return one->first < other->first;
  });
  return members;
}

bool SameObject(const JsonObject& a, const JsonObject& b) {
  if (a.size() != b.size()) return false;
  const std::vector<const JsonMember*> in_a = ByKey(a);
  const std::vector<const JsonMember*> in_b = ByKey(b);
  for (size_t i = 0; i < in_a.size(); ++i) {
    if (in_a[i]->first != in_b[i]->first) return false;
    if (!SameValue(in_a[i]->second, in_b[i]->second)) return false;
  }
  return true;
}

bool SameValue(const Json& a, const Json& b) {
  if (a.is_number() && b.is_number()) {
    if (a.is_integer() && b.is_integer()) {
      return DumpJson(a, JsonStyle::kCompact) == DumpJson(b, JsonStyle::kCompact);
    }
    return a.as_double() == b.as_double();
  }
  if (a.value().index() != b.value().index()) return false;
  if (a.is_object()) return SameObject(a.as_object(), b.as_object());
  if (a.is_array()) {
    return std::equal(a.as_array().begin(), a.as_array().end(), b.as_array().begin(),
                      b.as_array().end(), SameValue);
  }
  if (a.is_string()) return a.as_string() == b.as_string();
  return !a.is_bool() || a.as_bool() == b.as_bool();
}

}  // namespace

bool SaysTheSame(const WrittenTurn& turn, const ChatMessage& message) {
  if (message.role != Role::kAssistant) return false;
  std::string text;
  if (!PlainText(message, &text) || Trimmed(text) != Trimmed(turn.content)) return false;
  const std::string_view reasoning =
      message.reasoning_content.has_value() ? Trimmed(*message.reasoning_content) : "";
  if (!reasoning.empty() && reasoning != Trimmed(turn.reasoning)) return false;
  return std::equal(turn.tool_calls.begin(), turn.tool_calls.end(), message.tool_calls.begin(),
                    message.tool_calls.end(), [](const ToolCall& written, const ToolCall& sent) {
                      return written.name == sent.name &&
                             SameValue(ArgumentsValue(written.arguments),
                                       ArgumentsValue(sent.arguments));
                    });
}

std::vector<int32_t> WrittenIds(std::span<const int32_t> prompt, std::span<const int32_t> drawn,
                                const TurnTokens& tokens, bool thinking, bool has_calls) {
  const auto header = std::find(prompt.rbegin(), prompt.rend(), tokens.assistant);
  // The header is two tokens: the second opens or closes the reasoning.
  if (header == prompt.rend() || header == prompt.rbegin()) return {};
  std::vector<int32_t> ids(header.base() + 1, prompt.end());
  ids.insert(ids.end(), drawn.begin(), drawn.end());
  if (!ids.empty() && ids.back() == tokens.eos) ids.pop_back();
  const bool closed = std::find(ids.begin(), ids.end(), tokens.think_end) != ids.end();
  if (thinking && !closed && !has_calls) ids.push_back(tokens.think_end);
  return ids;
}

void ConversationDigest::Add(std::string_view bytes) {
  constexpr uint64_t kFirstPrime = 0x00000100000001B3ULL;  // FNV-1a
  constexpr uint64_t kSecondOdd = 0xD6E8FEB86659FD93ULL;
  const auto mix = [this](unsigned char byte) {
    first_ = (first_ ^ byte) * kFirstPrime;
    second_ = ((second_ ^ (second_ >> 29)) + byte + 1) * kSecondOdd;
  };
  for (const char c : bytes) mix(static_cast<unsigned char>(c));
  // The length, so that no two lists of texts run together.
  for (int shift = 0; shift < 64; shift += 8) {
    mix(static_cast<unsigned char>(static_cast<uint64_t>(bytes.size()) >> shift));
  }
}

// Reasoning is left out, because clients lose it; of calls only names count here, since the turn
// they belong to is compared value by value when it is looked for.
void ConversationDigest::Add(const ChatMessage& message) {
  Add(std::to_string(static_cast<int>(message.role)));
  std::string text;
  if (PlainText(message, &text)) {
    Add(Trimmed(text));
  } else {
    for (const ContentPart& part : message.content) {
      Add(part.text);
      if (part.kind == ContentPart::Kind::kImage) Add(DumpJson(part.image, JsonStyle::kCompact));
    }
  }
  for (const ToolCall& call : message.tool_calls) Add(call.name);
  for (const Json& tool : message.tools) Add(DumpJson(tool, JsonStyle::kCompact));
  Add(message.task);
}

std::string ConversationDigest::Text() const {
  std::string text;
  for (const uint64_t half : {first_, second_}) {
    for (int shift = 0; shift < 64; shift += 8) text += static_cast<char>(half >> shift & 0xFF);
  }
  return text;
}

ConversationDigest DigestOf(const ChatRequest& request) {
  ConversationDigest digest;
  for (const ChatMessage& message : request.context) digest.Add(message);
  for (const ChatMessage& message : request.messages) digest.Add(message);
  return digest;
}

}  // namespace minke

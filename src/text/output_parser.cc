#include "text/output_parser.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

#include "core/json.h"
#include "text/utf8.h"

namespace minke {

namespace {

// Tags are written as in serving.md 2.5: ordinary "<" or "</", the one DSML token, a blank, a name.
constexpr std::string_view kCallsBegin = "\n\n<｜DSML｜ calls";
constexpr std::string_view kCallsEnd = "</｜DSML｜ calls>";
constexpr std::string_view kInvokeOpen = "<｜DSML｜ invoke";
constexpr std::string_view kInvokeClose = "</｜DSML｜ invoke";
constexpr std::string_view kParameterOpen = "<｜DSML｜ parameter";
constexpr std::string_view kParameterClose = "</｜DSML｜ parameter";
constexpr std::string_view kTagEnd = ">\n";
constexpr std::string_view kNamespaceEnd = "::";

// Texts of a model may be long and may be private: errors show a glimpse.
std::string Glimpse(std::string_view text) {
  constexpr size_t kShownBytesMax = 60;
  return DumpJson(Json(LossyUtf8(text.substr(0, kShownBytesMax))), JsonStyle::kCompact) +
         (text.size() > kShownBytesMax ? "..." : "");
}

// What precedes the stop that came first, and which of the stops it was.
struct Stretch {
  std::string_view text;
  std::string_view stop;  // empty: none followed, and `text` is all the rest
};

class CompletionParser {
 public:
  CompletionParser(std::string_view text, ThinkingMode thinking_mode)
      : rest_(text), thinking_mode_(thinking_mode) {}

  Result<ParsedCompletion> Parse() {
    if (thinking_mode_ == ThinkingMode::kThinking) {
      const Stretch reasoning = ReadUntil({kThinkEndToken, kCallsBegin});
      if (reasoning.stop != kThinkEndToken) {
        return Refuse("Invalid thinking format: missing </think>");
      }
      parsed_.reasoning_content = reasoning.text;
    }
    const Stretch content = ReadUntil({kEosToken, kCallsBegin});
    parsed_.content = content.text;
    if (content.stop == kCallsBegin) {
      TRY_STATUS(ParseCalls());
      const Stretch tail = ReadUntil({kEosToken});
      if (!tail.text.empty()) return Refuse("Unexpected content after tool calls");
      if (tail.stop.empty()) return Refuse("Invalid format: missing EOS token");
    } else if (content.stop.empty()) {
      return Refuse("Invalid format: missing EOS token");
    }
    if (!rest_.empty()) return Refuse("Unexpected content at end");
    for (const std::string_view token :
         {kBosToken, kEosToken, kThinkStartToken, kThinkEndToken, kDsmlToken}) {
      for (const std::string* text : {&parsed_.content, &parsed_.reasoning_content}) {
        if (text->find(token) != std::string::npos) {
          return Refuse(fmt::format("Unexpected special token '{}' in content", token));
        }
      }
    }
    return std::move(parsed_);
  }

 private:
  static tl::unexpected<Error> Refuse(std::string_view reason) {
    return Fail(fmt::format("The completion is not well-formed: {}.", reason));
  }

  template <size_t N>
  Stretch ReadUntil(const std::string_view (&stops)[N]) {
    size_t first = 0;
    std::string_view stop;
    // One pass: every stop begins with one of these two characters.
    while ((first = rest_.find_first_of("<\n", first)) != std::string_view::npos) {
      for (const std::string_view candidate : stops) {
        if (rest_.substr(first).starts_with(candidate)) stop = candidate;
      }
      if (!stop.empty()) break;
      ++first;
    }
    const Stretch stretch{rest_.substr(0, first), stop};
    rest_.remove_prefix(stop.empty() ? rest_.size() : first + stop.size());
    return stretch;
  }

  Status ParseCalls() {
    while (true) {
      const Stretch before = ReadUntil({kInvokeOpen, kCallsEnd});
      if (before.text != kTagEnd) {
        return Refuse(fmt::format("Tool call format error: expected '>\\n' but got {}",
                                  Glimpse(before.text)));
      }
      if (before.stop == kCallsEnd) return {};
      if (before.stop.empty()) return Refuse("Missing special token in tool calls");
      TRY_STATUS(ParseInvoke());
    }
  }

  Status ParseInvoke() {
    Stretch between = ReadUntil({kParameterOpen, kInvokeClose});
    ParsedToolCall call;
    TRY_STATUS(ParseName(between.text, &call));
    std::unordered_set<std::string> names;
    call.arguments = "{";
    while (between.stop == kParameterOpen) {
      std::pair<std::string, std::string> argument;
      TRY_STATUS(ParseParameter(&argument));
      if (!names.insert(argument.first).second) {
        return Refuse(fmt::format("Duplicate parameter name: '{}'", argument.first));
      }
      if (names.size() > 1) call.arguments += ", ";
      call.arguments += DumpJson(Json(argument.first), JsonStyle::kPython);
      call.arguments += ": " + argument.second;
      between = ReadUntil({kParameterOpen, kInvokeClose});
      if (between.text != kTagEnd) {
        return Refuse(fmt::format("Parameter format error: expected '>\\n' but got {}",
                                  Glimpse(between.text)));
      }
    }
    if (between.stop.empty()) return Refuse("Missing special token in tool calls");
    call.arguments += "}";
    parsed_.tool_calls.push_back(std::move(call));
    return {};
  }

  // ` name="NAME">` and one or two newlines; two where a call has no parameters.
  static Status ParseName(std::string_view text, ParsedToolCall* call) {
    constexpr std::string_view kBegin = "name=\"";
    constexpr std::string_view kEnd = "\">\n";
    std::string_view name = text;
    const size_t blanks = std::min(name.find_first_not_of(" \t\r\n\f\v"), name.size());
    name.remove_prefix(blanks);
    if (name.ends_with("\">\n\n")) name.remove_suffix(1);
    if (name.size() < kBegin.size() + kEnd.size() || !name.starts_with(kBegin) ||
        !name.ends_with(kEnd)) {
      return Refuse(fmt::format("Tool name format error: {}", Glimpse(text)));
    }
    name.remove_prefix(kBegin.size());
    name.remove_suffix(kEnd.size());
    const size_t mark = name.find(kNamespaceEnd);
    if (mark == std::string_view::npos) {
      call->name = name;
      return {};
    }
    call->tool_namespace = name.substr(0, mark);
    call->name = name.substr(mark + kNamespaceEnd.size());
    if (call->name.find(kNamespaceEnd) != std::string::npos || call->name.empty() ||
        call->tool_namespace.empty()) {
      return Refuse(fmt::format("Tool name format error: {}", Glimpse(text)));
    }
    return {};
  }

  // ` name="KEY" string="true|false">VALUE` and the closing tag. The value becomes JSON.
  Status ParseParameter(std::pair<std::string, std::string>* argument) {
    const Stretch parameter = ReadUntil({kParameterClose});
    const auto refuse = [&parameter] {
      return Refuse(fmt::format("Parameter format error: {}", Glimpse(parameter.text)));
    };
    constexpr std::string_view kName = " name=\"";
    if (parameter.stop.empty() || !parameter.text.starts_with(kName)) return refuse();
    const std::string_view text = parameter.text.substr(kName.size());
    constexpr std::string_view kIsString = "\" string=\"true\">";
    constexpr std::string_view kIsJson = "\" string=\"false\">";
    const size_t string_at = text.find(kIsString);
    const size_t json_at = text.find(kIsJson);
    if (string_at == json_at) return refuse();  // neither is there
    const bool is_string = string_at < json_at;
    argument->first = text.substr(0, is_string ? string_at : json_at);
    const std::string value(
        text.substr(is_string ? string_at + kIsString.size() : json_at + kIsJson.size()));
    argument->second = is_string ? DumpJson(Json(value), JsonStyle::kPython) : value;
    return {};
  }

  std::string_view rest_;
  ThinkingMode thinking_mode_;
  ParsedCompletion parsed_;
};

}  // namespace

Result<ParsedCompletion> ParseCompletion(std::string_view text, ThinkingMode thinking_mode) {
  return CompletionParser(text, thinking_mode).Parse();
}

}  // namespace minke

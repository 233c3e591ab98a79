// Answers of a model, tolerantly read: the first byte of the input chooses the options, the second
// how the rest is split. Whatever comes, every split gives the same, and calls are valid.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "text/answer_parser.h"
#include "text/control_tokens.h"
#include "text/utf8.h"

namespace {

using Kind = minke::AnswerPiece::Kind;

// The pieces joined by kind, as one text.
std::string Read(std::string_view text, const minke::AnswerParserOptions& options, size_t step) {
  minke::AnswerParser parser(options);
  std::vector<minke::AnswerPiece> pieces;
  for (size_t at = 0; at < text.size(); at += step) {
    parser.Push(text.substr(at, step), false, &pieces);
  }
  parser.Finish(&pieces);
  CHECK(parser.finished());
  std::string joined;
  std::string arguments;
  Kind last = Kind::kToolCallEnd;
  for (const minke::AnswerPiece& piece : pieces) {
    CHECK(minke::ValidUtf8Prefix(piece.text) == piece.text.size());
    if (piece.kind != last) joined += "\n" + std::to_string(static_cast<int>(piece.kind)) + " ";
    last = piece.kind;
    joined += piece.tool_namespace + piece.name + piece.text;
    if (piece.kind == Kind::kToolCall) arguments.clear();
    if (piece.kind == Kind::kToolArguments) arguments += piece.text;
    const bool is_text = piece.kind == Kind::kContent || piece.kind == Kind::kReasoning;
    CHECK(!is_text || !options.tools || piece.text.find(minke::kDsmlToken) == std::string::npos);
    if (piece.kind != Kind::kToolCallEnd) continue;
    const auto parsed = minke::ParseJson(arguments, "arguments", {.reject_duplicate_keys = false});
    CHECK(parsed.has_value() && parsed->is_object(), arguments);
  }
  return joined;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size < 2) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 2, size - 2);
  minke::AnswerParserOptions options;
  options.thinking = (data[0] & 1) != 0;
  options.tools = (data[0] & 2) == 0;
  options.in_calls = (data[0] & 4) != 0 && options.tools && !options.thinking;
  options.json_mode = (data[0] & 8) != 0;
  if ((data[0] & 16) != 0) options.stop_strings = {"b", "aab", "\n\n<"};
  options.tool_names = {"f", "lookup", "ns::g"};
  options.tool_parameters = {{{"a", true, false}, {"n", false, true}}, {{"query", true, true}}};
  const std::string whole = Read(text, options, text.size() + 1);
  CHECK(Read(text, options, 1) == whole);
  CHECK(Read(text, options, 2 + data[1] % 61) == whole);
  return 0;
}

#include "tests/server/agent_support.h"

#include <gtest/gtest.h>

#include <iterator>
#include <utility>

namespace minke::testing {

AnswerPiece TextPiece(AnswerPiece::Kind kind, std::string text) {
  AnswerPiece piece;
  piece.kind = kind;
  piece.text = std::move(text);
  return piece;
}

std::vector<AnswerPiece> CallPieces(int index, std::string tool_namespace, std::string name,
                                    std::string arguments) {
  std::vector<AnswerPiece> pieces(3);
  pieces[0].kind = AnswerPiece::Kind::kToolCall;
  pieces[0].tool_namespace = std::move(tool_namespace);
  pieces[0].name = std::move(name);
  pieces[1] = TextPiece(AnswerPiece::Kind::kToolArguments, std::move(arguments));
  pieces[2].kind = AnswerPiece::Kind::kToolCallEnd;
  for (AnswerPiece& piece : pieces) piece.tool_index = index;
  return pieces;
}

std::vector<AnswerPiece> PiecesOfAllKinds() {
  std::vector<AnswerPiece> pieces = {
      TextPiece(AnswerPiece::Kind::kReasoning, "First “ä” 🎈, then\nb."),
      TextPiece(AnswerPiece::Kind::kContent, "Löok 🎈 there."),
  };
  const std::vector<std::vector<AnswerPiece>> calls = {
      CallPieces(0, "", "read_file", R"({"path": "ä/\"🎈\"", "lines": [1, 2]})"),
      CallPieces(1, "team", "ask", "{}"),
      CallPieces(2, "", "apply_patch", R"({"input": "*** \"ä\"\n\\\ud83c\udf88\t🎈"})"),
  };
  for (const std::vector<AnswerPiece>& call : calls) {
    pieces.insert(pieces.end(), call.begin(), call.end());
  }
  return pieces;
}

Json RequestWithAllTools(bool stream) {
  Json body = MustParseJson(R"({
      "model": "deepseek-flash", "input": "Go.",
      "tools": [
        {"type": "function", "name": "read_file", "parameters": {"type": "object"}},
        {"type": "namespace", "name": "team", "description": "Others.", "tools": [
          {"type": "function", "name": "ask", "description": "Asks.", "parameters": {}}]},
        {"type": "custom", "name": "apply_patch", "description": "Edits."},
        {"type": "web_search"}]})");
  body.Set("stream", stream);
  return body;
}

std::vector<Json> StreamEvents(std::string_view bytes) {
  SseReader reader;
  reader.Push(bytes);
  EXPECT_TRUE(reader.at_border());
  std::vector<Json> events;
  for (size_t i = 0; i < reader.events().size(); ++i) {
    events.push_back(MustParseJson(reader.events()[i]));
    EXPECT_EQ(TypeOf(events.back()), reader.names()[i]);
  }
  return events;
}

std::string TypeOf(const Json& event) {
  return TextAt(event, "type");
}

const Json& At(const Json& value, std::string_view path) {
  const Json* found = &value;
  while (!path.empty()) {
    const std::string key(path.substr(0, path.find('.')));
    path.remove_prefix(std::min(path.size(), key.size() + 1));
    if (found->is_array()) {
      found = &found->as_array().at(static_cast<size_t>(std::stoul(key)));
      continue;
    }
    const Json* member = found->Find(key);
    CHECK(member != nullptr, key + " of " + DumpJson(*found, JsonStyle::kCompact));
    found = member;
  }
  return *found;
}

std::string TextAt(const Json& value, std::string_view path) {
  const Json& text = At(value, path);
  CHECK(text.is_string(), DumpJson(text, JsonStyle::kCompact));
  return text.as_string();
}

std::string PromptTextOf(const ApiRequest& request) {
  const Result<Prompt> prompt = EncodeChat(request.chat);
  CHECK(prompt.has_value(), prompt.error().message);
  return prompt->Text();
}

}  // namespace minke::testing

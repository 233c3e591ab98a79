// What a model writes, as it comes, apart: reasoning, visible answer and tool calls (serving.md
// 2.7). A state machine over bytes: the pieces of an answer, joined by kind, are the same however
// its bytes were split. For whole, well-formed answers output_parser.h is the strict counterpart.
//
// What is taken for what, and why, is in docs/decisions/010-reading-answers.md. In short:
// - With tools, the first mark of tool markup ends the text, in reasoning too. From there on
// nothing
//   is text: what makes no call is dropped. Without tools markup is text.
// - Marks count in every spelling that models are known to write, as tokens or as plain bytes.
// - A call may name a tool that is not declared, which its client can answer; a tag without the
//   format's token counts only with a declared name.
// - The first of two parameters of one name stays. A value that was to be JSON and is not becomes a
//   JSON string.
// - Newlines at the beginning of reasoning and answer, before `</think>` and before tool markup are
//   not text.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"

namespace minke {

struct AnswerPiece {
  enum class Kind {
    kReasoning,
    kContent,
    kToolCall,       // a call begins: `tool_namespace` and `name` are whole
    kToolArguments,  // more of the JSON text of its arguments
    kToolCallEnd,    // the arguments are complete and valid JSON
  };
  Kind kind = Kind::kContent;
  int tool_index = 0;          // which call of this answer, for the last three
  std::string tool_namespace;  // "" where the name has none
  std::string name;
  std::string text;

  bool operator==(const AnswerPiece&) const = default;
};

inline constexpr size_t kCalledNameBytesMax = 256;  // bytes of a name in an answer; more is no call
inline constexpr int kToolCallsMax = 128;  // calls of one answer; what follows is discarded

struct AnswerParameter {
  std::string name;
  bool is_string = false;  // its schema says so
  bool is_required = false;
};

struct AnswerParserOptions {
  bool thinking = false;  // the prompt opened the reasoning
  // Tools are declared and may be called; otherwise markup is text.
  bool tools = false;
  std::vector<std::string> tool_names;  // "name" or "namespace::name"
  // Of tool_names, in the same order; may be shorter. A call without its name is known by them.
  std::vector<std::vector<AnswerParameter>> tool_parameters;
  bool in_calls = false;   // the prompt opened the block of calls (tool_choice required, 2.6)
  bool json_mode = false;  // text around the JSON value becomes blanks (2.7)
  // The prompt ends inside the visible answer, whose leading newlines therefore count.
  bool continues_text = false;
  // Matched in the visible answer only, across token borders; neither the match nor what follows
  // is shown.
  std::vector<std::string> stop_strings;
};

// How often an answer was not as the format wants it, for metrics.
struct AnswerRecoveries {
  int64_t other_spellings = 0;   // tags in another spelling than V4.1's
  int64_t missing_wrappers = 0;  // a call without the block around it
  int64_t in_reasoning = 0;      // a block that ended the reasoning
  int64_t dropped = 0;           // markup, names and values of which no call could be made
  int64_t undeclared = 0;        // calls of a tool that is not declared

  int64_t total() const {
    return other_spellings + missing_wrappers + in_reasoning + dropped + undeclared;
  }
};

// Sets tools, tool_names and tool_parameters from function objects as they are shown to the model
// (ChatMessage::tools). Schemas that say nothing of their parameters are left open.
void DeclareTools(const std::vector<Json>& functions, AnswerParserOptions* options);

class AnswerParser {
 public:
  explicit AnswerParser(AnswerParserOptions options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  // Bytes of one token or of any part of the answer. Pieces hold whole UTF-8 characters; bytes that
  // are not UTF-8 become U+FFFD. `is_control`: the bytes are the name of a control token; only
  // `</think>`, `｜DSML｜` and the marks of grounded answers mean something, all others leave
  // nothing (6.A 16). Appends to *pieces; each append is a call's whole share of one kind.
  void Push(std::string_view bytes, bool is_control, std::vector<AnswerPiece>* pieces);
  // The end of the answer: what was held back as the possible beginning of markup is shown as text
  // or dropped, and an open call is closed so that its arguments are JSON, or left out.
  void Finish(std::vector<AnswerPiece>* pieces);

  // Nothing after this can show: a stop string matched, the block of calls was closed, or Finish()
  // was called.
  bool finished() const;
  bool in_reasoning() const;
  const std::string& stop_string() const;  // the one that matched, or empty
  int tool_calls() const;                  // calls begun
  const AnswerRecoveries& recoveries() const;

 private:
  struct Machine;
  std::unique_ptr<Machine> machine_;
};

}  // namespace minke

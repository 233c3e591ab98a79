// What a model writes, as it comes, apart: reasoning, visible answer and tool calls (serving.md
// 2.7). A state machine over bytes: the pieces of an answer, joined by kind, are the same however
// its bytes were split. Markup never shows in a piece while tools are declared. For whole,
// well-formed answers output_parser.h is the strict counterpart.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

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

inline constexpr size_t kToolNameBytesMax = 256;  // bytes of a name in an answer; more is no call
inline constexpr int kToolCallsMax = 128;         // calls of one answer; what follows is discarded

struct AnswerParserOptions {
  bool thinking = false;  // the prompt opened the reasoning
  // Tools are declared and may be called; otherwise markup is text.
  bool tools = false;
  std::vector<std::string> tool_names;  // "name" or "namespace::name"
  bool in_calls = false;   // the prompt opened the block of calls (tool_choice required, 2.6)
  bool json_mode = false;  // text around the JSON value becomes blanks (2.7)
  // Matched in the visible answer only, across token borders; neither the match nor what follows
  // is shown.
  std::vector<std::string> stop_strings;
};

// How often an answer was not as the format wants it, for metrics.
struct AnswerRecoveries {
  int64_t other_spellings = 0;   // tags in another spelling than V4.1's
  int64_t missing_wrappers = 0;  // a call without the block around it
  int64_t in_reasoning = 0;      // a block that ended the reasoning
  int64_t dropped = 0;           // markup of which no call could be made
};

class AnswerParser {
 public:
  explicit AnswerParser(AnswerParserOptions options);
  ~AnswerParser();
  AnswerParser(AnswerParser&&) noexcept;
  AnswerParser& operator=(AnswerParser&&) noexcept;

  // Bytes of one token or of any part of the answer. Pieces hold whole UTF-8 characters; bytes that
  // are not UTF-8 become U+FFFD. `is_control`: the bytes are the name of a control token; only
  // those of the format (`</think>`, `｜DSML｜`, ...) mean something, all others leave nothing (6.A
  // 16).
  void Push(std::string_view bytes, bool is_control, std::vector<AnswerPiece>* pieces);
  // The end of the answer: what was held back as the possible beginning of markup is shown as text
  // or dropped, and an open call is closed so that its arguments are JSON, or left out.
  void Finish(std::vector<AnswerPiece>* pieces);

  // Nothing after this can show: a stop string matched, or the block of calls was closed.
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

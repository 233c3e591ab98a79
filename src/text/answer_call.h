// Turns the parts of one tool call, as they come, into pieces whose texts make one JSON object
// (serving.md 2.7: `{"key": value, ...}` with Python's separators).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/json.h"
#include "text/answer_markup.h"
#include "text/answer_parser.h"
#include "text/answer_tools.h"
#include "text/utf8.h"

namespace minke {

// Appends pieces to a caller's list and joins what follows each other within one call of Push().
class PieceList {
 public:
  void Attach(std::vector<AnswerPiece>* pieces) {
    pieces_ = pieces;
    first_ = pieces->size();
  }
  void Text(AnswerPiece::Kind kind, int tool_index, std::string_view text);
  void Add(AnswerPiece piece);

 private:
  std::vector<AnswerPiece>* pieces_ = nullptr;
  size_t first_ = 0;  // pieces before it are the caller's
};

class CallWriter {
 public:
  CallWriter(const DeclaredTools& tools, PieceList& pieces, AnswerRecoveries& recoveries)
      : tools_(tools), pieces_(pieces), recoveries_(recoveries) {}

  // A call of this name begins. One that no tool can have is followed to its end and not shown.
  void Begin(std::string_view name);
  // A call whose opening tag is missing: it is shown at its end, if its parameters tell its name.
  void BeginUnnamed();
  // The whole arguments, as the text of a JSON object, in place of parameters.
  void Body(std::string_view object);
  void BeginValue(const MarkupTag& tag);
  void Value(std::string_view bytes);
  void EndValue();
  // The call is over; its arguments are closed. Nothing if none is open.
  void End();

  bool open() const { return mode_ != Mode::kNone; }
  bool has_parameters() const { return !names_.empty(); }
  int calls() const { return calls_; }  // shown so far

 private:
  enum class Mode { kNone, kShown, kKept, kDropped };
  enum class ValueMode { kDropped, kString, kJson };

  void Show(const DeclaredTools::Called& called);
  void Write(std::string_view text);
  void WriteKey(std::string_view name);
  void WriteValue(const std::string& text, MarkupTag::Type type);
  void WriteUnwrapped();
  void NameByKeys(const std::string& object);
  bool NameKept();

  const DeclaredTools& tools_;
  PieceList& pieces_;
  AnswerRecoveries& recoveries_;
  int calls_ = 0;

  Mode mode_ = Mode::kNone;
  std::optional<size_t> tool_;             // which declared one
  std::unordered_set<std::string> names_;  // of its parameters
  bool opened_ = false;                    // the object's brace is written
  bool has_body_ = false;
  std::string kept_;  // kKept: what would have been shown

  ValueMode value_mode_ = ValueMode::kDropped;
  MarkupTag::Type value_type_ = MarkupTag::Type::kUnknown;
  std::string value_;  // kJson: what is there of it
  Utf8Stream value_text_;
  std::string scratch_;
  // A first parameter called "arguments" may hold all of them: it waits for the end of the call.
  bool wrapped_ = false;
  std::string wrapped_value_;
  MarkupTag::Type wrapped_type_ = MarkupTag::Type::kUnknown;
};

// A call that is one JSON object: {"name": ..., "arguments": {...}} in the words that models use,
// where the arguments may be encoded once more. Nullopt if it has no name.
struct WholeCall {
  std::string name;
  std::string arguments;  // the text of a JSON object

  bool operator==(const WholeCall&) const = default;
};
std::optional<WholeCall> ReadWholeCall(const Json& value);

// Whether `text` is JSON that may stand as a member of an object, and whether it is an object.
bool IsJsonValue(std::string_view text);
bool IsJsonObject(std::string_view text);

}  // namespace minke

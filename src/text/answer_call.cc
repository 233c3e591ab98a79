#include "text/answer_call.h"

#include <array>
#include <initializer_list>
#include <utility>

namespace minke {

namespace {

constexpr std::string_view kArgumentsParameter = "arguments";
constexpr JsonParseOptions kTolerantJson{.reject_duplicate_keys = false};

bool NeedsEscape(char c) {
  return c == '"' || c == '\\' || static_cast<unsigned char>(c) < 0x20;
}

// The inside of a JSON string, as DumpJson() writes it.
void AppendEscaped(std::string_view text, std::string* out) {
  constexpr std::array<char, 16> kHexDigits = {'0', '1', '2', '3', '4', '5', '6', '7',
                                               '8', '9', 'a', 'b', 'c', 'd', 'e', 'f'};
  size_t from = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (!NeedsEscape(c)) continue;
    *out += text.substr(from, at - from);
    from = at + 1;
    *out += '\\';
    const size_t known = std::string_view("\"\\\b\f\n\r\t").find(c);
    if (known != std::string_view::npos) {
      *out += std::string_view("\"\\bfnrt")[known];
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    *out += "u00";
    *out += kHexDigits[byte >> 4];
    *out += kHexDigits[byte & 0xF];
  }
  *out += text.substr(from);
}

std::string JsonText(std::string_view text) {
  std::string out = "\"";
  AppendEscaped(text, &out);
  out += '"';
  return out;
}

const Json* FindMember(const Json& object, std::initializer_list<std::string_view> keys) {
  for (const std::string_view key : keys) {
    if (const Json* found = object.Find(key)) return found;
  }
  return nullptr;
}

}  // namespace

std::optional<WholeCall> ReadWholeCall(const Json& value) {
  const Json* function = value.Find("function");
  const Json& holder = function != nullptr && function->is_object() ? *function : value;
  const Json* name = FindMember(holder, {"name", "tool_name", "tool"});
  if (name == nullptr || !name->is_string()) return std::nullopt;
  WholeCall call{name->as_string(), "{}"};
  if (const Json* given = FindMember(holder, {"arguments", "parameters", "input"})) {
    call.arguments = given->is_string() ? given->as_string() : DumpJson(*given, JsonStyle::kPython);
  }
  if (!IsJsonObject(call.arguments)) {
    call.arguments = DumpJson(Json(JsonObject{{"arguments", call.arguments}}), JsonStyle::kPython);
  }
  return call;
}

bool IsJsonValue(std::string_view text) {
  if (!ParseJson(text, "value", kTolerantJson).has_value()) return false;
  // One level deeper, as it will stand in the object.
  return ParseJson("[" + std::string(text) + "]", "value", kTolerantJson).has_value();
}

bool IsJsonObject(std::string_view text) {
  const Result<Json> parsed = ParseJson(text, "value", kTolerantJson);
  return parsed.has_value() && parsed->is_object();
}

void PieceList::Text(AnswerPiece::Kind kind, int tool_index, std::string_view text) {
  if (text.empty()) return;
  if (pieces_->size() > first_ && pieces_->back().kind == kind &&
      pieces_->back().tool_index == tool_index) {
    pieces_->back().text += text;
    return;
  }
  AnswerPiece piece;
  piece.kind = kind;
  piece.tool_index = tool_index;
  piece.text = text;
  pieces_->push_back(std::move(piece));
}

void PieceList::Add(AnswerPiece piece) {
  pieces_->push_back(std::move(piece));
}

void CallWriter::Show(const DeclaredTools::Called& called) {
  AnswerPiece piece;
  piece.kind = AnswerPiece::Kind::kToolCall;
  piece.tool_index = calls_;
  piece.tool_namespace = called.tool_namespace;
  piece.name = called.name;
  pieces_.Add(std::move(piece));
  if (!called.tool.has_value()) ++recoveries_.undeclared;
  tool_ = called.tool;
  mode_ = Mode::kShown;
  ++calls_;
}

void CallWriter::Begin(std::string_view name) {
  BeginUnnamed();
  const std::optional<DeclaredTools::Called> called = tools_.Resolve(LossyUtf8(name));
  if (called.has_value()) {
    Show(*called);
    return;
  }
  ++recoveries_.dropped;
  mode_ = Mode::kDropped;
}

void CallWriter::BeginUnnamed() {
  mode_ = Mode::kKept;
  tool_.reset();
  names_.clear();
  opened_ = false;
  has_body_ = false;
  kept_.clear();
  wrapped_ = false;
}

void CallWriter::Write(std::string_view text) {
  if (mode_ == Mode::kShown) {
    pieces_.Text(AnswerPiece::Kind::kToolArguments, calls_ - 1, text);
  } else if (mode_ == Mode::kKept) {
    kept_ += text;
  }
}

void CallWriter::Body(std::string_view object) {
  if (has_body_ || !names_.empty()) {
    ++recoveries_.dropped;
    return;
  }
  has_body_ = true;
  Write(object);
}

void CallWriter::WriteKey(std::string_view name) {
  Write(opened_ ? ", " : "{");
  opened_ = true;
  Write(JsonText(name));
  Write(": ");
}

void CallWriter::BeginValue(const MarkupTag& tag) {
  value_.clear();
  value_mode_ = ValueMode::kDropped;
  const std::string name = LossyUtf8(tag.name);
  if (!tag.named || has_body_ || !names_.insert(name).second) {
    ++recoveries_.dropped;
    return;
  }
  value_type_ = tag.type;
  const AnswerParameter* declared = tools_.Parameter(tool_, name);
  if (value_type_ == MarkupTag::Type::kUnknown && declared != nullptr && declared->is_string) {
    value_type_ = MarkupTag::Type::kString;
  }
  if (names_.size() == 1 && name == kArgumentsParameter && declared == nullptr) {
    wrapped_ = true;
    wrapped_type_ = value_type_;
    value_mode_ = ValueMode::kJson;
    return;
  }
  if (wrapped_) WriteUnwrapped();
  WriteKey(name);
  const bool is_string = value_type_ == MarkupTag::Type::kString;
  value_mode_ = is_string ? ValueMode::kString : ValueMode::kJson;
  if (is_string) Write("\"");
}

void CallWriter::Value(std::string_view bytes) {
  if (value_mode_ == ValueMode::kJson) value_ += bytes;
  if (value_mode_ != ValueMode::kString) return;
  scratch_.clear();
  value_text_.Push(bytes, &scratch_);
  std::string escaped;
  AppendEscaped(scratch_, &escaped);
  Write(escaped);
}

void CallWriter::EndValue() {
  const bool is_wrapped = wrapped_ && names_.size() == 1;
  if (value_mode_ == ValueMode::kString) {
    scratch_.clear();
    value_text_.Flush(&scratch_);
    Write(scratch_);
    Write("\"");
  } else if (value_mode_ == ValueMode::kJson && is_wrapped) {
    wrapped_value_ = LossyUtf8(value_);
  } else if (value_mode_ == ValueMode::kJson) {
    WriteValue(LossyUtf8(value_), value_type_);
  }
  value_mode_ = ValueMode::kDropped;
}

void CallWriter::WriteValue(const std::string& text, MarkupTag::Type type) {
  if (type != MarkupTag::Type::kString && IsJsonValue(text)) {
    Write(text);
    return;
  }
  if (type == MarkupTag::Type::kJson) ++recoveries_.dropped;
  Write(JsonText(text));
}

// The parameter "arguments" was not the only one, or holds no object: it is one like any other.
void CallWriter::WriteUnwrapped() {
  wrapped_ = false;
  WriteKey(kArgumentsParameter);
  WriteValue(wrapped_value_, wrapped_type_);
}

// What names a call without a name are the parameters inside.
void CallWriter::NameByKeys(const std::string& object) {
  const Result<Json> parsed = ParseJson(object, "value", kTolerantJson);
  names_.clear();
  for (const JsonMember& member : parsed->as_object()) names_.insert(member.first);
}

bool CallWriter::NameKept() {
  const std::optional<size_t> tool = tools_.ToolOfParameters(names_);
  if (!tool.has_value() || calls_ == kToolCallsMax) return false;
  const std::optional<DeclaredTools::Called> called = tools_.Resolve(tools_.name(*tool));
  if (!called.has_value()) return false;
  Show(*called);
  Write(kept_);
  return true;
}

void CallWriter::End() {
  if (mode_ == Mode::kNone) return;
  if (wrapped_) {
    std::string object = wrapped_value_;
    // Some encode the object once more, as a string.
    if (const Result<Json> value = ParseJson(object, "value", kTolerantJson);
        value.has_value() && value->is_string()) {
      object = value->as_string();
    }
    if (IsJsonObject(object)) {
      ++recoveries_.other_spellings;
      has_body_ = true;
      Write(object);
      NameByKeys(object);
    } else {
      WriteUnwrapped();
    }
    wrapped_ = false;
  }
  if (!has_body_) Write(opened_ ? "}" : "{}");
  if (mode_ == Mode::kKept && !NameKept()) {
    ++recoveries_.dropped;
    mode_ = Mode::kDropped;
  }
  if (mode_ == Mode::kShown) {
    AnswerPiece piece;
    piece.kind = AnswerPiece::Kind::kToolCallEnd;
    piece.tool_index = calls_ - 1;
    pieces_.Add(std::move(piece));
  }
  mode_ = Mode::kNone;
}

}  // namespace minke

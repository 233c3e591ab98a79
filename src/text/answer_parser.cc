#include "text/answer_parser.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "core/json.h"
#include "text/answer_call.h"
#include "text/answer_filters.h"
#include "text/answer_markup.h"
#include "text/answer_tools.h"
#include "text/control_tokens.h"
#include "text/utf8.h"

namespace minke {

namespace {

constexpr std::string_view kMarkBytes = "<\xEF";    // the first bytes of every mark
constexpr std::string_view kTextStops = "\n<\xEF";  // where running text must be looked at
constexpr std::string_view kValueStops = "\n<";     // where a value must be
constexpr std::string_view kJsonBlanks = " \t\r\n";

// Whether the name of a control token says something here; all others leave nothing (6.A 16).
bool MeansSomething(std::string_view control) {
  return control == kThinkEndToken || control == kDsmlToken ||
         std::find(kGroundingTokens.begin(), kGroundingTokens.end(), control) !=
             kGroundingTokens.end();
}

// Whether `text` ends in bytes with which the format's token begins.
bool EndsInMarkBeginning(std::string_view text) {
  for (size_t bytes = 1; bytes < kDsmlToken.size(); ++bytes) {
    if (text.ends_with(kDsmlToken.substr(0, bytes))) return true;
  }
  return false;
}

}  // namespace

struct AnswerParser::Machine {
  enum class State {
    kReasoning,
    kContent,
    kBlock,  // inside tool markup, between two tags: nothing here is text
    kValue,  // inside a parameter
    kFinished,
  };

  explicit Machine(AnswerParserOptions given)
      : options(std::move(given)),
        tools(std::move(options.tool_names), std::move(options.tool_parameters)),
        stops(std::move(options.stop_strings)),
        call(tools, pieces, recoveries) {
    state = options.thinking ? State::kReasoning : State::kContent;
    leading = !options.continues_text || options.thinking;
    if (options.in_calls) {
      state = State::kBlock;
      in_wrapper = true;
    }
  }

  std::string_view Rest() const { return std::string_view(buffer).substr(at); }

  // Steps until the rest must wait for more bytes. `at_end`: there are none, so nothing waits.
  void Run(bool at_end) {
    bool goes_on = true;
    while (goes_on && at < buffer.size()) {
      switch (state) {
        case State::kReasoning:
        case State::kContent:
          goes_on = StepText(at_end);
          break;
        case State::kBlock:
          goes_on = StepBlock(at_end);
          break;
        case State::kValue:
          goes_on = StepValue(at_end);
          break;
        case State::kFinished:
          at = buffer.size();
      }
    }
    buffer.erase(0, at);
    at = 0;
  }

  // ---- running text ----

  bool StepText(bool at_end) {
    const std::string_view rest = Rest();
    const size_t plain = std::min(rest.find_first_of(kTextStops), rest.size());
    if (plain > 0) return TakeText(plain);
    if (rest[0] == '\n') return TakeNewlines();
    const Match think = MatchLiteral(rest, kThinkEndToken);
    if (think == Match::kYes) {
      at += kThinkEndToken.size();
      if (state == State::kReasoning) {
        EndReasoning(State::kContent);
      } else if (options.tools && newlines == 0 && EndsInMarkBeginning(last_text)) {
        Show(" ");  // what stood around it must not become the format's token
      }
      return true;
    }
    const Match markup = options.tools ? MatchMarkupStart(rest, tools) : Match::kNo;
    if (markup == Match::kYes) {
      OpenBlock();
      return true;
    }
    const bool undecided = think == Match::kMore || markup == Match::kMore;
    if (undecided && !at_end) return false;
    if (undecided && IsTornMarkup(rest)) {
      ++recoveries.dropped;
      newlines = 0;
      at = buffer.size();
      return true;
    }
    return TakeText(1);
  }

  bool TakeNewlines() {
    const std::string_view rest = Rest();
    const size_t run = std::min(rest.find_first_not_of('\n'), rest.size());
    newlines += run;
    at += run;
    return true;
  }

  bool TakeText(size_t bytes) {
    const std::string_view text = Rest().substr(0, bytes);
    at += bytes;
    ShowNewlines();
    leading = false;
    Show(text);
    last_text.append(text.substr(text.size() - std::min(text.size(), kDsmlToken.size())));
    last_text.erase(0, last_text.size() - std::min(last_text.size(), kDsmlToken.size()));
    return true;
  }

  void ShowNewlines() {
    if (newlines == 0) return;
    if (!leading) Show(std::string(newlines, '\n'));
    last_text.clear();
    newlines = 0;
  }

  // Text of the reasoning or of the answer.
  void Show(std::string_view text) {
    shown.clear();
    if (state == State::kReasoning) {
      characters.Push(text, &shown);
      pieces.Text(AnswerPiece::Kind::kReasoning, 0, shown);
      return;
    }
    if (state != State::kContent) return;
    if (options.json_mode) {
      windowed.clear();
      json.Push(text, &windowed);
      text = windowed;
    }
    unstopped.clear();
    const bool stopped = stops.Push(text, &unstopped);
    ShowContent(unstopped);
    if (stopped) Stop();
  }

  // A stop string: nothing shows any more.
  void Stop() {
    FlushCharacters(AnswerPiece::Kind::kContent);
    state = State::kFinished;
  }

  void ShowContent(std::string_view text) {
    shown.clear();
    characters.Push(text, &shown);
    pieces.Text(AnswerPiece::Kind::kContent, 0, shown);
  }

  // What the filters of the answer hold back is text after all.
  void FlushContent() {
    if (options.json_mode) {
      windowed.clear();
      json.Flush(&windowed);
      unstopped.clear();
      const bool stopped = stops.Push(windowed, &unstopped);
      ShowContent(unstopped);
      if (stopped) return Stop();
    }
    unstopped.clear();
    stops.Flush(&unstopped);
    ShowContent(unstopped);
    FlushCharacters(AnswerPiece::Kind::kContent);
  }

  void FlushCharacters(AnswerPiece::Kind kind) {
    shown.clear();
    characters.Flush(&shown);
    pieces.Text(kind, 0, shown);
  }

  void EndReasoning(State next) {
    FlushCharacters(AnswerPiece::Kind::kReasoning);
    newlines = 0;
    leading = true;
    last_text.clear();
    state = next;
  }

  void OpenBlock() {
    if (state == State::kReasoning) {
      ++recoveries.in_reasoning;
      cut_reasoning = true;
      EndReasoning(State::kBlock);
      return;
    }
    newlines = 0;
    FlushContent();
    if (state != State::kFinished) state = State::kBlock;
  }

  // ---- markup ----

  bool StepBlock(bool at_end) {
    const std::string_view rest = Rest();
    const size_t plain = std::min(rest.find_first_of(kMarkBytes), rest.size());
    if (plain > 0) return TakeBody(plain);
    const Match think = MatchLiteral(rest, kThinkEndToken);
    if (think == Match::kYes) {
      at += kThinkEndToken.size();
      // The reasoning only spoke of markup: the answer comes now.
      if (cut_reasoning && !call.open() && call.calls() == 0 && body.empty()) {
        cut_reasoning = false;
        in_wrapper = false;
        state = State::kContent;
      }
      return true;
    }
    MarkupTag tag;
    const bool bare = body.empty() || bare_call;
    const Match match = MatchTag(rest, bare ? TagScope::kBare : TagScope::kMarked, &tag);
    if (match == Match::kYes && (tag.marked || body.empty() || tag.closing)) {
      HandleTag(tag);
      at += tag.bytes;
      return true;
    }
    if (match == Match::kMore || think == Match::kMore) {
      if (!at_end) return false;
      at = buffer.size();
      ++recoveries.dropped;
      return true;
    }
    return TakeBody(1);
  }

  // Text between tags is a call's arguments if it begins as JSON does.
  bool TakeBody(size_t bytes) {
    std::string_view text = Rest().substr(0, bytes);
    at += bytes;
    if (body.empty()) {
      const size_t begin = text.find_first_not_of(kJsonBlanks);
      if (begin == std::string_view::npos) return true;
      const bool may_begin = may_be_body && !call.has_parameters();
      may_be_body = false;
      if (!may_begin || (text[begin] != '{' && text[begin] != '[')) return true;
      text.remove_prefix(begin);
    }
    body += text;
    return true;
  }

  void HandleTag(const MarkupTag& tag) {
    EndBody();
    if (!tag.regular) ++recoveries.other_spellings;
    may_be_body = true;
    if (tag.closing) return HandleClosing(tag.word);
    switch (tag.word) {
      case MarkupTag::Word::kCalls:
        call.End();
        in_wrapper = true;
        break;
      case MarkupTag::Word::kCall:
      case MarkupTag::Word::kInvoke:
        call.End();
        if (tag.named) BeginCall(tag);
        break;
      case MarkupTag::Word::kParameter:
        if (!call.open()) {
          call.BeginUnnamed();
          bare_call = !tag.marked && !tag.spaced;
        }
        call.BeginValue(tag);
        state = State::kValue;
        break;
      case MarkupTag::Word::kOther:
        break;
    }
  }

  void HandleClosing(MarkupTag::Word word) {
    const bool closes_call = word == MarkupTag::Word::kInvoke || word == MarkupTag::Word::kCall ||
                             word == MarkupTag::Word::kCalls;
    if (!closes_call) return;
    call.End();
    if (word != MarkupTag::Word::kCalls) return;
    if (call.calls() > 0) {
      state = State::kFinished;
    } else {
      ++recoveries.dropped;
    }
  }

  void BeginCall(const MarkupTag& tag) {
    if (call.calls() == kToolCallsMax) {
      state = State::kFinished;
      return;
    }
    if (!in_wrapper) ++recoveries.missing_wrappers;
    in_wrapper = true;
    bare_call = !tag.marked && !tag.spaced;
    call.Begin(tag.name);
  }

  // JSON between two tags: the arguments of the open call, or calls of their own.
  void EndBody() {
    if (body.empty()) return;
    const std::string text = LossyUtf8(std::exchange(body, ""));
    const Result<Json> parsed =
        ParseJson(text, "body", JsonParseOptions{.reject_duplicate_keys = false});
    if (!parsed.has_value()) {
      ++recoveries.dropped;
      return;
    }
    if (call.open()) {
      if (parsed->is_object()) {
        call.Body(text.substr(0, text.find_last_not_of(kJsonBlanks) + 1));
      } else {
        ++recoveries.dropped;
      }
      return;
    }
    if (parsed->is_array()) {
      for (const Json& one : parsed->as_array()) JsonCall(one);
    } else {
      JsonCall(*parsed);
    }
  }

  void JsonCall(const Json& value) {
    std::optional<WholeCall> whole = ReadWholeCall(value);
    // Models that fall into this form repeat themselves (vllm-ascend#13794).
    if (!whole.has_value() || whole == last_json_call || call.calls() == kToolCallsMax) {
      ++recoveries.dropped;
      return;
    }
    ++recoveries.other_spellings;
    if (!in_wrapper) ++recoveries.missing_wrappers;
    in_wrapper = true;
    call.Begin(whole->name);
    call.Body(whole->arguments);
    call.End();
    last_json_call = std::move(whole);
  }

  // ---- a parameter's value ----

  bool StepValue(bool at_end) {
    const std::string_view rest = Rest();
    const size_t plain = std::min(rest.find_first_of(kValueStops), rest.size());
    if (plain > 0) return TakeValue(plain);
    if (rest[0] == '\n') return TakeNewlines();
    MarkupTag tag;
    const Match match = MatchTag(rest, bare_call ? TagScope::kBare : TagScope::kMarked, &tag);
    if (match == Match::kYes && tag.closing) {
      EndValue(tag);
      return true;
    }
    // Whatever follows, an opening tag in a value is part of it.
    if (match == Match::kMore && !at_end) return false;
    if (match == Match::kMore && IsTornMarkup(rest)) {
      at = buffer.size();
      return true;
    }
    return TakeValue(1);
  }

  bool TakeValue(size_t bytes) {
    const std::string_view text = Rest().substr(0, bytes);
    at += bytes;
    ValueNewlines(newlines);
    call.Value(text);
    return true;
  }

  void ValueNewlines(size_t count) {
    if (count > 0) call.Value(std::string(count, '\n'));
    newlines = 0;
  }

  void EndValue(const MarkupTag& tag) {
    const bool closes_more =
        tag.word != MarkupTag::Word::kParameter && tag.word != MarkupTag::Word::kOther;
    // Without its own closing tag the value ends before the newline that precedes the next one.
    ValueNewlines(closes_more && newlines > 0 ? newlines - 1 : newlines);
    call.EndValue();
    state = State::kBlock;
    may_be_body = true;
    if (closes_more) return;
    if (!tag.regular) ++recoveries.other_spellings;
    at += tag.bytes;
  }

  // ---- the end ----

  void End() {
    Run(true);
    if (state == State::kReasoning) {
      ShowNewlines();
      FlushCharacters(AnswerPiece::Kind::kReasoning);
    } else if (state == State::kContent) {
      ShowNewlines();
      if (state == State::kContent) FlushContent();
    } else if (state == State::kValue) {
      ValueNewlines(newlines);
      call.EndValue();
    }
    if (state == State::kBlock) EndBody();
    call.End();
    state = State::kFinished;
  }

  AnswerParserOptions options;
  DeclaredTools tools;
  AnswerRecoveries recoveries;
  PieceList pieces;
  JsonWindow json;
  StopFilter stops;
  Utf8Stream characters;  // of the text that is being shown
  CallWriter call;

  State state = State::kContent;
  std::string buffer;  // what has been pushed and not decided
  size_t at = 0;       // of it, what has been

  std::string last_text;       // the last bytes of running text, as many as the format's token has
  size_t newlines = 0;         // that wait for what follows them
  bool leading = true;         // nothing of this text has been shown
  bool cut_reasoning = false;  // the block began inside the reasoning
  bool in_wrapper = false;     // the block's own tag was there, or counted as missing
  bool bare_call = false;      // the open call is spelled without the format's token
  bool may_be_body = true;     // nothing but blanks since the last tag
  std::string body;            // JSON between two tags
  std::optional<WholeCall> last_json_call;

  // Between the filters; here so that they are not allocated for every token.
  std::string windowed;
  std::string unstopped;
  std::string shown;
};

AnswerParser::AnswerParser(AnswerParserOptions options)
    : machine_(std::make_unique<Machine>(std::move(options))) {}
AnswerParser::~AnswerParser() = default;
AnswerParser::AnswerParser(AnswerParser&&) noexcept = default;
AnswerParser& AnswerParser::operator=(AnswerParser&&) noexcept = default;

void AnswerParser::Push(std::string_view bytes, bool is_control, std::vector<AnswerPiece>* pieces) {
  if (finished() || (is_control && !MeansSomething(bytes))) return;
  machine_->pieces.Attach(pieces);
  machine_->buffer += bytes;
  machine_->Run(false);
}

void AnswerParser::Finish(std::vector<AnswerPiece>* pieces) {
  machine_->pieces.Attach(pieces);
  machine_->End();
}

bool AnswerParser::finished() const {
  return machine_->state == Machine::State::kFinished;
}

bool AnswerParser::in_reasoning() const {
  return machine_->state == Machine::State::kReasoning;
}

const std::string& AnswerParser::stop_string() const {
  return machine_->stops.matched();
}

int AnswerParser::tool_calls() const {
  return machine_->call.calls();
}

const AnswerRecoveries& AnswerParser::recoveries() const {
  return machine_->recoveries;
}

}  // namespace minke

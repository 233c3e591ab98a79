#include "text/answer_markup.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string>

namespace minke {

namespace {

constexpr std::string_view kFullBar = "｜";
constexpr std::string_view kTagMark = "DSML";
constexpr std::string_view kNameAttribute = "name=";
constexpr std::string_view kTypeAttribute = "string=";
constexpr int kBarsMax = 4;    // models double the bars; more is no mark
constexpr int kBlanksMax = 8;  // between a block and its first call, where no token marks them

struct TagWord {
  std::string_view spelling;
  MarkupTag::Word word;
};
constexpr std::array<TagWord, 11> kTagWords = {{
    {"calls", MarkupTag::Word::kCalls},
    {"tool_calls", MarkupTag::Word::kCalls},
    {"toolcalls", MarkupTag::Word::kCalls},
    {"function_calls", MarkupTag::Word::kCalls},
    {"call", MarkupTag::Word::kCall},
    {"toolcall", MarkupTag::Word::kCall},
    {"tool_call", MarkupTag::Word::kCall},
    {"function_call", MarkupTag::Word::kCall},
    {"invoke", MarkupTag::Word::kInvoke},
    {"parameter", MarkupTag::Word::kParameter},
    {"param", MarkupTag::Word::kParameter},
}};

bool IsWordByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
}

std::optional<MarkupTag::Word> FindWord(std::string_view spelling) {
  for (const TagWord& known : kTagWords) {
    if (known.spelling == spelling) return known.word;
  }
  return std::nullopt;
}

bool CanBecomeWord(std::string_view beginning) {
  return std::any_of(kTagWords.begin(), kTagWords.end(), [beginning](const TagWord& known) {
    return known.spelling.starts_with(beginning);
  });
}

// Reads bytes of a text that may end too early; once it has, every further step says kMore.
struct Reader {
  std::string_view text;
  size_t at = 0;

  bool ended() const { return at == text.size(); }
  bool Take(char c) {
    if (ended() || text[at] != c) return false;
    ++at;
    return true;
  }
  Match Take(std::string_view literal) {
    const Match match = MatchLiteral(text.substr(at), literal);
    if (match == Match::kYes) at += literal.size();
    return match;
  }
  std::string_view Word() {
    const size_t from = at;
    while (!ended() && IsWordByte(text[at])) ++at;
    return text.substr(from, at - from);
  }
};

// Bars, at most kBarsMax. kNo if there is none, kMore if the text ends inside or after them.
Match TakeBars(Reader* reader, bool ascii) {
  int bars = 0;
  while (bars < kBarsMax) {
    if (reader->ended()) return Match::kMore;
    if (ascii && reader->Take('|')) {
      ++bars;
      continue;
    }
    const Match full = reader->Take(kFullBar);
    if (full == Match::kMore) return Match::kMore;
    if (full == Match::kNo) break;
    ++bars;
  }
  return bars > 0 ? Match::kYes : Match::kNo;
}

// What precedes the word of a tag: `<`, a slash, bars and the format's token. The bar alone may
// begin it, where a model left the bracket out.
struct Opening {
  bool closing = false;
  bool regular = false;
};

Match TakeMark(Reader* reader, Opening* opening) {
  const size_t from = reader->at;
  const bool bracket = reader->Take('<');
  if (bracket) {
    reader->Take(' ');
    opening->closing = reader->Take('/');
    reader->Take(' ');
  }
  const Match bars = TakeBars(reader, bracket);
  if (bars != Match::kYes) return bars;
  const Match mark = reader->Take(kTagMark);
  if (mark != Match::kYes) return mark;
  const std::string_view written = reader->text.substr(from, reader->at - from);
  opening->regular = written == "<｜DSML" || written == "</｜DSML";
  return Match::kYes;
}

// The attributes of a tag: what stands in the quotes after `name=` and `string=`.
void ReadAttributes(std::string_view body, MarkupTag* tag) {
  const size_t type_at = body.rfind(kTypeAttribute);
  if (type_at != std::string_view::npos) {
    std::string_view value = body.substr(type_at + kTypeAttribute.size());
    while (!value.empty() && (value.front() == '"' || value.front() == '\'')) {
      value.remove_prefix(1);
    }
    if (value.starts_with("true")) tag->type = MarkupTag::Type::kString;
    if (value.starts_with("false")) tag->type = MarkupTag::Type::kJson;
  }
  const size_t name_at = body.find(kNameAttribute);
  if (name_at == std::string_view::npos) return;
  std::string_view name = body.substr(name_at + kNameAttribute.size());
  if (name.empty()) return;
  const char quote = name.front();
  tag->named = true;
  if (quote != '"' && quote != '\'') {
    tag->name = name.substr(0, name.find_first_of(" \t"));
    return;
  }
  name.remove_prefix(1);
  // There is no escaping: a quote inside a key is part of it, so the key of a parameter ends where
  // its next attribute begins.
  size_t end = std::string_view::npos;
  if (tag->type != MarkupTag::Type::kUnknown) {
    end = name.find(std::string(1, quote) + " " + std::string(kTypeAttribute));
  }
  if (end == std::string_view::npos) end = name.find(quote);
  tag->name = name.substr(0, end);
}

// Where a tag that begins before `from` ends. Bytes of the end, which are 0 where the next tag or
// a JSON body follows at once; kNo if the tag would be longer than kTagBytesMax.
Match FindTagEnd(std::string_view text, size_t from, bool marked, size_t* end, size_t* end_bytes) {
  size_t quotes = 0;
  bool blank = true;
  for (size_t at = from; at < text.size(); ++at) {
    if (at >= kTagBytesMax) return Match::kNo;
    const char c = text[at];
    *end = at;
    *end_bytes = 1;
    if (c == '>' && (quotes % 2 == 0 || text[at - 1] == '"' || text[at - 1] == '\'')) {
      return Match::kYes;
    }
    if (c == '\n' && !blank) return Match::kYes;
    *end_bytes = 0;
    if ((c == '{' || c == '[') && quotes == 0) return Match::kYes;
    if (c == '<' && quotes % 2 == 0 && !marked) return Match::kYes;
    if (c == '<' || c == kFullBar[0]) {
      Reader next{text, at};
      Opening opening;
      const Match mark = TakeMark(&next, &opening);
      if (mark != Match::kNo) return mark;
    }
    if (c == '"') ++quotes;
    if (c != ' ' && c != '\n') blank = false;
  }
  return Match::kMore;
}

// The rest of a tag whose opening and token have been read.
Match FinishTag(Reader reader, MarkupTag* tag) {
  size_t end = 0;
  size_t end_bytes = 0;
  const Match found = FindTagEnd(reader.text, reader.at, tag->marked, &end, &end_bytes);
  if (found == Match::kMore) return Match::kMore;
  if (found == Match::kNo) {
    tag->word = MarkupTag::Word::kOther;
    tag->bytes = reader.at;
    return Match::kYes;
  }
  tag->bytes = end + end_bytes;
  std::string_view body = reader.text.substr(reader.at, end - reader.at);
  tag->regular = tag->regular && body.starts_with(' ') && reader.text[end] == '>';
  while (!body.empty() && (body.front() == ' ' || body.front() == '\n')) body.remove_prefix(1);
  if (body.starts_with('/')) {
    tag->closing = true;
    body.remove_prefix(1);
    while (body.starts_with(' ')) body.remove_prefix(1);
  }
  size_t word_bytes = 0;
  while (word_bytes < body.size() && IsWordByte(body[word_bytes])) ++word_bytes;
  const std::string_view spelling = body.substr(0, word_bytes);
  tag->word = FindWord(spelling).value_or(MarkupTag::Word::kOther);
  ReadAttributes(body.substr(word_bytes), tag);
  // `name="f"` with a word that is lost or torn says by its attributes what it is.
  if (tag->word == MarkupTag::Word::kOther && !tag->closing) {
    if (spelling == "name") ReadAttributes(body, tag);
    const bool has_type = tag->type != MarkupTag::Type::kUnknown;
    if (tag->named) tag->word = has_type ? MarkupTag::Word::kParameter : MarkupTag::Word::kInvoke;
  }
  tag->regular =
      tag->regular && (spelling == "calls" || spelling == "invoke" || spelling == "parameter");
  return Match::kYes;
}

// Bars after the token, of which there may be none. The text may end anywhere.
void TakeBarsIfAny(Reader* reader, MarkupTag* tag) {
  const size_t from = reader->at;
  Reader after = *reader;
  if (TakeBars(&after, true) == Match::kYes) *reader = after;
  tag->regular = tag->regular && reader->text.substr(from, reader->at - from) == kFullBar;
}

Match MatchMarkedTag(std::string_view text, MarkupTag* tag) {
  Reader reader{text};
  Opening opening;
  const Match mark = TakeMark(&reader, &opening);
  if (mark != Match::kYes) return mark;
  tag->marked = true;
  tag->closing = opening.closing;
  tag->regular = opening.regular;
  TakeBarsIfAny(&reader, tag);
  return FinishTag(reader, tag);
}

// `<word` or `</word`, with or without the blank of V4.1. Stops after the word.
Match TakeBareWord(Reader* reader, bool* closing, bool* spaced, MarkupTag::Word* word) {
  if (!reader->Take('<')) return Match::kNo;
  *closing = reader->Take('/');
  *spaced = reader->Take(' ');
  const std::string_view spelling = reader->Word();
  if (reader->ended()) return CanBecomeWord(spelling) ? Match::kMore : Match::kNo;
  const std::optional<MarkupTag::Word> found = FindWord(spelling);
  if (!found.has_value()) return Match::kNo;
  *word = *found;
  return Match::kYes;
}

Match MatchBareTag(std::string_view text, MarkupTag* tag) {
  Reader reader{text};
  MarkupTag::Word word{};
  const Match match = TakeBareWord(&reader, &tag->closing, &tag->spaced, &word);
  if (match != Match::kYes) return match;
  const char next = text[reader.at];
  if (next != '>' && next != ' ' && next != '\n') return Match::kNo;
  tag->regular = false;
  Reader from_word{text, static_cast<size_t>(1 + (tag->closing ? 1 : 0))};
  return FinishTag(from_word, tag);
}

// `<invoke name="f"` of a declared tool.
Match MatchDeclaredInvoke(Reader reader, const DeclaredTools& tools) {
  for (const char* quote : {"<invoke name=\"", "<invoke name='"}) {
    Reader quoted = reader;
    const Match opening = quoted.Take(std::string_view(quote));
    if (opening == Match::kMore) return Match::kMore;
    if (opening == Match::kNo) continue;
    const std::string_view rest = quoted.text.substr(quoted.at);
    const size_t end = rest.find(quote[std::string_view(quote).size() - 1]);
    if (end != std::string_view::npos) {
      return tools.IsDeclared(rest.substr(0, end)) ? Match::kYes : Match::kNo;
    }
    return tools.CanBecomeDeclared(rest) ? Match::kMore : Match::kNo;
  }
  return Match::kNo;
}

Match MatchBareStart(std::string_view text, const DeclaredTools& tools) {
  const Match invoke = MatchDeclaredInvoke(Reader{text}, tools);
  if (invoke == Match::kYes) return Match::kYes;
  Reader reader{text};
  bool closing = false;
  bool spaced = false;
  MarkupTag::Word word{};
  const Match match = TakeBareWord(&reader, &closing, &spaced, &word);
  if (match == Match::kMore) return Match::kMore;
  if (match == Match::kNo) return invoke;
  if (spaced) {
    // Nobody else writes a blank after the bracket, so this is the format without its token.
    const Match end = reader.Take(std::string_view(">"));
    if (end != Match::kNo || closing) return end;
    const Match name = reader.Take(std::string_view(" name="));
    return name == Match::kNo ? invoke : name;
  }
  if (closing || word != MarkupTag::Word::kCalls) return invoke;
  // A block without the token, if a call of a declared tool follows.
  if (reader.Take(std::string_view(">")) != Match::kYes) return invoke;
  int blanks = 0;
  while (!reader.ended() && blanks < kBlanksMax && (reader.Take('\n') || reader.Take(' '))) {
    ++blanks;
  }
  return reader.ended() ? Match::kMore : MatchDeclaredInvoke(reader, tools);
}

}  // namespace

Match MatchLiteral(std::string_view text, std::string_view literal) {
  if (text.size() >= literal.size()) {
    return text.starts_with(literal) ? Match::kYes : Match::kNo;
  }
  return literal.starts_with(text) ? Match::kMore : Match::kNo;
}

Match MatchTag(std::string_view text, TagScope scope, MarkupTag* tag) {
  const Match marked = MatchMarkedTag(text, tag);
  if (marked == Match::kYes || scope == TagScope::kMarked) return marked;
  MarkupTag bare_tag;
  const Match bare = MatchBareTag(text, &bare_tag);
  if (bare == Match::kYes) *tag = bare_tag;
  return bare == Match::kNo ? marked : bare;
}

Match MatchMarkupStart(std::string_view text, const DeclaredTools& tools) {
  Reader reader{text};
  Opening opening;
  const Match mark = TakeMark(&reader, &opening);
  if (mark == Match::kYes) return Match::kYes;
  const Match bare = MatchBareStart(text, tools);
  return bare == Match::kNo ? mark : bare;
}

bool IsTornMarkup(std::string_view text) {
  // A full bar alone ends many a line of text.
  const bool bracket = text.starts_with('<');
  return (bracket && text.find(kFullBar) != std::string_view::npos) ||
         text.find("｜D") != std::string_view::npos || text.find("|D") != std::string_view::npos;
}

}  // namespace minke

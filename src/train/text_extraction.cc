#include "train/text_extraction.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <iterator>
#include <utility>

#include "train/ascii_text.h"

namespace minke::train {

namespace {

// Collects text and cuts it where a block ends.
class Paragraphs {
 public:
  void Add(char c) { current_ += c; }
  void Add(std::string_view text) { current_ += text; }
  void Break() {
    if (current_.find_first_not_of(" \n\t\r") != std::string::npos) {
      list_.push_back(std::move(current_));
    }
    current_.clear();
  }
  std::vector<std::string> Take() {
    Break();
    return std::move(list_);
  }

 private:
  std::string current_;
  std::vector<std::string> list_;
};

// The character that an HTML entity stands for; "" for an unknown one.
std::string EntityText(std::string_view name) {
  constexpr std::array<std::pair<std::string_view, std::string_view>, 16> kNamed = {{
      {"amp", "&"},
      {"lt", "<"},
      {"gt", ">"},
      {"quot", "\""},
      {"apos", "'"},
      {"nbsp", " "},
      {"mdash", " - "},
      {"ndash", "-"},
      {"hellip", "..."},
      {"lsquo", "'"},
      {"rsquo", "'"},
      {"ldquo", "\""},
      {"rdquo", "\""},
      {"shy", ""},
      {"#8217", "'"},
      {"#160", " "},
  }};
  for (const auto& [known, text] : kNamed) {
    if (known == name) return std::string(text);
  }
  if (name.size() < 2 || name[0] != '#') return "\x7f";
  const bool hex = name[1] == 'x' || name[1] == 'X';
  uint32_t code = 0;
  for (const char c : name.substr(hex ? 2 : 1)) {
    const int digit = std::isdigit(static_cast<unsigned char>(c)) != 0 ? c - '0'
                      : hex && std::isxdigit(static_cast<unsigned char>(c)) != 0
                          ? Lower(c) - 'a' + 10
                          : -1;
    if (digit < 0 || code > 0xFFFF) return "\x7f";
    code = code * (hex ? 16 : 10) + static_cast<uint32_t>(digit);
  }
  if (code == 0xA0) return " ";
  if (code == 0x2018 || code == 0x2019) return "'";
  if (code == 0x201C || code == 0x201D) return "\"";
  if (code == 0x2013 || code == 0x2014) return "-";
  return code >= 0x20 && code < 0x7F ? std::string(1, static_cast<char>(code)) : "\x7f";
}

// HTML and XML: elements that hold no running text are left out with what is in them.
class HtmlReader {
 public:
  explicit HtmlReader(std::string_view text) : text_(text) {}

  std::vector<std::string> Read() {
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (c == '<') {
        ReadTag();
      } else if (c == '&') {
        ReadEntity();
      } else {
        if (skipped_.empty()) paragraphs_.Add(c);
        ++at_;
      }
    }
    return paragraphs_.Take();
  }

 private:
  static bool Skips(std::string_view name) {
    constexpr std::string_view kSkipped[] = {
        "pre",      "table", "head",   "nav",        "screen", "title",       "programlisting",
        "synopsis", "info",  "footer", "code-block", "svg",    "cmdsynopsis", "media",
        "sup",
    };
    return std::find(std::begin(kSkipped), std::end(kSkipped), name) != std::end(kSkipped);
  }
  static bool IsInline(std::string_view name) {
    constexpr std::string_view kInline[] = {
        "a",    "b",    "i",     "em",     "strong",  "code", "tt",     "span",   "kbd",
        "var",  "samp", "cite",  "abbr",   "acronym", "dfn",  "small",  "big",    "u",
        "font", "q",    "link",  "gui",    "app",     "key",  "keyseq", "guiseq", "file",
        "cmd",  "sys",  "input", "output", "wbr",     "em",   "sub",    "quote",  "its",
    };
    return std::find(std::begin(kInline), std::end(kInline), name) != std::end(kInline);
  }

  void ReadTag() {
    if (StartsWith(text_.substr(at_), "<!--")) {
      const size_t end = text_.find("-->", at_);
      at_ = end == std::string_view::npos ? text_.size() : end + 3;
      return;
    }
    const size_t end = text_.find('>', at_);
    if (end == std::string_view::npos) {
      at_ = text_.size();
      return;
    }
    std::string_view tag = text_.substr(at_ + 1, end - at_ - 1);
    at_ = end + 1;
    const bool closes = StartsWith(tag, "/");
    const bool empty = !tag.empty() && tag.back() == '/';
    if (closes) tag.remove_prefix(1);
    const std::string name = LowerText(tag.substr(0, tag.find_first_of(" \n\t\r/")));
    if (!closes && !empty && (name == "script" || name == "style")) {
      // A comparison in a script is no tag: only its own end ends it.
      at_ = std::min(text_.find("</" + name, at_), text_.size());
      return;
    }
    if (!skipped_.empty()) {
      if (name == skipped_ && !empty) depth_ += closes ? -1 : 1;
      if (depth_ == 0) skipped_.clear();
      return;
    }
    if (!closes && !empty && Skips(name)) {
      skipped_ = name;
      depth_ = 1;
    }
    if (name == "br") {
      paragraphs_.Add(' ');
    } else if (name != "sup" && !IsInline(name)) {
      paragraphs_.Break();
    }
  }

  void ReadEntity() {
    constexpr size_t kNameBytesMax = 10;
    const size_t end = text_.find(';', at_);
    if (end == std::string_view::npos || end - at_ > kNameBytesMax) {
      if (skipped_.empty()) paragraphs_.Add('&');
      ++at_;
      return;
    }
    if (skipped_.empty()) paragraphs_.Add(EntityText(text_.substr(at_ + 1, end - at_ - 1)));
    at_ = end + 1;
  }

  std::string_view text_;
  size_t at_ = 0;
  std::string skipped_;  // the element whose end is waited for
  int depth_ = 0;        // of it
  Paragraphs paragraphs_;
};

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

// POD's formatting codes: I<text>, C<< text >>, L<text|target>, E<gt>.
std::string PodText(std::string_view text, int depth = 0) {
  constexpr int kDepthMax = 8;
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    const bool code = i + 1 < text.size() && text[i + 1] == '<' && text[i] >= 'A' &&
                      text[i] <= 'Z' && depth < kDepthMax;
    if (!code) {
      plain += text[i];
      continue;
    }
    size_t open = 0;
    while (i + 1 + open < text.size() && text[i + 1 + open] == '<') ++open;
    const size_t begin = i + 1 + open;
    size_t end = begin;
    for (size_t level = 1; end < text.size(); ++end) {
      if (open == 1 && text[end] == '<') ++level;
      if (open == 1 && text[end] == '>' && --level == 0) break;
      if (open > 1 && text.substr(end, open) == std::string(open, '>')) break;
    }
    std::string_view inner = text.substr(begin, end - begin);
    if (open > 1) {  // the blanks inside doubled brackets belong to them
      while (!inner.empty() && IsBlank(inner.front())) inner.remove_prefix(1);
      while (!inner.empty() && IsBlank(inner.back())) inner.remove_suffix(1);
    }
    if (text[i] == 'L' && inner.find('|') != std::string_view::npos) {
      inner = inner.substr(0, inner.find('|'));
    }
    if (text[i] == 'E') {
      plain += EntityText(inner);
    } else if (text[i] != 'X' && text[i] != 'Z') {
      plain += PodText(inner, depth + 1);
    }
    i = end + open - 1;
  }
  return plain;
}

std::vector<std::string> ReadPod(std::string_view text) {
  Paragraphs paragraphs;
  for (const std::string_view line : Lines(text)) {
    const bool listing = !line.empty() && IsBlank(line[0]);
    if (line.empty() || listing || line[0] == '=') {
      paragraphs.Break();
      continue;
    }
    paragraphs.Add(line);
    paragraphs.Add('\n');
  }
  std::vector<std::string> list = paragraphs.Take();
  for (std::string& paragraph : list) paragraph = PodText(paragraph);
  return list;
}

// The escapes of troff that occur in running text.
std::string TroffText(std::string_view text) {
  std::string plain;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\' || i + 1 >= text.size()) {
      plain += text[i];
      continue;
    }
    const char kind = text[++i];
    if (kind == '"') break;  // a comment
    if (kind == 'f' || kind == 's') {
      const bool bracket = i + 1 < text.size() && text[i + 1] == '[';
      const bool two = i + 1 < text.size() && text[i + 1] == '(';
      i = bracket ? std::min(text.find(']', i), text.size()) : i + (two ? 3 : 1);
    } else if (kind == '(') {
      const std::string_view name = text.substr(i + 1, 2);
      plain += name == "aq" || name == "cq" || name == "oq"   ? "'"
               : name == "dq" || name == "lq" || name == "rq" ? "\""
               : name == "em" || name == "en" || name == "hy" ? "-"
                                                              : "\x7f";
      i += 2;
    } else if (kind == '-') {
      plain += '-';
    } else if (kind == '~' || kind == ' ' || kind == '0') {
      plain += ' ';
    } else if (kind != '&' && kind != '/' && kind != ',' && kind != ':' && kind != '%') {
      plain += '\x7f';
    }
  }
  return plain;
}

// The arguments of a font request: .BR alternates fonts within a word, .B and .I within a line.
std::string FontRequest(std::string_view request, std::string_view rest) {
  std::string text;
  bool quoted = false;
  for (const char c : rest) {
    if (c == '"') {
      quoted = !quoted;
    } else if (c != ' ' || quoted || request.size() == 1) {
      text += c;
    }
  }
  return text;
}

std::vector<std::string> ReadTroff(std::string_view text) {
  constexpr std::string_view kFonts[] = {"B", "I", "BR", "IR", "RB", "RI", "BI", "IB"};
  Paragraphs paragraphs;
  bool listing = false;
  for (const std::string_view line : Lines(text)) {
    if (line.empty()) {
      paragraphs.Break();
      continue;
    }
    if (line[0] != '.' && line[0] != '\'') {
      if (!listing) paragraphs.Add(TroffText(line));
      if (!listing) paragraphs.Add('\n');
      continue;
    }
    const size_t blank = line.find(' ');
    const std::string_view request =
        line.substr(1, blank == std::string_view::npos ? blank : blank - 1);
    const std::string_view rest =
        blank == std::string_view::npos ? std::string_view() : line.substr(blank + 1);
    if (std::find(std::begin(kFonts), std::end(kFonts), request) != std::end(kFonts)) {
      if (!listing) paragraphs.Add(TroffText(FontRequest(request, rest)));
      if (!listing) paragraphs.Add('\n');
      continue;
    }
    if (StartsWith(request, "\\\"")) continue;
    if (request == "nf" || request == "EX" || request == "TS") listing = true;
    if (request == "fi" || request == "EE" || request == "TE") listing = false;
    paragraphs.Break();
  }
  return paragraphs.Take();
}

std::vector<std::string> ReadDictionary(std::string_view text) {
  Paragraphs paragraphs;
  for (const std::string_view line : Lines(text)) {
    // Head words stand at the left edge.
    if (line.empty() || !IsBlank(line[0])) {
      paragraphs.Break();
      continue;
    }
    paragraphs.Add(line);
    paragraphs.Add('\n');
  }
  std::vector<std::string> list = paragraphs.Take();
  for (std::string& paragraph : list) {
    // "1. <programming> In {object-oriented} programming ..."
    std::string plain;
    bool mark = false;
    for (const char c : paragraph) {
      if (c == '<') mark = true;
      if (!mark && c != '{' && c != '}') plain += c;
      if (c == '>') mark = false;
    }
    ReplaceAll(&plain, "__", "");
    const size_t word = plain.find_first_not_of(" \n\t0123456789.");
    paragraph = word == std::string::npos ? std::string() : plain.substr(word);
  }
  return list;
}

// Translatable strings: _ "text", a quotation mark inside is doubled.
std::vector<std::string> ReadWml(std::string_view text) {
  Paragraphs paragraphs;
  for (size_t at = text.find('_'); at != std::string_view::npos; at = text.find('_', at + 1)) {
    size_t open = at + 1;
    while (open < text.size() && IsBlank(text[open])) ++open;
    if (open >= text.size() || text[open] != '"') continue;
    size_t end = open + 1;
    for (; end < text.size(); ++end) {
      if (text[end] != '"') {
        paragraphs.Add(text[end]);
      } else if (end + 1 < text.size() && text[end + 1] == '"') {
        paragraphs.Add(text[end++]);
      } else {
        break;
      }
    }
    paragraphs.Break();
    at = std::min(end, text.size() - 1);
  }
  return paragraphs.Take();
}

}  // namespace

std::vector<std::string> ExtractParagraphs(std::string_view text, Markup markup) {
  switch (markup) {
    case Markup::kHtml:
      return HtmlReader(text).Read();
    case Markup::kPod:
      return ReadPod(text);
    case Markup::kTroff:
      return ReadTroff(text);
    case Markup::kDictionary:
      return ReadDictionary(text);
    case Markup::kWml:
      return ReadWml(text);
  }
  return {};
}

}  // namespace minke::train

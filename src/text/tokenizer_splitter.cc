#include "text/tokenizer_splitter.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <array>
#include <cctype>
#include <utility>

namespace minke {

namespace {

// White_Space of the Unicode standard, for use inside a class. PCRE2's own \s also takes U+180E,
// which left that property in Unicode 6.3 and which Oniguruma does not take.
constexpr std::string_view kWhiteSpaceClass =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f})"
    R"(\x{3000})";

// What an escape of the pattern becomes: itself, or the class above. Empty: not supported.
std::string TranslateEscape(char escaped, bool in_class) {
  const std::string white_space(kWhiteSpaceClass);
  if (escaped == 's') return in_class ? white_space : "[" + white_space + "]";
  if (escaped == 'S') return in_class ? "" : "[^" + white_space + "]";
  constexpr std::string_view kSameMeaning = "pPrntfv";
  const bool punctuation = std::ispunct(static_cast<unsigned char>(escaped)) != 0;
  if (!punctuation && kSameMeaning.find(escaped) == std::string_view::npos) return "";
  if (escaped == 'v') return R"(\x{b})";  // one character there, a class in PCRE2
  return {'\\', escaped};
}

// Oniguruma's pattern in PCRE2's spelling. Only what both read alike passes: anchors, "." and most
// letter escapes differ between the two and no known tokenizer of this family has them.
Result<std::string> TranslatePattern(std::string_view pattern, std::string_view what) {
  const auto refuse = [&](size_t at, std::string_view reason) {
    return Fail(
        fmt::format("{}: the regular expression has {} at byte {}, which is not supported; "
                    "the file belongs to another kind of tokenizer.",
                    what, reason, at));
  };
  std::string translated;
  bool in_class = false;
  for (size_t i = 0; i < pattern.size(); ++i) {
    const char c = pattern[i];
    if (c == '\\') {
      if (i + 1 == pattern.size()) return refuse(i, "a backslash at its end");
      const std::string escape = TranslateEscape(pattern[++i], in_class);
      if (escape.empty()) return refuse(i - 1, fmt::format("the escape \\{}", pattern[i]));
      translated += escape;
      continue;
    }
    if (in_class) {
      if (c == '[') return refuse(i, "a class inside a class");
      if (c == '&' && pattern.substr(i, 2) == "&&") return refuse(i, "a class intersection");
      if (c == ']') in_class = false;
    } else if (c == '[') {
      in_class = true;
    } else if (c == '^' || c == '$' || c == '.') {
      return refuse(i, fmt::format("the character {}", c));
    }
    translated += c;
    if (c == '[' && pattern.substr(i + 1, 1) == "^") {
      translated += '^';
      ++i;
    }
  }
  return translated;
}

std::string ErrorText(int number) {
  std::array<PCRE2_UCHAR, 256> buffer{};
  pcre2_get_error_message(number, buffer.data(), buffer.size());
  return reinterpret_cast<const char*>(buffer.data());
}

}  // namespace

// Outside the unnamed namespace, because the members of a class with a name hold them.
struct FreeCode {
  void operator()(pcre2_code* code) const { pcre2_code_free(code); }
};
struct FreeMatchData {
  void operator()(pcre2_match_data* data) const { pcre2_match_data_free(data); }
};
struct FreeMatchContext {
  void operator()(pcre2_match_context* context) const { pcre2_match_context_free(context); }
};
using CodePointer = std::unique_ptr<pcre2_code, FreeCode>;

struct TokenizerSplitter::Pattern {
  CodePointer code;
};

TokenizerSplitter::TokenizerSplitter(std::vector<Pattern> patterns)
    : patterns_(std::move(patterns)) {}
TokenizerSplitter::TokenizerSplitter(TokenizerSplitter&&) noexcept = default;
TokenizerSplitter& TokenizerSplitter::operator=(TokenizerSplitter&&) noexcept = default;
TokenizerSplitter::~TokenizerSplitter() = default;

Result<TokenizerSplitter> TokenizerSplitter::Compile(const std::vector<std::string>& patterns,
                                                     std::string_view what) {
  if (patterns.size() > kSplitPatternsMax) {
    return Fail(ErrorCode::kLimit, fmt::format("{}: {} splits; at most {} are supported.", what,
                                               patterns.size(), kSplitPatternsMax));
  }
  std::vector<Pattern> compiled;
  for (const std::string& pattern : patterns) {
    if (pattern.size() > kSplitPatternBytesMax) {
      return Fail(ErrorCode::kLimit,
                  fmt::format("{}: a regular expression of {} bytes; at most {} are supported.",
                              what, pattern.size(), kSplitPatternBytesMax));
    }
    const std::string translated = TRY(TranslatePattern(pattern, what));
    int error_number = 0;
    PCRE2_SIZE error_offset = 0;
    CodePointer code(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()),
                                   translated.size(), PCRE2_UTF | PCRE2_NEVER_BACKSLASH_C,
                                   &error_number, &error_offset, nullptr));
    if (code == nullptr) {
      return Fail(
          fmt::format("{}: the regular expression does not compile: {} (at byte {} of its "
                      "translation).",
                      what, ErrorText(error_number), error_offset));
    }
    // Without the compiler the interpreter does the same work more slowly.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
    compiled.push_back(Pattern{std::move(code)});
  }
  return TokenizerSplitter(std::move(compiled));
}

// Holds what the library writes to during matches, so that the patterns stay shared and constant.
class TokenizerSplitter::Run {
 public:
  Run(const std::vector<Pattern>& patterns, const std::function<void(std::string_view)>& use_piece)
      : patterns_(patterns), use_piece_(use_piece), context_(pcre2_match_context_create(nullptr)) {
    CHECK(context_ != nullptr, "out of memory");
    pcre2_set_match_limit(context_.get(), kSplitMatchLimit);
    pcre2_set_heap_limit(context_.get(), kSplitHeapKibibytesMax);
    for (const Pattern& pattern : patterns) {
      matches_.emplace_back(pcre2_match_data_create_from_pattern(pattern.code.get(), nullptr));
      CHECK(matches_.back() != nullptr, "out of memory");
    }
  }

  void SplitFrom(size_t first_pattern, std::string_view text) {
    if (text.empty()) return;
    if (first_pattern == patterns_.size()) {
      use_piece_(text);
      return;
    }
    size_t piece_begin = 0;
    size_t search_from = 0;
    while (search_from < text.size()) {
      const auto [begin, end] = Match(first_pattern, text, search_from);
      if (begin == std::string_view::npos) break;
      if (end <= begin) {  // an empty match cuts nothing: go on behind the next character
        search_from = begin + 1;
        while (search_from < text.size() && (text[search_from] & 0xC0) == 0x80) ++search_from;
        continue;
      }
      SplitFrom(first_pattern + 1, text.substr(piece_begin, begin - piece_begin));
      SplitFrom(first_pattern + 1, text.substr(begin, end - begin));
      piece_begin = end;
      search_from = end;
    }
    SplitFrom(first_pattern + 1, text.substr(piece_begin));
  }

 private:
  // Begin and end of the next match; npos for none, or one beyond the limits.
  std::pair<size_t, size_t> Match(size_t pattern, std::string_view text, size_t from) {
    const pcre2_code* code = patterns_[pattern].code.get();
    pcre2_match_data* match = matches_[pattern].get();
    const auto subject = reinterpret_cast<PCRE2_SPTR>(text.data());
    uint32_t options = PCRE2_NO_UTF_CHECK;
    int count = pcre2_match(code, subject, text.size(), from, options, match, context_.get());
    if (count == PCRE2_ERROR_JIT_STACKLIMIT) {
      options |= PCRE2_NO_JIT;
      count = pcre2_match(code, subject, text.size(), from, options, match, context_.get());
    }
    if (count <= 0) return {std::string_view::npos, std::string_view::npos};
    const PCRE2_SIZE* offsets = pcre2_get_ovector_pointer(match);
    return {offsets[0], offsets[1]};
  }

  const std::vector<Pattern>& patterns_;
  const std::function<void(std::string_view)>& use_piece_;
  std::unique_ptr<pcre2_match_context, FreeMatchContext> context_;
  std::vector<std::unique_ptr<pcre2_match_data, FreeMatchData>> matches_;
};

void TokenizerSplitter::Split(std::string_view text,
                              const std::function<void(std::string_view)>& use_piece) const {
  Run(patterns_, use_piece).SplitFrom(0, text);
}

}  // namespace minke

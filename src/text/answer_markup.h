// The tags of tool calls as models write them (serving.md 2.5 and 2.7): pure functions over the
// bytes that are there so far. A longer text never changes an answer other than kMore, which is
// what makes AnswerParser independent of how an answer is split.
#pragma once

#include <string_view>

#include "text/answer_tools.h"

namespace minke {

inline constexpr size_t kTagBytesMax = 1024;  // bytes of one tag; what is longer is no tag

enum class Match {
  kNo,
  kMore,  // more bytes decide
  kYes,
};

struct MarkupTag {
  enum class Word {
    kCalls,      // the block around the calls
    kCall,       // around one call whose body is JSON
    kInvoke,     // a call
    kParameter,  // a parameter
    kOther,
  };
  enum class Type { kUnknown, kString, kJson };

  Word word = Word::kOther;
  bool closing = false;
  bool marked = false;   // has the format's token
  bool spaced = false;   // has not, but has the blank that V4.1 writes after it
  bool regular = false;  // in the spelling of V4.1
  Type type = Type::kUnknown;
  bool named = false;
  std::string_view name;  // a view into the text
  size_t bytes = 0;       // of the tag, the character that ends it included
};

// Which tags are looked for.
enum class TagScope {
  kMarked,  // only those with the format's token
  kBare,    // also `<invoke name="f">` and the like
};

// A tag at the beginning of `text`.
Match MatchTag(std::string_view text, TagScope scope, MarkupTag* tag);

// Whether markup begins at the beginning of running text: the format's token with a bar, a tag
// spelled as in V4.1 that only lacks the token, or a call without the token of a declared tool.
Match MatchMarkupStart(std::string_view text, const DeclaredTools& tools);

// Whether `text` begins with `literal`, or could.
Match MatchLiteral(std::string_view text, std::string_view literal);

// Whether text that ended while it could still have become markup looks like nothing else: it has
// come as far as the format's bar after a bracket, or past the bar.
bool IsTornMarkup(std::string_view text);

}  // namespace minke

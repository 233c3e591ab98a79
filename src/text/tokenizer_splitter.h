// The pre-tokenizer: cuts a text into the pieces that BPE may not merge across. The one place that
// uses PCRE2.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace minke {

inline constexpr size_t kSplitPatternsMax = 16;
inline constexpr size_t kSplitPatternBytesMax = 4096;
// Backtracking steps of one match. The released patterns need a handful for each byte.
inline constexpr uint32_t kSplitMatchLimit = 50'000'000;
inline constexpr uint32_t kSplitHeapKibibytesMax = 65'536;

// A sequence of splits as tokenizer.json writes it: each regular expression cuts every piece of
// the one before into its matches and what lies between them ("Isolated"). Thread-safe.
class TokenizerSplitter {
 public:
  // `patterns` are regular expressions of the Oniguruma library; one that PCRE2 would read
  // differently is refused. `what` names the source in errors.
  static Result<TokenizerSplitter> Compile(const std::vector<std::string>& patterns,
                                           std::string_view what);

  TokenizerSplitter(TokenizerSplitter&&) noexcept;
  TokenizerSplitter& operator=(TokenizerSplitter&&) noexcept;
  ~TokenizerSplitter();

  // Calls use_piece for each piece, in order; the pieces joined are the text. REQUIRES valid UTF-8.
  // Where a match exceeds the limits, the rest of that piece stays whole.
  void Split(std::string_view text, const std::function<void(std::string_view)>& use_piece) const;

 private:
  struct Pattern;
  class Run;  // one call of Split()
  explicit TokenizerSplitter(std::vector<Pattern> patterns);

  std::vector<Pattern> patterns_;
};

}  // namespace minke

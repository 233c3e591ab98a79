// The compressed vocabulary of Engram: tokens that differ only in case, accents or spacing share
// one id (architecture.md 8.1).
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer.h"

namespace minke {

// Token id -> compressed id, one entry for each of vocab_size ids, numbered by first occurrence.
// Refused, naming both numbers, if the tokenizer has not vocab_size tokens or if the number of
// classes is not expected_size: every hash multiplier depends on it.
Result<std::vector<int32_t>> BuildCompressedVocabulary(const Tokenizer& tokenizer,
                                                       int64_t vocab_size, int64_t expected_size);

// The same for a model that is being made: nothing is expected, and the number of classes is one
// more than the largest of them.
std::vector<int32_t> CompressVocabulary(const Tokenizer& tokenizer);

// The text under which a token's decoded text (valid UTF-8) is filed: NFKC, NFD, without
// combining marks, in lower case, runs of blanks made one, stripped; the text itself if nothing is
// left of it.
std::string CompressedVocabularyKey(std::string_view text);

}  // namespace minke

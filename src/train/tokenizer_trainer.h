// Trains the byte-level BPE tokenizer of a small model: the tokenizer.json of the released family,
// with its control tokens (docs/nano.md, "Tokenizer").
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer.h"

namespace minke::train {

inline constexpr int64_t kTrainedVocabularyMax = 65'536;  // ids fit uint16_t
inline constexpr int64_t kNanoVocabulary = 2'304;         // a multiple of 64

struct TokenizerTrainingOptions {
  int64_t vocab_size = kNanoVocabulary;  // control tokens included
  // Pieces that become one token whatever their number, as " harbour" with its blank.
  std::vector<std::string> required_pieces;
};

// The text of tokenizer.json. `texts` are what pieces are counted in. The same texts give the same
// bytes. An error where vocab_size has no room for the bytes, the control tokens and the required
// pieces, or where the texts are too short for so many tokens.
Result<std::string> TrainTokenizer(const std::vector<std::string_view>& texts,
                                   const TokenizerTrainingOptions& options);

struct TokenizerReport {
  int64_t vocab_size = 0;
  int64_t compressed_vocab_size = 0;  // engram_compressed_vocab_size of the model's config.json
  double bytes_per_token = 0;         // of the held-out text
};

// Trains on the corpus in `corpus_dir` and on lines of facts, and writes tokenizer.json and
// tokenizer_config.json to `out_dir`, which must exist.
Result<TokenizerReport> MakeTokenizer(const std::string& corpus_dir, const std::string& out_dir,
                                      int64_t vocab_size);

// Key nouns and attributes with the blank before them.
std::vector<std::string> RecallPieces();
// Lines of facts, questions and answers, so that their words are counted too.
std::string RecallLines(int64_t count, uint64_t seed);

// The tokenizer_config.json beside it.
std::string TokenizerConfigText();
// The control tokens of the released prompts, in the order of their ids: the first three are bos,
// eos and pad, with ids 0, 1 and 2; the others end the vocabulary.
std::vector<std::string> ReleasedControlTokens();

}  // namespace minke::train

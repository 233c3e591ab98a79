// Recall cases as the trainer asks them: a prompt, and the answer that is right token by token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "recall/facts.h"
#include "recall/filler.h"
#include "recall/words.h"
#include "text/tokenizer.h"

namespace minke::train {

struct RecallProbe {
  std::vector<int32_t> prompt;
  std::vector<int32_t> answer;  // ends with the end of the turn
  int64_t value_begins = 0;     // index in the answer of the value's first token
  int64_t distance = 0;         // tokens from the value in the prompt to the prompt's end
  FactSet facts;                // with this one question
};

struct ProbeOptions {
  int64_t tokens = 1024;  // of the prompt, at most
  int64_t cases = 40;
  uint64_t seed = 1;
  WordSplit keys = WordSplit::kTraining;
};
// From the evaluation's stream of random numbers: never what training has seen.
Result<std::vector<RecallProbe>> MakeProbes(const ProbeOptions& options, const Filler& filler,
                                            const Tokenizer& tokenizer);

inline constexpr uint64_t kFillerBytesMax = uint64_t{1} << 30;
// The text between the facts: that of a file, or without a path made-up sentences of the seed.
Result<Filler> OpenProbeFiller(const std::string& path, uint64_t seed);

}  // namespace minke::train

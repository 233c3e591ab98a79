// What a model in training can do: recall by greedy decoding with any of the forward pass's
// options, and held-out text in bits per byte. The figures that count are those of the engine
// (minke eval); these compare variants that the engine does not have.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer.h"
#include "train/model.h"
#include "train/recall_probe.h"

namespace minke::train {

inline constexpr int64_t kAnswerTokensMax = 64;
inline constexpr int64_t kNoReplay = -1;

// A greedy answer. leads[i]: logit of token i less that of the next best.
struct GreedyAnswer {
  std::vector<int32_t> ids;  // up to the end of the turn, with it
  std::vector<float> leads;
};

// Decodes greedily; `draft`, e.g. the answer that is expected, costs nothing but saves passes: what
// it guesses right is decided in one of them, and the result does not depend on it. replay_tokens:
// the decoder sees only so many of the prompt's last tokens in its window, as after a replay
// prefill; kNoReplay: all of them.
GreedyAnswer DecodeGreedily(const Model& model, std::span<const int32_t> prompt,
                            std::span<const int32_t> draft, const ForwardOptions& options,
                            int64_t replay_tokens);

struct RecallScore {
  int64_t cases = 0;
  int64_t digits = 0;   // cases whose value is right
  int64_t answers = 0;  // cases whose whole answer is right
};
// By greedy decoding, as minke eval recall counts.
RecallScore ScoreRecall(const Model& model, const Tokenizer& tokenizer,
                        std::span<const RecallProbe> probes, const ForwardOptions& options,
                        int64_t replay_tokens);

// What the indexers find at the first character of the values of the expected answers, one entry an
// index source, averaged over the probes.
std::vector<IndexQuality> MeasureIndexes(const Model& model, std::span<const RecallProbe> probes,
                                         const ForwardOptions& options);

struct TextScore {
  double nats = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;  // that the scored tokens stand for
  double nats_per_token() const;
  double bits_per_byte() const;
};
// Windows of window_tokens that overlap by half; each token is scored once, with at least half a
// window before it (but for the first half window). At most tokens_max tokens of the text.
TextScore ScoreText(const Model& model, const Tokenizer& tokenizer, std::string_view text,
                    int64_t window_tokens, int64_t tokens_max, const ForwardOptions& options);

}  // namespace minke::train

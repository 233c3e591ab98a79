// One training row: token ids and what the model is asked to predict at each of them. No libtorch
// here, so that the generator of rows can be tested without it.
#pragma once

#include <cstdint>
#include <vector>

namespace minke::train {

// What the token after a position is. The look-up ("which fact?") shows in kFirst alone: later
// characters of a value can be right by copying.
enum class TargetKind : uint8_t {
  kOther,     // not supervised, or only as filler
  kText,      // running text
  kRestated,  // words of an answer that repeat the question, and the token that ends the answer
  kFirst,     // the first token of a value that stood in the row before
  kValue,     // its further tokens
};

struct Row {
  std::vector<int32_t> ids;         // [T]
  std::vector<float> weights;       // [T]: of the loss of predicting ids[i + 1] at i; 0: none
  std::vector<TargetKind> targets;  // [T]: what ids[i + 1] is; the last is kOther with weight 0
};

}  // namespace minke::train

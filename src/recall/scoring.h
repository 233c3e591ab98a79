// Whether an answer is right.
#pragma once

#include <string_view>

#include "recall/facts.h"

namespace minke {

struct AnswerScore {
  // The value: the first run of digits of the answer is the number, or the last word is the word.
  bool digits_exact = false;
  bool answer_exact = false;  // every byte, blanks at the ends aside
};

AnswerScore ScoreAnswer(const FactSet& facts, const Question& question, std::string_view answer);

// The 95 % interval of a share `right` of `total` (Wilson): 0..1 where total is 0.
struct ShareInterval {
  double low = 0;
  double high = 1;
};
ShareInterval IntervalOf(int64_t right, int64_t total);

}  // namespace minke

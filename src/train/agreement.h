// Two greedy answers to one prompt, token by token: the trainer's, with its leads, and the
// engine's.
#pragma once

#include <cstdint>
#include <span>

namespace minke::train {

// Where the best logit leads by less than this, rounding decides which token is written, and what
// follows two different tokens says nothing (docs/nano.md).
inline constexpr float kLeadMin = 0.05F;

enum class AgreementEnd {
  kSame,       // equal to the end
  kCloseCall,  // equal up to a token whose lead is below the least one
  kDifferent,
};

struct Agreement {
  AgreementEnd end = AgreementEnd::kSame;
  int64_t tokens = 0;  // that are equal, before what ended the comparison
};

// leads[i]: by how much the logit of ids[i] is above the next best one.
Agreement CompareAnswers(std::span<const int32_t> ids, std::span<const float> leads,
                         std::span<const int32_t> other, float lead_min = kLeadMin);

}  // namespace minke::train

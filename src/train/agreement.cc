#include "train/agreement.h"

#include "core/result.h"

namespace minke::train {

Agreement CompareAnswers(std::span<const int32_t> ids, std::span<const float> leads,
                         std::span<const int32_t> other, float lead_min) {
  CHECK(ids.size() == leads.size());
  Agreement agreement;
  for (size_t i = 0; i < ids.size(); ++i) {
    if (leads[i] < lead_min) {
      agreement.end = AgreementEnd::kCloseCall;
      return agreement;
    }
    if (i >= other.size() || other[i] != ids[i]) {
      agreement.end = AgreementEnd::kDifferent;
      return agreement;
    }
    ++agreement.tokens;
  }
  if (other.size() != ids.size()) agreement.end = AgreementEnd::kDifferent;
  return agreement;
}

}  // namespace minke::train

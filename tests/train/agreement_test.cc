// When two greedy answers count as the same.
#include "train/agreement.h"

#include <gtest/gtest.h>

#include <vector>

namespace minke::train {
namespace {

using Ids = std::vector<int32_t>;

TEST(Agreement, EveryTokenCounts) {
  const Ids ids = {7, 8, 1};
  const std::vector<float> leads = {3, kLeadMin, 2};
  const Agreement same = CompareAnswers(ids, leads, ids);
  EXPECT_EQ(same.end, AgreementEnd::kSame);
  EXPECT_EQ(same.tokens, 3);
  for (const Ids& other : {Ids{7, 9, 1}, Ids{7}, Ids{7, 9}}) {
    const Agreement different = CompareAnswers(ids, leads, other);
    EXPECT_EQ(different.end, AgreementEnd::kDifferent);
    EXPECT_EQ(different.tokens, 1);
  }
  const Agreement longer = CompareAnswers(ids, leads, Ids{7, 8, 1, 1});
  EXPECT_EQ(longer.end, AgreementEnd::kDifferent);
  EXPECT_EQ(longer.tokens, 3);
}

TEST(Agreement, ASmallLeadEndsTheComparison) {
  const Ids ids = {7, 8, 1};
  const std::vector<float> leads = {3, 0.049F, 2};
  for (const Ids& other : {ids, Ids{7, 9, 9, 9}, Ids{7}}) {
    const Agreement close = CompareAnswers(ids, leads, other);
    EXPECT_EQ(close.end, AgreementEnd::kCloseCall);
    EXPECT_EQ(close.tokens, 1);
  }
  // What differs before it still differs.
  EXPECT_EQ(CompareAnswers(ids, leads, Ids{6, 8, 1}).end, AgreementEnd::kDifferent);
}

}  // namespace
}  // namespace minke::train

// Inverse frequencies of the released configuration, bit for bit: at a million positions one
// last bit turns an angle by 0.06.
#include <gtest/gtest.h>

#include "tests/model/golden_model.h"

namespace minke::testing {
namespace {

TEST(RopeTables, ReleasedFrequenciesAreExact) {
  const Golden golden("rope/rope.json");
  const auto config = LoadConfig(GoldenPath("released/config.json"));
  ASSERT_TRUE(config.has_value());
  EXPECT_EQ(WindowFrequencies(*config), golden["window.inv_freq"].Floats());
  EXPECT_EQ(CompressedFrequencies(*config), golden["compressed.inv_freq"].Floats());
}

TEST(RopeTables, NoScalingWithoutAnOriginalLength) {
  auto config = LoadConfig(GoldenPath("released/config.json"));
  ASSERT_TRUE(config.has_value());
  const std::vector<float> scaled = CompressedFrequencies(*config);
  config->rope_scaling.original_max_position_embeddings = 0;
  const std::vector<float> plain = CompressedFrequencies(*config);
  EXPECT_EQ(plain[0], scaled[0]);
  EXPECT_EQ(plain[31], scaled[31] * 16.0f);
}

}  // namespace
}  // namespace minke::testing

// The corpus tests notice a crash only because a crash ends their process; this shows that the
// same call does end it.
#include <gtest/gtest.h>

#include <cstddef>
#include <cstdint>
#include <string_view>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace minke {
namespace {

int Feed(std::string_view input) {
  return LLVMFuzzerTestOneInput(reinterpret_cast<const uint8_t*>(input.data()), input.size());
}

TEST(FuzzCanary, HarmlessInputReturns) {
  EXPECT_EQ(Feed("quiet"), 0);
}

TEST(FuzzCanaryDeathTest, CrashingInputEndsTheProcess) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  EXPECT_DEATH(Feed("crash now"), "");
}

}  // namespace
}  // namespace minke

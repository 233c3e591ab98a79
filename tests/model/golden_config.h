// The configuration of a golden set.
#pragma once

#include <gtest/gtest.h>

#include <string>

#include "model/config.h"
#include "tests/support/golden.h"

namespace minke::testing {

inline ModelConfig GoldenConfig(const std::string& set) {
  auto config = LoadConfig(GoldenPath(set + "/config.json"));
  EXPECT_TRUE(config.has_value()) << config.error().message;
  return config ? *config : ModelConfig();
}

}  // namespace minke::testing

// A bar on stderr for work of many equal steps; nothing where stderr is no terminal.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

#include "apps/terminal.h"

namespace minke {

// Shown once the work has taken a second, and removed with the object.
class ProgressBar {
 public:
  void Show(const std::string& step, int64_t done, int64_t total);

 private:
  using Clock = std::chrono::steady_clock;

  StatusLine line_;
  Clock::time_point start_ = Clock::now();
  Clock::time_point shown_;
};

}  // namespace minke

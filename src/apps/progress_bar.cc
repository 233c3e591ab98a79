#include "apps/progress_bar.h"

#include <fmt/format.h>

namespace minke {

void ProgressBar::Show(const std::string& step, int64_t done, int64_t total) {
  constexpr auto kProgressAfter = std::chrono::seconds(1);
  constexpr auto kProgressEvery = std::chrono::milliseconds(100);
  constexpr int64_t kColumns = 30;
  const Clock::time_point now = Clock::now();
  if (now - start_ < kProgressAfter || now - shown_ < kProgressEvery || total == 0) return;
  shown_ = now;
  const auto columns = static_cast<size_t>(kColumns * done / total);
  line_.Show(fmt::format("[{:<{}}] {:3} %  {}", std::string(columns, '#'), kColumns,
                         100 * done / total, step));
}

}  // namespace minke

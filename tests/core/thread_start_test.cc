#include "core/thread_start.h"

#include <pthread.h>

#include <atomic>

#include <gtest/gtest.h>

namespace minke {
namespace {

// While it lives the system starts no thread, since no stack of such a size fits.
class NoMoreThreads {
 public:
  NoMoreThreads() {
    EXPECT_EQ(::pthread_getattr_default_np(&before_), 0);
    pthread_attr_t large;
    EXPECT_EQ(::pthread_attr_init(&large), 0);
    EXPECT_EQ(::pthread_attr_setstacksize(&large, size_t{1} << 47), 0);
    EXPECT_EQ(::pthread_setattr_default_np(&large), 0);
    ::pthread_attr_destroy(&large);
  }
  ~NoMoreThreads() {
    ::pthread_setattr_default_np(&before_);
    ::pthread_attr_destroy(&before_);
  }
  NoMoreThreads(const NoMoreThreads&) = delete;
  NoMoreThreads& operator=(const NoMoreThreads&) = delete;

 private:
  pthread_attr_t before_;
};

TEST(ThreadStart, RunsTheBodyAndTellsItToStop) {
  std::atomic<bool> stopped = false;
  {
    const Result<std::jthread> thread =
        StartThread("the test", [&stopped](const std::stop_token& stop) {
          while (!stop.stop_requested()) std::this_thread::yield();
          stopped = true;
        });
    ASSERT_TRUE(thread.has_value());
  }
  EXPECT_TRUE(stopped);
}

TEST(ThreadStart, AThreadThatCannotBeStartedIsAnErrorWithAWayOut) {
  const NoMoreThreads none;
  const Result<std::jthread> thread = StartThread("the test", [](const std::stop_token&) {});
  ASSERT_FALSE(thread.has_value());
  EXPECT_EQ(thread.error().code, ErrorCode::kLimit);
  for (const char* part : {"no thread for the test:", "ulimit -u", "limit of pids", "ulimit -v"}) {
    EXPECT_NE(thread.error().message.find(part), std::string::npos) << thread.error().message;
  }
}

}  // namespace
}  // namespace minke

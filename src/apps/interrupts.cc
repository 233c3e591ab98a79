#include "apps/interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "core/thread_start.h"

namespace minke {
namespace {

sigset_t InterruptSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  sigaddset(&set, SIGTERM);
  return set;
}

constexpr int kExitInterrupted = 128 + SIGINT;  // what shells report for a program ended by Ctrl-C

// Leaves without waiting for the running step, but not with a dim terminal.
[[noreturn]] void ExitAtOnce() {
  constexpr std::string_view kPlainAndNewline = "\x1b[0m\n";
  const bool terminal = isatty(STDOUT_FILENO) == 1;
  const ssize_t written =
      terminal ? write(STDOUT_FILENO, kPlainAndNewline.data(), kPlainAndNewline.size()) : 0;
  static_cast<void>(written);  // there is nobody left to tell
  _exit(kExitInterrupted);
}

}  // namespace

Result<Interrupts> Interrupts::Create() {
  const sigset_t set = InterruptSet();
  const int blocked = pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const int signals = blocked == 0 ? signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC) : -1;
  const int wake = signals >= 0 ? eventfd(0, EFD_CLOEXEC) : -1;
  if (wake < 0) {
    const int error = blocked != 0 ? blocked : errno;
    if (signals >= 0) close(signals);
    return Fail(ErrorCode::kIo,
                fmt::format("The system refused to watch for Ctrl-C: {}.", std::strerror(error)));
  }
  return Interrupts(signals, wake);
}

Interrupts::Interrupts(Interrupts&& other) noexcept
    : signals_(std::exchange(other.signals_, -1)),
      terminated_(other.terminated_.load()),
      wake_(std::exchange(other.wake_, -1)) {}

Interrupts::~Interrupts() {
  if (signals_ < 0) return;
  close(signals_);
  close(wake_);
  const sigset_t set = InterruptSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool Interrupts::Take() {
  bool any = false;
  signalfd_siginfo info;
  while (read(signals_, &info, sizeof(info)) == sizeof(info)) {
    any = true;
    if (info.ssi_signo == SIGTERM) terminated_ = true;
  }
  return any;
}

Interrupts::Woken Interrupts::Wait(int file_descriptor) {
  while (true) {
    std::array<pollfd, 2> files = {pollfd{signals_, POLLIN, 0}, pollfd{file_descriptor, POLLIN, 0}};
    if (poll(files.data(), files.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return Woken::kInput;  // reading will say what is wrong
    }
    if (files[0].revents != 0 && Take()) return Woken::kInterrupt;
    if (files[1].revents != 0) return Woken::kInput;
  }
}

Result<std::unique_ptr<InterruptWatch>> InterruptWatch::Start(Interrupts& interrupts,
                                                              std::atomic<bool>& cancel,
                                                              bool second_exits) {
  auto watch = std::unique_ptr<InterruptWatch>(new InterruptWatch(interrupts));
  watch->thread_ = TRY(StartThread(
      "watching for Ctrl-C", [&interrupts, &cancel, second_exits](const std::stop_token&) {
        while (interrupts.Wait(interrupts.wake_) == Interrupts::Woken::kInterrupt) {
          if (cancel.exchange(true) && second_exits) ExitAtOnce();
        }
      }));
  return watch;
}

InterruptWatch::~InterruptWatch() {
  if (!thread_.joinable()) return;
  uint64_t count = 1;
  CHECK(write(interrupts_.wake_, &count, sizeof(count)) == sizeof(count));
  thread_.join();
  CHECK(read(interrupts_.wake_, &count, sizeof(count)) == sizeof(count));
}

}  // namespace minke

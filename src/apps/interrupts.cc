#include "apps/interrupts.h"

#include <poll.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace minke {
namespace {

sigset_t InterruptSet() {
  sigset_t set;
  sigemptyset(&set);
  sigaddset(&set, SIGINT);
  return set;
}

}  // namespace

Result<Interrupts> Interrupts::Create() {
  const sigset_t set = InterruptSet();
  const int blocked = pthread_sigmask(SIG_BLOCK, &set, nullptr);
  const int file_descriptor = blocked == 0 ? signalfd(-1, &set, SFD_NONBLOCK | SFD_CLOEXEC) : -1;
  if (file_descriptor < 0) {
    return Fail(ErrorCode::kIo, fmt::format("The system refused to watch for Ctrl-C: {}.",
                                            std::strerror(blocked != 0 ? blocked : errno)));
  }
  return Interrupts(file_descriptor);
}

Interrupts::Interrupts(Interrupts&& other) noexcept
    : file_descriptor_(std::exchange(other.file_descriptor_, -1)) {}

Interrupts::~Interrupts() {
  if (file_descriptor_ < 0) return;
  close(file_descriptor_);
  const sigset_t set = InterruptSet();
  pthread_sigmask(SIG_UNBLOCK, &set, nullptr);
}

bool Interrupts::Take() {
  bool any = false;
  signalfd_siginfo info;
  while (read(file_descriptor_, &info, sizeof(info)) == sizeof(info)) any = true;
  return any;
}

Interrupts::Woken Interrupts::Wait() {
  while (true) {
    std::array<pollfd, 2> files = {pollfd{file_descriptor_, POLLIN, 0},
                                   pollfd{STDIN_FILENO, POLLIN, 0}};
    if (poll(files.data(), files.size(), -1) < 0) {
      if (errno == EINTR) continue;
      return Woken::kInput;  // reading will say what is wrong
    }
    if (files[0].revents != 0 && Take()) return Woken::kInterrupt;
    if (files[1].revents != 0) return Woken::kInput;
  }
}

}  // namespace minke

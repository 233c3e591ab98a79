// Ctrl-C as something that is read instead of something that happens: SIGINT is blocked and waits
// in a descriptor, so no handler and no global flag is needed. SIGTERM comes the same way, so that
// a program that is asked to end still writes what it wants to keep.
#pragma once

#include <atomic>
#include <memory>
#include <thread>

#include "core/result.h"

namespace minke {

class Interrupts {
 public:
  // Blocks SIGINT and SIGTERM for this thread and those it starts later, hence before any other
  // thread.
  static Result<Interrupts> Create();
  ~Interrupts();
  Interrupts(Interrupts&& other) noexcept;
  Interrupts& operator=(Interrupts&&) = delete;
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Takes what has come since the last call; true if there was any.
  bool Take();
  // Whether SIGTERM was among what has been taken: the program is to end in order.
  bool terminated() const { return terminated_; }
  // "Ctrl-C" or "SIGTERM": what ended the work.
  const char* Name() const { return terminated_ ? "SIGTERM" : "Ctrl-C"; }

  // Waits until `file_descriptor` has something to read (or has ended), or Ctrl-C comes.
  enum class Woken { kInput, kInterrupt };
  Woken Wait(int file_descriptor);

 private:
  friend class InterruptWatch;
  Interrupts(int signals, int wake) : signals_(signals), wake_(wake) {}
  int signals_ = -1;                      // readable when SIGINT is pending
  std::atomic<bool> terminated_ = false;  // the watch writes it, others read it meanwhile
  int wake_ = -1;                         // an eventfd, readable when an InterruptWatch is to end
};

// While it lives, a Ctrl-C sets `cancel` at once, also in the middle of a long step. A second one
// ends the program if `second_exits`: a step may be long, and a person may not want to wait.
// One at a time over an Interrupts, which nobody else reads meanwhile.
class InterruptWatch {
 public:
  // `interrupts` and `cancel` outlive it. Fails where the system starts no thread for it.
  static Result<std::unique_ptr<InterruptWatch>> Start(Interrupts& interrupts,
                                                       std::atomic<bool>& cancel,
                                                       bool second_exits);
  ~InterruptWatch();
  InterruptWatch(const InterruptWatch&) = delete;
  InterruptWatch& operator=(const InterruptWatch&) = delete;

 private:
  explicit InterruptWatch(Interrupts& interrupts) : interrupts_(interrupts) {}
  Interrupts& interrupts_;
  std::jthread thread_;
};

}  // namespace minke

// Ctrl-C as something that is read instead of something that happens: SIGINT is blocked and waits
// in a descriptor, so no handler and no shared flag is needed.
#pragma once

#include "core/result.h"

namespace minke {

class Interrupts {
 public:
  // Blocks SIGINT for this thread and those it starts later, hence before any other thread.
  static Result<Interrupts> Create();
  ~Interrupts();
  Interrupts(Interrupts&& other) noexcept;
  Interrupts& operator=(Interrupts&&) = delete;
  Interrupts(const Interrupts&) = delete;
  Interrupts& operator=(const Interrupts&) = delete;

  // Takes what has come since the last call; true if there was any.
  bool Take();

  // Waits until standard input has something to read (or has ended), or Ctrl-C comes.
  enum class Woken { kInput, kInterrupt };
  Woken Wait();

 private:
  explicit Interrupts(int file_descriptor) : file_descriptor_(file_descriptor) {}
  int file_descriptor_ = -1;
};

}  // namespace minke

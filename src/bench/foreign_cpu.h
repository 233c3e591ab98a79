// Processor time that others took during a measurement. A figure measured beside a busy neighbour
// says little, so every report tells it.
#pragma once

#include <chrono>
#include <cstdint>

namespace minke {

// Above this share a report carries a warning.
inline constexpr double kForeignCpuShareMax = 0.02;

class ForeignCpu {
 public:
  // Starts counting.
  ForeignCpu();

  // Of the time of all processors since the start, the share that was not idle and not ours: other
  // processes, the kernel on their behalf, and time that a hypervisor took. 0 to 1; -1 where the
  // system does not say. The kernel counts in steps of 10 ms, so a run should take seconds.
  double Share() const;

 private:
  struct Times {
    double busy = 0;   // seconds of all processors, everybody
    double total = 0;  // seconds of all processors, idle ones included
    double own = 0;    // seconds of this process
  };
  static Times Now();

  Times start_;
};

}  // namespace minke

#include "bench/foreign_cpu.h"

#include <sys/resource.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <string>

namespace minke {
namespace {

double Seconds(const timeval& time) {
  return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

}  // namespace

ForeignCpu::Times ForeignCpu::Now() {
  Times times;
  rusage usage{};
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    times.own = Seconds(usage.ru_utime) + Seconds(usage.ru_stime);
  }
  // The first line: "cpu" and the ticks spent as user, nice, system, idle, iowait, irq, softirq and
  // steal. The guests' ticks that follow are part of user.
  std::ifstream file("/proc/stat");
  std::string name;
  std::array<double, 8> ticks{};
  file >> name;
  for (double& value : ticks) file >> value;
  const auto ticks_per_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (!file || name != "cpu" || ticks_per_second <= 0) return times;
  for (const double value : ticks) times.total += value / ticks_per_second;
  times.busy = times.total - (ticks[3] + ticks[4]) / ticks_per_second;
  return times;
}

ForeignCpu::ForeignCpu() : start_(Now()) {}

double ForeignCpu::Share() const {
  const Times now = Now();
  const double total = now.total - start_.total;
  if (total <= 0) return -1;
  const double foreign = now.busy - start_.busy - (now.own - start_.own);
  return std::clamp(foreign / total, 0.0, 1.0);
}

}  // namespace minke

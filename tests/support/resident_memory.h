// Memory of this process, as the kernel counts it.
#pragma once

#include <malloc.h>

#include <cstdint>
#include <fstream>
#include <string>
#include <vector>

namespace minke::testing {

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
inline constexpr bool kSanitized = true;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif
#else
inline constexpr bool kSanitized = false;
#endif

// The values that a loop goes over: fewer of a kind where a sanitizer takes its time.
inline std::vector<int64_t> Values(std::vector<int64_t> all, std::vector<int64_t> sanitized) {
  return kSanitized ? sanitized : all;
}

// "VmRSS" (now) or "VmHWM" (the most since the last ForgetPeak()), in bytes; 0 where there is no
// such line.
inline int64_t MemoryBytes(const std::string& field) {
  constexpr int64_t kBytesPerKilobyte = 1024;
  std::ifstream status("/proc/self/status");
  std::string name;
  while (status >> name) {
    if (name == field + ":") {
      int64_t kilobytes = 0;
      status >> kilobytes;
      return kilobytes * kBytesPerKilobyte;
    }
    std::getline(status, name);
  }
  return 0;
}

inline void ForgetPeak() {
  std::ofstream("/proc/self/clear_refs") << "5";
}

}  // namespace minke::testing

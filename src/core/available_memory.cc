#include "core/available_memory.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>

namespace minke {
namespace {

// The number after `name` and a separator in a line of the file; -1 if there is none.
int64_t NumberAfter(const std::string& path, const std::string& name, char separator) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name + separator)) continue;
    return std::strtoll(line.c_str() + name.size() + 1, nullptr, 10);
  }
  return -1;
}

// The one number of a file; -1 where there is none, such as in "max".
int64_t NumberIn(const std::string& path) {
  std::ifstream file(path);
  int64_t number = -1;
  return file >> number ? number : -1;
}

// The group of this process, of "0::/path". Groups of version 1 have names instead of nothing.
std::optional<std::string> GroupPath(const std::string& root) {
  std::ifstream file(root + "/proc/self/cgroup");
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("0::/")) return line == "0::/" ? std::string() : line.substr(3);
  }
  return std::nullopt;
}

// What the limits of the group and of those around it leave; -1 without limits.
int64_t LeftByGroups(const std::string& root) {
  std::optional<std::string> path = GroupPath(root);
  int64_t left = -1;
  while (path.has_value()) {
    const std::string group = root + "/sys/fs/cgroup" + *path + "/";
    const int64_t limit = NumberIn(group + "memory.max");
    const int64_t used = NumberIn(group + "memory.current");
    if (limit >= 0 && used >= 0) {
      // Pages of files are dropped before anything fails.
      const int64_t files = std::max<int64_t>(0, NumberAfter(group + "memory.stat", "file", ' '));
      const int64_t here = std::max<int64_t>(0, limit - std::max<int64_t>(0, used - files));
      left = left < 0 ? here : std::min(left, here);
    }
    if (path->empty()) break;
    path->resize(path->rfind('/'));
  }
  return left;
}

}  // namespace

int64_t AvailableMemoryBytes(const std::string& root) {
  constexpr int64_t kUnitBytes = 1024;  // the file says kB and means KiB
  const int64_t available =
      std::max<int64_t>(0, NumberAfter(root + "/proc/meminfo", "MemAvailable", ':') * kUnitBytes);
  const int64_t left = LeftByGroups(root);
  return available > 0 && left >= 0 ? std::min(available, left) : available;
}

}  // namespace minke

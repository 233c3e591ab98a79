#include "core/available_memory.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr int64_t kGiB = int64_t{1} << 30;

class FakeSystem {
 public:
  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = std::filesystem::path(folder_.path()) / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text << '\n';
  }
  void WriteGroup(const std::string& group, const std::string& limit, int64_t used,
                  int64_t files) const {
    const std::string base = "sys/fs/cgroup" + group + "/";
    Write(base + "memory.max", limit);
    Write(base + "memory.current", std::to_string(used));
    Write(base + "memory.stat", "anon 5\nfile " + std::to_string(files) + "\nfile_mapped 7");
  }
  int64_t Available() const { return AvailableMemoryBytes(folder_.path()); }

 private:
  TempDirectory folder_;
};

TEST(AvailableMemory, IsWhatTheSystemSays) {
  const FakeSystem system;
  EXPECT_EQ(system.Available(), 0) << "it says nothing";
  system.Write("proc/meminfo", "MemTotal: 9437184 kB\nMemAvailable:    8388608 kB");
  EXPECT_EQ(system.Available(), 8 * kGiB);
  EXPECT_GT(AvailableMemoryBytes(), 0) << "of the machine that runs this";
}

TEST(AvailableMemory, LimitsOfGroupsCount) {
  const FakeSystem system;
  system.Write("proc/meminfo", "MemAvailable: 8388608 kB");
  system.Write("proc/self/cgroup", "4:memory:/other\n0::/a/b");
  EXPECT_EQ(system.Available(), 8 * kGiB);
  system.WriteGroup("/a/b", "max", kGiB, 0);
  EXPECT_EQ(system.Available(), 8 * kGiB);
  system.WriteGroup("/a", std::to_string(4 * kGiB), 2 * kGiB, kGiB / 2);
  EXPECT_EQ(system.Available(), 5 * kGiB / 2) << "files can be dropped";
  system.WriteGroup("/a/b", std::to_string(kGiB), 2 * kGiB, 0);
  EXPECT_EQ(system.Available(), 0);
}

// In a container its own group is the root.
TEST(AvailableMemory, TheRootGroupCountsToo) {
  const FakeSystem system;
  system.Write("proc/meminfo", "MemAvailable: 8388608 kB");
  system.Write("proc/self/cgroup", "0::/");
  system.WriteGroup("", std::to_string(3 * kGiB), kGiB, 0);
  EXPECT_EQ(system.Available(), 2 * kGiB);
}

}  // namespace
}  // namespace minke::testing

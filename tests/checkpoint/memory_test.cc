// What opening a checkpoint costs in memory: headers only, and hostile headers a bounded factor.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <string>

#include "checkpoint/safetensors.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::ForgetPeak;
using testing::kSanitized;
using testing::MemoryBytes;
using testing::TempDirectory;

constexpr int64_t kMebibyte = int64_t{1} << 20;

std::string WithLength(std::string_view header) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + std::string(header);
}

// The most memory that parsing took beyond what was resident before, in bytes.
int64_t PeakOfParsing(const std::string& file) {
  ForgetPeak();
  const int64_t before = MemoryBytes("VmRSS");
  const auto parsed = ParseSafetensorsHeader(std::as_bytes(std::span(file)), "hostile");
  EXPECT_FALSE(parsed.has_value());
  return MemoryBytes("VmHWM") - before;
}

// kHeaderExpansionMax, at the inputs that make the most values of the fewest bytes.
TEST(SafetensorsMemory, HostileHeadersCostABoundedFactor) {
  if (kSanitized) GTEST_SKIP() << "A sanitizer's own memory hides ours.";
  if (MemoryBytes("VmHWM") == 0) GTEST_SKIP() << "There is no /proc/self/status.";
  constexpr size_t kHeaderBytes = 2 << 20;
  const std::string keys = [] {
    std::string text;
    for (int i = 0; text.size() < kHeaderBytes; ++i) text += "\"" + std::to_string(i) + "\":0,";
    return text;
  }();
  const auto repeated = [](std::string_view piece) {
    std::string text;
    while (text.size() < kHeaderBytes) text += piece;
    return text;
  };
  int64_t highest = 0;
  for (const std::string& header :
       {"{\"a\":[" + repeated("0,") + "0]}", "{\"a\":[" + repeated("[],") + "0]}",
        "{\"a\":[" + repeated("{},") + "0]}", "{\"a\":[" + repeated("\"\",") + "0]}",
        "{" + keys + "\"a\":0}", "{\"a\":{" + keys + "\"a\":0}}"}) {
    const std::string file = WithLength(header);
    const int64_t peak = PeakOfParsing(file);
    EXPECT_LT(peak, static_cast<int64_t>(kHeaderExpansionMax * header.size()))
        << header.substr(0, 24);
    highest = std::max(highest, peak);
  }
  // The heap may serve one of them from what an earlier one left; that it serves all is a fault.
  EXPECT_GT(highest, static_cast<int64_t>(10 * kHeaderBytes)) << "No peak was seen.";
}

// The claims of a header are compared and never allocated.
TEST(SafetensorsMemory, ClaimedSizesCostNothing) {
  if (kSanitized) GTEST_SKIP() << "A sanitizer's own memory hides ours.";
  const std::string file = WithLength(
      R"({"t":{"dtype":"F32","shape":[1099511627776],"data_offsets":[0,4398046511104]}})");
  EXPECT_LT(PeakOfParsing(file), kMebibyte);
}

TEST(SafetensorsMemory, SixteenGigabytesOfShardsStayOnDisk) {
  const TempDirectory directory;
  constexpr uint64_t kShardBytes = uint64_t{4} << 30;
  std::string weight_map;
  for (const char* name : {"a", "b", "c", "d"}) {
    const std::string shard = std::string(name) + ".safetensors";
    const std::string file = WithLength(
        "{\"" + std::string(name) + R"(":{"dtype":"I8","shape":[65536,65536],"data_offsets":[0,)" +
        std::to_string(kShardBytes) + "]}}");
    directory.Write(shard, file);
    // A file with a hole: it has the size, and no blocks.
    if (::truncate(directory.Path(shard).c_str(), static_cast<off_t>(file.size() + kShardBytes)) !=
        0) {
      GTEST_SKIP() << "This file system has no files of 4 GiB.";
    }
    weight_map += (weight_map.empty() ? "\"" : ",\"") + std::string(name) + "\":\"" + shard + "\"";
  }
  directory.Write("model.safetensors.index.json",
                  "{\"metadata\":{\"total_size\":" + std::to_string(4 * kShardBytes) +
                      "},\"weight_map\":{" + weight_map + "}}");
  const int64_t before = MemoryBytes("VmRSS");
  const auto opened = Checkpoint::Open(directory.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(opened->tensor_bytes(), 4 * kShardBytes);
  // The last byte of all is there to be read.
  EXPECT_EQ(opened->Find("d")->bytes.back(), std::byte{0});
  EXPECT_LT(MemoryBytes("VmRSS") - before, 16 * kMebibyte);
}

}  // namespace
}  // namespace minke

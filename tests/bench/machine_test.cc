#include "bench/machine.h"

#include <chrono>
#include <filesystem>
#include <fstream>
#include <thread>

#include <gtest/gtest.h>

#include "bench/disk_rate.h"
#include "bench/peaks.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

TEST(Samples, TellMedianAndBest) {
  Samples samples;
  EXPECT_EQ(samples.Median(), 0);
  for (const double value : {3.0, 1.0, 100.0, 2.0}) samples.Add(value);
  EXPECT_EQ(samples.Median(), 2.5);
  EXPECT_EQ(samples.Best(), 100);
  samples.Add(4);
  EXPECT_EQ(samples.Median(), 3);
  EXPECT_EQ(samples.count(), 5);
}

TEST(Samples, RatesHaveThreeDigits) {
  EXPECT_EQ(RateText(31.56e9, "B/s"), "31.6 GB/s");
  EXPECT_EQ(RateText(999, "/s"), "999 /s");
  EXPECT_EQ(RateText(1000, "/s"), "1.00 k/s");
  EXPECT_EQ(RateText(0, "/s"), "0.00 /s");
}

TEST(MeasuredMemory, IsZeroAlignedAndMovable) {
  auto mapped = MapMeasuredMemory(3 * kLargePageBytes, PageSize::kHuge);
  ASSERT_TRUE(mapped.has_value()) << mapped.error().message;
  PageMemory memory = *std::move(mapped);
  EXPECT_EQ(memory.bytes().size(), 3 * kLargePageBytes);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory.bytes().data()) % kLargePageBytes, 0u);
  EXPECT_EQ(memory.bytes().front(), std::byte{0});
  memory.bytes().back() = std::byte{7};
  PageMemory other = std::move(memory);
  EXPECT_EQ(other.bytes().back(), std::byte{7});
}

TEST(MeasuredMemory, MoreThanAnAddressSpaceIsAnError) {
  const auto mapped = MapMeasuredMemory(size_t{1} << 62, PageSize::kSmall);
  ASSERT_FALSE(mapped.has_value());
  EXPECT_NE(mapped.error().message.find("4611686018427387904 bytes"), std::string::npos)
      << mapped.error().message;
}

TEST(Peaks, ArePositiveWhateverTheThreads) {
  const auto memory = MapMeasuredMemory(2 * kLargePageBytes, PageSize::kSmall);
  ASSERT_TRUE(memory.has_value());
  for (const int threads : {1, 3}) {
    ThreadPool pool(threads);
    EXPECT_GT(MeasureReadRate(memory->bytes(), pool), 1e6);
    EXPECT_GT(MeasureFmaRate(0.001, pool), 1e6);
    EXPECT_GT(MeasureIntegerRate(0.001, pool), 1e6);
  }
}

TEST(ForeignCpu, IsAShare) {
  const ForeignCpu foreign;
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  const double share = foreign.Share();
  EXPECT_LE(share, 1);
  EXPECT_TRUE(share >= 0 || share == -1) << share;
  EXPECT_TRUE(ForeignCpuWarning(kForeignCpuShareMax).empty());
  EXPECT_NE(ForeignCpuWarning(0.25).find("25.0 %"), std::string::npos);
}

TEST(DiskFile, RemovesItsFileAndNamesAFolderThatIsMissing) {
  const testing::TempDirectory directory;
  const auto missing = DiskFile::Create(directory.Path("none"));
  ASSERT_FALSE(missing.has_value());
  EXPECT_NE(missing.error().message.find("none"), std::string::npos) << missing.error().message;
  EXPECT_TRUE(std::filesystem::is_empty(directory.Path("")));
  MachineOptions options;
  options.directory = directory.Path("none");
  EXPECT_FALSE(MeasureMachine(options).has_value());
}

TEST(DiskFile, ReadsTheLargestFileThatIsThereAndLeavesIt) {
  const testing::TempDirectory directory;
  std::ofstream(directory.Path("small")) << "short";
  const auto none = DiskFile::OpenLargest(directory.Path(""));
  ASSERT_TRUE(none.has_value()) << none.error().message;
  EXPECT_EQ(*none, nullptr);
  std::ofstream(directory.Path("large")).close();
  std::filesystem::resize_file(directory.Path("large"), kDiskFileBytesMin + 1);
  {
    const auto file = DiskFile::OpenLargest(directory.Path(""));
    if (!file.has_value()) {  // a file system in memory
      EXPECT_NE(file.error().message.find("direct I/O"), std::string::npos) << file.error().message;
      GTEST_SKIP() << file.error().message;
    }
    ASSERT_NE(*file, nullptr);
    const auto rate = (*file)->MeasureReadRate(2);
    ASSERT_TRUE(rate.has_value()) << rate.error().message;
    EXPECT_GT(*rate, 0);
  }
  EXPECT_TRUE(std::filesystem::exists(directory.Path("large")));
}

}  // namespace
}  // namespace minke

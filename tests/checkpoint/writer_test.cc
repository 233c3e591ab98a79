#include "checkpoint/safetensors_writer.h"

#include <filesystem>

#include <gtest/gtest.h>

#include "core/file.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

std::vector<std::byte> Counting(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i);
  return bytes;
}

TEST(SafetensorsWriter, WritesWhatTheOtherWriterWrites) {
  const testing::TempDirectory directory;
  const std::vector<std::byte> bytes = Counting(24);
  const std::span<const std::byte> data(bytes);
  ASSERT_TRUE(WriteSafetensors(directory.Path("whole"),
                               std::vector<TensorToWrite>{
                                   {"codes", DType::kI8, {2, 4}, data.first(8)},
                                   {"norm", DType::kF32, {4}, data.last(16)},
                               })
                  .has_value());
  auto writer = SafetensorsWriter::Create(
      directory.Path("pieces"), {{"codes", DType::kI8, {2, 4}}, {"norm", DType::kF32, {4}}});
  ASSERT_TRUE(writer.has_value()) << writer.error().message;
  // Wider elements come first.
  ASSERT_EQ((*writer)->tensors().front().name, "norm");
  ASSERT_TRUE((*writer)->Append(data.subspan(8, 5)).has_value());
  ASSERT_TRUE((*writer)->Append(data.subspan(13)).has_value());
  EXPECT_FALSE(FileExists(directory.Path("pieces")));
  ASSERT_TRUE((*writer)->Append(data.first(8)).has_value());
  ASSERT_TRUE((*writer)->Finish().has_value());
  const auto whole = ReadFile(directory.Path("whole"), 1 << 20);
  const auto pieces = ReadFile(directory.Path("pieces"), 1 << 20);
  ASSERT_TRUE(whole.has_value() && pieces.has_value());
  EXPECT_EQ(*whole, *pieces);
}

TEST(SafetensorsWriter, LeavesNothingOfAFileThatIsNotFinished) {
  const testing::TempDirectory directory;
  {
    auto writer = SafetensorsWriter::Create(directory.Path("part"), {{"x", DType::kF32, {4}}});
    ASSERT_TRUE(writer.has_value());
    ASSERT_TRUE((*writer)->Append(Counting(8)).has_value());
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory.path()));
}

TEST(SafetensorsWriter, NamesAFolderThatIsMissing) {
  const testing::TempDirectory directory;
  const auto writer = SafetensorsWriter::Create(directory.Path("none/file"), {});
  ASSERT_FALSE(writer.has_value());
  EXPECT_NE(writer.error().message.find("none/file"), std::string::npos) << writer.error().message;
}

}  // namespace
}  // namespace minke

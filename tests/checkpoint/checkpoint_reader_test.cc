#include "checkpoint/checkpoint_reader.h"

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>

#include "tests/support/golden.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::GoldenPath;
using testing::TempDirectory;

constexpr uint64_t kOddFileBytes = 3 * kPageBytes + 777;

class OddFile {
 public:
  OddFile() {
    for (uint64_t i = 0; i < kOddFileBytes; ++i) content_ += static_cast<char>(i * 31 + i / 4096);
    directory_.Write("odd", content_);
  }
  std::string path() const { return directory_.Path("odd"); }
  const std::string& content() const { return content_; }

 private:
  TempDirectory directory_;
  std::string content_;
};

std::string ReadError(const DirectFile& file) {
  const Result<PageMemory> memory = PageMemory::Map(4 * kPageBytes, "the test");
  uint64_t failed_at = 0;
  const Status status = file.Read(0, memory->bytes(), &failed_at);
  return status ? std::string() : status.error().message;
}

TEST(DirectFile, ReadsWholePagesAndTheCutOneAtTheEnd) {
  const OddFile odd;
  const Result<DirectFile> file = DirectFile::Open(odd.path(), kOddFileBytes);
  ASSERT_TRUE(file.has_value()) << file.error().message;
  const Result<PageMemory> memory = PageMemory::Map(4 * kPageBytes, "the test");
  ASSERT_TRUE(memory.has_value());
  for (const size_t first : {0, 1, 3}) {
    uint64_t failed_at = 0;
    const auto target = memory->bytes().first((4 - first) * kPageBytes);
    ASSERT_TRUE(file->Read(first * kPageBytes, target, &failed_at));
    const std::string_view read(reinterpret_cast<const char*>(target.data()),
                                kOddFileBytes - first * kPageBytes);
    EXPECT_TRUE(read == std::string_view(odd.content()).substr(first * kPageBytes)) << first;
  }
}

TEST(DirectFile, AFileThatChangesIsAnError) {
  const OddFile odd;
  EXPECT_FALSE(DirectFile::Open(odd.path(), kOddFileBytes - 1).has_value());
  EXPECT_FALSE(DirectFile::Open(odd.path() + "x", kOddFileBytes).has_value());
  const Result<DirectFile> file = DirectFile::Open(odd.path(), kOddFileBytes);
  ASSERT_TRUE(file.has_value());
  EXPECT_EQ(ReadError(*file), "");
  const auto time = std::filesystem::last_write_time(odd.path());
  std::filesystem::last_write_time(odd.path(), time + std::chrono::seconds(5));
  EXPECT_NE(ReadError(*file).find("it was written to"), std::string::npos) << ReadError(*file);
  std::filesystem::resize_file(odd.path(), kPageBytes + 9);
  const std::string message = ReadError(*file);
  EXPECT_NE(message.find(odd.path()), std::string::npos) << message;
  EXPECT_NE(message.find("13065 bytes and has 4105"), std::string::npos) << message;
}

class CheckpointCopy {
 public:
  CheckpointCopy() {
    std::filesystem::copy(GoldenPath("full_mini"), directory_.path(),
                          std::filesystem::copy_options::recursive);
  }
  Checkpoint Open() const { return std::move(*Checkpoint::Open(directory_.path())); }
  const TempDirectory& directory() const { return directory_; }

 private:
  TempDirectory directory_;
};

std::vector<std::byte> Bytes(const TensorView& tensor) {
  return {tensor.bytes.begin(), tensor.bytes.end()};
}

TEST(CheckpointReader, LoadedTensorsAreTheMappedOnesElsewhere) {
  Checkpoint checkpoint = std::move(*Checkpoint::Open(GoldenPath("full_mini")));
  std::map<std::string, std::vector<std::byte>> mapped;
  std::vector<std::string_view> names;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    mapped[name] = Bytes(tensor);
    if (names.size() < mapped.size() / 2 + 1) names.push_back(tensor.name);
  }
  ASSERT_GT(names.size(), 10u);
  const auto reader = std::move(*CheckpointReader::Open(checkpoint));
  const std::unique_ptr<ReadPool> pool = ReadPool::Create(3).value();
  const Result<PageMemory> memory = LoadTensors(*reader, *pool, names, checkpoint);
  ASSERT_TRUE(memory.has_value()) << memory.error().message;
  const std::set<std::string_view> loaded(names.begin(), names.end());
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    EXPECT_EQ(Bytes(tensor), mapped[name]) << name;
    const bool inside = tensor.bytes.data() >= memory->bytes().data() &&
                        tensor.bytes.data() < memory->bytes().data() + memory->bytes().size();
    EXPECT_EQ(inside, loaded.contains(name)) << name;
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % kPageBytes,
              tensor.begin % kPageBytes)
        << name;
  }
}

// Steps cut extents and tensors anywhere; each is prepared before it is read into.
TEST(CheckpointReader, LoadsInSteps) {
  for (const size_t step : {kPageBytes, 3 * kPageBytes, size_t{1} << 30}) {
    Checkpoint checkpoint = std::move(*Checkpoint::Open(GoldenPath("full_mini")));
    std::map<std::string, std::vector<std::byte>> mapped;
    std::vector<std::string_view> names;
    for (const auto& [name, tensor] : checkpoint.tensors()) {
      mapped[name] = Bytes(tensor);
      if (mapped.size() % 3 != 0 && mapped.size() < 100) names.push_back(tensor.name);
    }
    const auto reader = std::move(*CheckpointReader::Open(checkpoint));
    const std::unique_ptr<ReadPool> pool = ReadPool::Create(3).value();
    size_t prepared = 0;
    uint64_t read = 0;
    LoadOptions options;
    options.step_bytes = step;
    options.before_step = [&](std::span<std::byte> bytes, size_t begin) {
      EXPECT_EQ(begin, prepared);
      EXPECT_LE(bytes.size(), step);
      prepared += bytes.size();
      std::fill(bytes.begin(), bytes.end(), std::byte{0x55});
    };
    options.progress = [&](uint64_t done, uint64_t total) {
      EXPECT_GT(done, read);
      EXPECT_LE(done, total);
      read = done;
    };
    const Result<PageMemory> memory = LoadTensors(*reader, *pool, names, checkpoint, options);
    ASSERT_TRUE(memory.has_value()) << memory.error().message;
    EXPECT_EQ(prepared, memory->bytes().size());
    EXPECT_EQ(read, memory->bytes().size());
    for (const std::string_view name : names) {
      EXPECT_EQ(Bytes(*checkpoint.Find(name)), mapped[std::string(name)]) << name;
    }
  }
}

TEST(CheckpointReader, NeighboursAreOneRead) {
  const Checkpoint checkpoint = std::move(*Checkpoint::Open(GoldenPath("full_mini")));
  const auto reader = std::move(*CheckpointReader::Open(checkpoint));
  std::vector<const TensorView*> all;
  for (const auto& [name, tensor] : checkpoint.tensors()) all.push_back(&tensor);
  const TensorLayout layout = reader->LayOut(all);
  EXPECT_EQ(layout.extents.size(), checkpoint.shard_count());
  const TensorLayout one = reader->LayOut(std::span(all).first(1));
  EXPECT_EQ(one.extents.size(), 1u);
  EXPECT_LE(one.bytes, all.front()->bytes.size() + 2 * kPageBytes);
}

TEST(CheckpointReader, ATruncatedShardNamesFileAndTensor) {
  const CheckpointCopy copy;
  Checkpoint checkpoint = copy.Open();
  const auto reader = std::move(*CheckpointReader::Open(checkpoint));
  const TensorView* last = nullptr;
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    if (last == nullptr || tensor.begin > last->begin) last = &tensor;
  }
  const std::string path(last->file);
  std::filesystem::resize_file(path, last->begin + last->bytes.size() / 2);
  const std::unique_ptr<ReadPool> pool = ReadPool::Create(2).value();
  const std::string_view name = last->name;
  const Result<PageMemory> memory = LoadTensors(*reader, *pool, {&name, 1}, checkpoint);
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code, ErrorCode::kIo);
  for (const std::string_view part : {std::string_view(path), name}) {
    EXPECT_NE(memory.error().message.find(part), std::string::npos) << memory.error().message;
  }
}

}  // namespace
}  // namespace minke

#include <gtest/gtest.h>

#include <filesystem>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "checkpoint/safetensors_writer.h"
#include "core/json.h"
#include "tests/support/golden.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::GoldenPath;
using testing::TempDirectory;

constexpr const char* kIndexName = "model.safetensors.index.json";

// Two shards: "a" (F32 [2]) and "b" (I8 [3]) in the first, "c" (BF16 [2]) in the second.
class Shards {
 public:
  Shards() {
    WriteShard("s1.safetensors",
               {{"a", DType::kF32, {2}, Data(8)}, {"b", DType::kI8, {3}, Data(3)}});
    WriteShard("s2.safetensors", {{"c", DType::kBf16, {2}, Data(4)}});
    WriteIndex(15, R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s2.safetensors"})");
  }
  void WriteShard(std::string_view name, std::vector<TensorToWrite> tensors) {
    const auto status = WriteSafetensors(directory_.Path(name), tensors);
    ASSERT_TRUE(status.has_value()) << status.error().message;
  }
  void WriteIndex(int64_t total_size, std::string_view weight_map) {
    directory_.Write(kIndexName, "{\"metadata\":{\"total_size\":" + std::to_string(total_size) +
                                     "},\"weight_map\":" + std::string(weight_map) + "}");
  }
  std::span<const std::byte> Data(size_t bytes) const {
    return std::as_bytes(std::span(content_).first(bytes));
  }
  const TempDirectory& directory() const { return directory_; }
  Result<Checkpoint> Open() const { return Checkpoint::Open(directory_.path()); }
  std::string Error() const {
    const auto opened = Open();
    EXPECT_FALSE(opened.has_value());
    return opened ? std::string() : opened.error().message;
  }

 private:
  std::string content_ = "0123456789abcdef";
  TempDirectory directory_;
};

void ExpectMentions(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

TEST(Checkpoint, OpensShardsByTheirIndex) {
  const Shards shards;
  auto opened = shards.Open();
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  // Views must survive moves of the checkpoint.
  const Checkpoint checkpoint = std::move(*opened);
  EXPECT_EQ(checkpoint.tensors().size(), 3u);
  EXPECT_EQ(checkpoint.shard_count(), 2u);
  EXPECT_EQ(checkpoint.tensor_bytes(), 15u);
  EXPECT_EQ(checkpoint.file_bytes(),
            std::filesystem::file_size(shards.directory().Path("s1.safetensors")) +
                std::filesystem::file_size(shards.directory().Path("s2.safetensors")));
  const TensorView* tensor = checkpoint.Find("c");
  ASSERT_NE(tensor, nullptr);
  EXPECT_EQ(tensor->name, "c");
  EXPECT_EQ(tensor->dtype, DType::kBf16);
  EXPECT_EQ(tensor->shape, std::vector<int64_t>{2});
  EXPECT_EQ(tensor->file, shards.directory().Path("s2.safetensors"));
  EXPECT_EQ(std::string_view(reinterpret_cast<const char*>(tensor->bytes.data()), 4), "0123");
  EXPECT_EQ(checkpoint.Find("d"), nullptr);
}

TEST(Checkpoint, PrewarmReadsEveryShardAndCanBeStopped) {
  const Shards shards;
  const auto opened = shards.Open();
  ASSERT_TRUE(opened.has_value());
  std::vector<uint64_t> done;
  opened->Prewarm([&](uint64_t bytes, uint64_t total) {
    EXPECT_EQ(total, opened->file_bytes());
    done.push_back(bytes);
    return true;
  });
  ASSERT_EQ(done.size(), 2u);
  EXPECT_LT(done[0], done[1]);
  EXPECT_EQ(done[1], opened->file_bytes());
  int steps = 0;
  opened->Prewarm([&](uint64_t, uint64_t) { return ++steps < 1; });
  EXPECT_EQ(steps, 1);
}

TEST(Checkpoint, OpensASingleFile) {
  const TempDirectory directory;
  const std::string data = "abcd";
  const std::vector<TensorToWrite> tensors = {
      {"x", DType::kI8, {2, 2}, std::as_bytes(std::span(data))}};
  ASSERT_TRUE(WriteSafetensors(directory.Path("model.safetensors"), tensors).has_value());
  const auto opened = Checkpoint::Open(directory.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  EXPECT_EQ(opened->tensors().size(), 1u);
  EXPECT_EQ(opened->directory(), directory.path());
}

TEST(Checkpoint, OpensTheGoldenSets) {
  struct Expected {
    const char* set;
    size_t tensors;
    uint64_t tensor_bytes;
    size_t shards;
  };
  // Counted with Python's json and struct modules from the files themselves.
  for (const Expected& expected :
       {Expected{"tiny_swa", 237, 1'101'392, 1}, Expected{"full_mini", 1301, 4'685'808, 3},
        Expected{"wide", 363, 6'098'072, 1}, Expected{"chat", 339, 1'669'370, 1},
        Expected{"dspark", 784, 3'346'258, 1}, Expected{"vision", 461, 2'280'314, 1}}) {
    const auto opened = Checkpoint::Open(GoldenPath(expected.set));
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    EXPECT_EQ(opened->tensors().size(), expected.tensors) << expected.set;
    EXPECT_EQ(opened->tensor_bytes(), expected.tensor_bytes) << expected.set;
    EXPECT_EQ(opened->shard_count(), expected.shards) << expected.set;
  }
}

TEST(Checkpoint, WriterAlignsEveryTensor) {
  const TempDirectory directory;
  const std::string data(64, 'd');
  const auto bytes = std::as_bytes(std::span(data));
  const std::vector<TensorToWrite> tensors = {{"i", DType::kI8, {3}, bytes.first(3)},
                                              {"b", DType::kBf16, {1}, bytes.first(2)},
                                              {"f", DType::kF32, {2}, bytes.first(8)}};
  ASSERT_TRUE(WriteSafetensors(directory.Path("model.safetensors"), tensors).has_value());
  const auto opened = Checkpoint::Open(directory.path());
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  for (const auto& [name, tensor] : opened->tensors()) {
    EXPECT_EQ(reinterpret_cast<uintptr_t>(tensor.bytes.data()) %
                  static_cast<uintptr_t>(DTypeBytes(tensor.dtype)),
              0u)
        << name;
  }
}

TEST(Checkpoint, FolderWithoutWeights) {
  const TempDirectory directory;
  const auto opened = Checkpoint::Open(directory.path());
  ASSERT_FALSE(opened.has_value());
  EXPECT_EQ(opened.error().code, ErrorCode::kNotFound);
  ExpectMentions(opened.error().message, {directory.path(), "model.safetensors", kIndexName});
}

TEST(Checkpoint, BothKindsAtOnce) {
  Shards shards;
  shards.WriteShard("model.safetensors", {});
  ExpectMentions(shards.Error(), {"both", "remove"});
}

TEST(Checkpoint, MissingShard) {
  const Shards shards;
  std::filesystem::remove(shards.directory().Path("s2.safetensors"));
  ExpectMentions(shards.Error(), {kIndexName, "s2.safetensors", "does not exist"});
}

TEST(Checkpoint, TruncatedShard) {
  const Shards shards;
  const std::string path = shards.directory().Path("s1.safetensors");
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 1);
  ExpectMentions(shards.Error(), {"s1.safetensors", "\"b\"", "truncated"});
  std::filesystem::resize_file(path, 5);
  ExpectMentions(shards.Error(), {"s1.safetensors", "5 bytes"});
}

TEST(Checkpoint, TensorInTwoShards) {
  Shards shards;
  shards.WriteShard("s2.safetensors", {{"a", DType::kBf16, {2}, shards.Data(4)}});
  ExpectMentions(shards.Error(), {"s2.safetensors", "\"a\"", "is also in", "s1.safetensors"});
}

TEST(Checkpoint, TensorThatTheIndexDoesNotList) {
  Shards shards;
  shards.WriteIndex(15, R"({"a":"s1.safetensors","c":"s2.safetensors"})");
  ExpectMentions(shards.Error(), {"s1.safetensors", "\"b\"", "does not list it"});
}

TEST(Checkpoint, TensorThatTheShardDoesNotHave) {
  Shards shards;
  shards.WriteIndex(15, R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s2.safetensors",)"
                        R"("ghost":"s2.safetensors"})");
  ExpectMentions(shards.Error(), {kIndexName, "\"ghost\"", "s2.safetensors"});
}

TEST(Checkpoint, TensorInAnotherShardThanTheIndexSays) {
  Shards shards;
  shards.WriteIndex(15, R"({"a":"s2.safetensors","b":"s1.safetensors","c":"s2.safetensors"})");
  ExpectMentions(shards.Error(), {"\"a\"", "s1.safetensors", "places it in s2.safetensors"});
}

TEST(Checkpoint, TotalSizeDiffers) {
  Shards shards;
  shards.WriteIndex(16, R"({"a":"s1.safetensors","b":"s1.safetensors","c":"s2.safetensors"})");
  ExpectMentions(shards.Error(), {kIndexName, "total_size is 16", "15 bytes"});
}

TEST(Checkpoint, IndexFileSizeIsLimited) {
  const Shards shards;
  std::filesystem::resize_file(shards.directory().Path(kIndexName), kIndexBytesMax + 1);
  ExpectMentions(shards.Error(), {kIndexName, "67108865 bytes; at most 67108864"});
}

TEST(SafetensorsIndex, ShardNamesCannotLeaveTheFolder) {
  for (const std::string_view name :
       {"../s1.safetensors", "/tmp/s1.safetensors", "a/b.safetensors", "..", "", ".safetensors",
        "s1.bin", "s1.safetensors\\u0000.x.safetensors", "./s1.safetensors"}) {
    const auto parsed = ParseSafetensorsIndex(
        "{\"metadata\":{\"total_size\":1},\"weight_map\":{\"a\":\"" + std::string(name) + "\"}}",
        "index");
    ASSERT_FALSE(parsed.has_value()) << name;
    ExpectMentions(parsed.error().message, {"index", "\"a\"", "without a folder"});
  }
}

TEST(SafetensorsIndex, RequiredKeysAndTypes) {
  const auto error = [](std::string_view text) {
    const auto parsed = ParseSafetensorsIndex(text, "index");
    EXPECT_FALSE(parsed.has_value()) << text;
    return parsed ? std::string() : parsed.error().message;
  };
  ExpectMentions(error("[]"), {"index", "metadata"});
  ExpectMentions(error(R"({"weight_map":{}})"), {"\"metadata\" is missing"});
  ExpectMentions(error(R"({"metadata":{},"weight_map":{}})"), {"\"total_size\" is missing"});
  ExpectMentions(error(R"({"metadata":{"total_size":-1},"weight_map":{}})"), {"-1"});
  ExpectMentions(error(R"({"metadata":{"total_size":1.5},"weight_map":{}})"), {"an integer"});
  ExpectMentions(error(R"({"metadata":{"total_size":1}})"), {"\"weight_map\" is missing"});
  ExpectMentions(error(R"({"metadata":{"total_size":1},"weight_map":[]})"), {"an object"});
  ExpectMentions(error(R"({"metadata":{"total_size":1},"weight_map":{}})"), {"it names 0"});
  ExpectMentions(error(R"({"metadata":{"total_size":1},"weight_map":{"a":1}})"), {"\"a\""});
  ExpectMentions(error(R"({"metadata":{"total_size":1},"weight_map":{"a":"x","a":"y"}})"),
                 {"\"a\" twice"});
}

TEST(SafetensorsIndex, ShardCountLimitIsExact) {
  const auto with_shards = [](size_t count) {
    JsonObject map;
    for (size_t i = 0; i < count; ++i) {
      map.emplace_back("t" + std::to_string(i), std::to_string(i) + ".safetensors");
    }
    Json index;
    index.Set("metadata", JsonObject{{"total_size", 1}});
    index.Set("weight_map", std::move(map));
    return ParseSafetensorsIndex(DumpJson(index, JsonStyle::kCompact), "index");
  };
  const auto parsed = with_shards(kShardCountMax);
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->shards.size(), kShardCountMax);
  EXPECT_EQ(parsed->shards[parsed->weight_map.at("t77")], "77.safetensors");
  const auto refused = with_shards(kShardCountMax + 1);
  ASSERT_FALSE(refused.has_value());
  ExpectMentions(refused.error().message, {"4097 shards", "at most 4096"});
}

}  // namespace
}  // namespace minke

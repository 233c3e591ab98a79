// Headers that are right, and one test for every way in which a header can be wrong.
#include <gtest/gtest.h>

#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <string_view>

#include "checkpoint/safetensors.h"
#include "tests/support/resident_memory.h"

namespace minke {
namespace {

// A file of this header and `data_bytes` bytes of data.
std::string FileOf(std::string_view header, size_t data_bytes) {
  std::string file(8, '\0');
  const uint64_t length = header.size();
  std::memcpy(file.data(), &length, 8);
  return file + std::string(header) + std::string(data_bytes, 'x');
}

Result<SafetensorsHeader> Parse(std::string_view file) {
  return ParseSafetensorsHeader(std::as_bytes(std::span(file)), "dir/file.safetensors");
}

std::string ErrorOf(std::string_view header, size_t data_bytes) {
  const auto parsed = Parse(FileOf(header, data_bytes));
  EXPECT_FALSE(parsed.has_value()) << header;
  return parsed ? std::string() : parsed.error().message;
}

void ExpectFileAnd(const std::string& message, std::initializer_list<std::string_view> parts) {
  EXPECT_NE(message.find("dir/file.safetensors"), std::string::npos) << message;
  for (const std::string_view part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

TEST(SafetensorsHeader, DescribesItsTensors) {
  const std::string header = R"({"__metadata__":{"format":"pt"},)"
                             R"("b":{"dtype":"F32","shape":[3],"data_offsets":[8,20]},)"
                             R"("a":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},)"
                             R"("c":{"dtype":"I8","shape":[],"data_offsets":[20,21]}})";
  const auto parsed = Parse(FileOf(header, 21));
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  ASSERT_EQ(parsed->entries.size(), 3u);
  const auto& first = parsed->entries[0];
  EXPECT_EQ(first.name, "a");
  EXPECT_EQ(first.dtype, DType::kBf16);
  EXPECT_EQ(first.shape, (std::vector<int64_t>{2, 2}));
  EXPECT_EQ(first.begin, 8 + header.size());
  EXPECT_EQ(first.end, first.begin + 8);
  EXPECT_EQ(parsed->entries[1].name, "b");
  EXPECT_TRUE(parsed->entries[2].shape.empty());
}

TEST(SafetensorsHeader, AcceptsPaddingEmptyTensorsAndNoTensors) {
  EXPECT_TRUE(Parse(FileOf("{}     ", 0)).has_value());
  const auto parsed = Parse(FileOf(R"({"full":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
                                   R"("empty":{"dtype":"I8","shape":[0,9],"data_offsets":[0,0]}})",
                                   4));
  ASSERT_TRUE(parsed.has_value()) << parsed.error().message;
  EXPECT_EQ(parsed->entries[0].name, "empty");
}

TEST(SafetensorsHeader, FileShorterThanTheLength) {
  for (const size_t size : {0u, 1u, 7u}) {
    const auto parsed = Parse(std::string(size, '\0'));
    ASSERT_FALSE(parsed.has_value());
    ExpectFileAnd(parsed.error().message, {"8-byte header length", std::to_string(size)});
  }
}

TEST(SafetensorsHeader, HeaderLongerThanTheFile) {
  std::string file = FileOf("{}", 0);
  file[0] = 3;
  const auto parsed = Parse(file);
  ASSERT_FALSE(parsed.has_value());
  ExpectFileAnd(parsed.error().message, {"claims 3 bytes", "only 2", "truncated"});
}

TEST(SafetensorsHeader, AbsurdLengthIsRefusedBeforeItIsUsed) {
  std::string file(64, '\xFF');
  const auto parsed = Parse(file);
  ASSERT_FALSE(parsed.has_value());
  ExpectFileAnd(parsed.error().message, {"18446744073709551615", "100000000"});
  const uint64_t above = kSafetensorsHeaderBytesMax + 1;
  std::memcpy(file.data(), &above, 8);
  ExpectFileAnd(Parse(file).error().message, {"100000001 bytes", "at most 100000000"});
  // At the limit it is the file that is too short.
  std::memcpy(file.data(), &kSafetensorsHeaderBytesMax, 8);
  ExpectFileAnd(Parse(file).error().message, {"truncated"});
}

TEST(SafetensorsHeader, HeaderIsNoJsonObject) {
  ExpectFileAnd(ErrorOf("", 0), {"JSON object"});
  ExpectFileAnd(ErrorOf("[]", 0), {"JSON object"});
  ExpectFileAnd(ErrorOf(" {}", 0), {"JSON object"});
  ExpectFileAnd(ErrorOf("{\"a\":", 0), {"not usable JSON"});
  ExpectFileAnd(ErrorOf("{} x", 0), {"not usable JSON"});
  ExpectFileAnd(ErrorOf(std::string_view("{}\0\0", 4), 0), {"NUL"});
}

TEST(SafetensorsHeader, DuplicateNames) {
  const std::string message = ErrorOf(R"({"twice":{"dtype":"I8","shape":[1],"data_offsets":[0,1]},)"
                                      R"("twice":{"dtype":"I8","shape":[1],"data_offsets":[1,2]}})",
                                      2);
  ExpectFileAnd(message, {"\"twice\" twice"});
}

TEST(SafetensorsHeader, NamesHaveALimit) {
  const auto named = [](size_t bytes) {
    return "{\"" + std::string(bytes, 'n') +
           R"(":{"dtype":"I8","shape":[1],"data_offsets":[0,1]}})";
  };
  EXPECT_TRUE(Parse(FileOf(named(kTensorNameBytesMax), 1)).has_value());
  const std::string message = ErrorOf(named(kTensorNameBytesMax + 1), 1);
  ExpectFileAnd(message, {"1 to 512 bytes", "513"});
  EXPECT_LT(message.size(), 260u);
  ExpectFileAnd(ErrorOf(named(0), 1), {"it has 0"});
}

TEST(SafetensorsHeader, TensorCountLimitIsExact) {
  if (testing::kSanitized) GTEST_SKIP() << "A million entries take a sanitizer half a minute.";
  const auto error_with = [](uint64_t count) {
    std::string header = "{";
    for (uint64_t i = 0; i < count; ++i)
      header += (i == 0 ? "\"" : ",\"") + std::to_string(i) + "\":0";
    return ErrorOf(header + "}", 0);
  };
  // At the limit it is the first entry that is wrong.
  ExpectFileAnd(error_with(kTensorCountMax), {"\"0\"", "object"});
  ExpectFileAnd(error_with(kTensorCountMax + 1), {"describes 1048577 tensors", "at most 1048576"});
}

TEST(SafetensorsHeader, EntryOfTheWrongType) {
  ExpectFileAnd(ErrorOf(R"({"t":[1]})", 0), {"\"t\"", "object", "array"});
  ExpectFileAnd(ErrorOf(R"({"t":{}})", 0), {"\"t\"", "\"dtype\" must be a string"});
}

TEST(SafetensorsHeader, MetadataOfTheWrongType) {
  ExpectFileAnd(ErrorOf(R"({"__metadata__":[]})", 0), {"__metadata__", "array"});
  ExpectFileAnd(ErrorOf(R"({"__metadata__":{"format":1}})", 0), {"\"format\"", "integer"});
}

TEST(SafetensorsHeader, UnknownDtype) {
  for (const std::string_view dtype : {"F64", "F16", "U8", "bf16", "", "F8_E5M2"}) {
    const std::string message = ErrorOf(
        "{\"t\":{\"dtype\":\"" + std::string(dtype) + R"(","shape":[1],"data_offsets":[0,1]}})", 1);
    ExpectFileAnd(message, {"\"t\"", "BF16", "\"" + std::string(dtype) + "\""});
  }
  ExpectFileAnd(ErrorOf(R"({"t":{"dtype":7,"shape":[1],"data_offsets":[0,1]}})", 1),
                {"\"dtype\" must be a string"});
}

TEST(SafetensorsHeader, BadShapes) {
  const auto shaped = [](std::string_view shape) {
    return R"({"t":{"dtype":"I8","shape":)" + std::string(shape) + R"(,"data_offsets":[0,1]}})";
  };
  EXPECT_TRUE(Parse(FileOf(shaped("[1,1,1,1]"), 1)).has_value());
  ExpectFileAnd(ErrorOf(shaped("[1,1,1,1,1]"), 1), {"\"t\"", "5 dimensions", "at most 4"});
  ExpectFileAnd(ErrorOf(shaped("[-1]"), 1), {"\"t\"", "-1"});
  ExpectFileAnd(ErrorOf(shaped("[1.0]"), 1), {"\"t\"", "1.0"});
  ExpectFileAnd(ErrorOf(shaped("[\"1\"]"), 1), {"\"t\"", "string"});
  ExpectFileAnd(ErrorOf(shaped("[18446744073709551615]"), 1), {"18446744073709551615"});
  ExpectFileAnd(ErrorOf(shaped("5"), 1), {"\"shape\" must be an array"});
  ExpectFileAnd(ErrorOf(R"({"t":{"dtype":"I8","data_offsets":[0,1]}})", 1), {"\"shape\""});
}

TEST(SafetensorsHeader, SizesThatOverflow) {
  // 2^32 * 2^32 = 2^64 wraps to 0, which would fit an empty range.
  const std::string wraps =
      R"({"t":{"dtype":"I8","shape":[4294967296,4294967296],"data_offsets":[0,0]}})";
  ExpectFileAnd(ErrorOf(wraps, 0), {"\"t\"", "does not fit in 64 bits"});
  const std::string by_dtype =
      R"({"t":{"dtype":"F32","shape":[4611686018427387904],"data_offsets":[0,0]}})";
  ExpectFileAnd(ErrorOf(by_dtype, 0), {"does not fit in 64 bits"});
}

TEST(SafetensorsHeader, BadOffsets) {
  const auto at = [](std::string_view offsets) {
    return R"({"t":{"dtype":"I8","shape":[4],"data_offsets":)" + std::string(offsets) + "}}";
  };
  EXPECT_TRUE(Parse(FileOf(at("[0,4]"), 4)).has_value());
  ExpectFileAnd(ErrorOf(at("[4,0]"), 4), {"\"t\"", "[4, 0]", "end before they begin"});
  ExpectFileAnd(ErrorOf(at("[0,5]"), 4), {"\"t\"", "beyond the 4 bytes"});
  ExpectFileAnd(ErrorOf(at("[9223372036854775803,9223372036854775807]"), 4), {"beyond"});
  ExpectFileAnd(ErrorOf(at("[-4,0]"), 4), {"two integers"});
  ExpectFileAnd(ErrorOf(at("[0]"), 4), {"two integers"});
  ExpectFileAnd(ErrorOf(at("[0,4,4]"), 4), {"two integers"});
  ExpectFileAnd(ErrorOf(at("[0,4.0]"), 4), {"two integers"});
  ExpectFileAnd(ErrorOf(at("[0,18446744073709551615]"), 4), {"two integers"});
  ExpectFileAnd(ErrorOf(at("{}"), 4), {"two integers"});
  ExpectFileAnd(ErrorOf(R"({"t":{"dtype":"I8","shape":[4]}})", 4), {"two integers"});
}

TEST(SafetensorsHeader, SizeDiffersFromTheShape) {
  const std::string message =
      ErrorOf(R"({"t":{"dtype":"BF16","shape":[2,3],"data_offsets":[0,6]}})", 6);
  ExpectFileAnd(message, {"\"t\"", "[2, 3] of BF16 takes 12 bytes", "hold 6"});
}

TEST(SafetensorsHeader, OverlapsHolesAndRests) {
  const auto two = [](int begin, int end) {
    return R"({"one":{"dtype":"I8","shape":[4],"data_offsets":[0,4]},)"
           R"("two":{"dtype":"I8","shape":[)" +
           std::to_string(end - begin) + R"(],"data_offsets":[)" + std::to_string(begin) + "," +
           std::to_string(end) + "]}}";
  };
  EXPECT_TRUE(Parse(FileOf(two(4, 8), 8)).has_value());
  ExpectFileAnd(ErrorOf(two(3, 8), 8), {"\"two\"", "byte 3", "inside tensor \"one\""});
  ExpectFileAnd(ErrorOf(two(0, 4), 4), {"inside tensor"});
  ExpectFileAnd(ErrorOf(two(5, 8), 8), {"\"two\"", "byte 5", "end at byte 4", "holes"});
  ExpectFileAnd(ErrorOf(two(4, 8), 9), {"belong to no tensor"});
  ExpectFileAnd(ErrorOf("{}", 1), {"belong to no tensor"});
  ExpectFileAnd(ErrorOf(R"({"t":{"dtype":"I8","shape":[4],"data_offsets":[1,5]}})", 5),
                {"end at byte 0"});
}

TEST(SafetensorsHeader, ControlCharactersOfNamesAreNotShown) {
  const std::string message =
      ErrorOf(R"({"a\u001b[2J\nb":{"dtype":"X","shape":[],"data_offsets":[0,0]}})", 0);
  for (const char c : message) EXPECT_GE(static_cast<unsigned char>(c), 0x20) << message;
}

// Whatever one byte of a good file becomes, the answer is an error or entries inside the file.
TEST(SafetensorsHeader, AnyFlippedByteIsHandled) {
  const std::string good =
      FileOf(R"({"__metadata__":{"format":"pt"},"a":{"dtype":"BF16","shape":[2,2],)"
             R"("data_offsets":[0,8]},"b":{"dtype":"F32","shape":[3],"data_offsets":[8,20]}})",
             20);
  ASSERT_TRUE(Parse(good).has_value());
  std::mt19937 random(20261129);
  int refused = 0;
  for (int round = 0; round < 20'000; ++round) {
    std::string file = good;
    const int changes = 1 + static_cast<int>(random() % 3);
    for (int i = 0; i < changes; ++i) {
      file[random() % file.size()] = static_cast<char>(random() % 256);
    }
    if (random() % 4 == 0) file.resize(random() % file.size());
    const auto parsed = Parse(file);
    if (!parsed) {
      ++refused;
      EXPECT_FALSE(parsed.error().message.empty());
      continue;
    }
    for (const auto& entry : parsed->entries) {
      EXPECT_LE(entry.begin, entry.end);
      EXPECT_LE(entry.end, file.size());
    }
  }
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace minke

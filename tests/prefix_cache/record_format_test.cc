// The bytes of the format: as documented, and refused in every other form.
#include "prefix_cache/record_format.h"

#include <gtest/gtest.h>

#include <cstring>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

namespace minke {
namespace {

constexpr int64_t kCreatedUs = 1700000000000000;

CacheKey Filled(uint8_t byte) {
  CacheKey key;
  key.bytes.fill(byte);
  return key;
}

RecordInfo GoldenInfo() {
  RecordInfo info;
  info.kind = RecordKind::kSnapshot;
  info.fingerprint = Filled(0x11);
  info.tenant = Filled(0x22);
  info.key = Filled(0x33);
  info.parent = Filled(0x44);
  info.content = Filled(0x55);
  info.end_position = 131;
  info.tokens = {5, 129279, 7};
  info.payload_bytes = 5;
  return info;
}

std::span<const std::byte> GoldenPayload() {
  static constexpr std::string_view kText = "minke";
  return std::as_bytes(std::span(kText.data(), kText.size()));
}

// The record as it stands in a segment.
std::vector<std::byte> GoldenRecord() {
  const RecordInfo info = GoldenInfo();
  const RecordHeaderBytes header = EncodeRecordHeader(info, kCreatedUs, GoldenPayload());
  std::vector<std::byte> bytes(header.begin(), header.end());
  const auto tokens = std::as_bytes(std::span(info.tokens));
  bytes.insert(bytes.end(), tokens.begin(), tokens.end());
  bytes.insert(bytes.end(), GoldenPayload().begin(), GoldenPayload().end());
  bytes.resize(static_cast<size_t>(RecordBytes(3, 5)));
  return bytes;
}

std::string Hex(std::span<const std::byte> bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<size_t>(byte) / 16];
    text += kDigits[std::to_integer<size_t>(byte) % 16];
  }
  return text;
}

// The hexadecimal digits of a fenced part of the format's page.
std::string Documented(const std::string& name) {
  std::ifstream stream(MINKE_SOURCE_DIR "/docs/formats/block_store.md");
  const std::string text((std::istreambuf_iterator<char>(stream)),
                         std::istreambuf_iterator<char>());
  std::string fence = "```";
  fence += name;
  fence += '\n';
  const size_t begin = text.find(fence);
  EXPECT_NE(begin, std::string::npos);
  const size_t end = text.find("```", begin + fence.size());
  std::string digits;
  for (const char c : text.substr(begin + fence.size(), end - begin - fence.size())) {
    if (c != ' ' && c != '\n') digits += c;
  }
  return digits;
}

TEST(RecordFormat, GoldenBytesAreTheDocumentedOnes) {
  const SegmentHeaderBytes segment =
      EncodeSegmentHeader({.version = kStoreFormatVersion, .number = 7, .created_us = kCreatedUs});
  EXPECT_EQ(Hex(std::span(segment).first(64)), Documented("segment"));
  for (const std::byte byte : std::span(segment).subspan(64)) ASSERT_EQ(byte, std::byte{0});
  EXPECT_EQ(Hex(GoldenRecord()), Documented("record"));
}

TEST(RecordFormat, RoundTrips) {
  const RecordInfo info = GoldenInfo();
  const RecordHeaderBytes bytes = EncodeRecordHeader(info, kCreatedUs, GoldenPayload());
  RecordHeader header;
  ASSERT_EQ(ParseRecordHeader(bytes, &header), HeaderState::kGood);
  EXPECT_EQ(header.info.kind, info.kind);
  EXPECT_TRUE(header.info.key == info.key && header.info.parent == info.parent);
  EXPECT_TRUE(header.info.fingerprint == info.fingerprint && header.info.tenant == info.tenant);
  EXPECT_TRUE(header.info.content == info.content);
  EXPECT_EQ(header.info.end_position, 131);
  EXPECT_EQ(header.info.payload_bytes, 5);
  EXPECT_EQ(header.token_count, 3);
  EXPECT_EQ(header.created_us, kCreatedUs);
  EXPECT_TRUE(TokensIntact(header, info.tokens));
  EXPECT_TRUE(PayloadIntact(header, GoldenPayload()));
  EXPECT_FALSE(TokensIntact(header, std::vector<int32_t>{5, 129279, 8}));
  EXPECT_FALSE(PayloadIntact(header, GoldenPayload().first(4)));
}

TEST(RecordFormat, EveryFlippedBitIsFound) {
  const std::vector<std::byte> sound = GoldenRecord();
  const size_t used = static_cast<size_t>(kRecordHeaderBytes) + 3 * sizeof(int32_t) + 5;
  int64_t found = 0;
  for (size_t bit = 0; bit < used * 8; ++bit) {
    std::vector<std::byte> bytes = sound;
    bytes[bit / 8] ^= std::byte{1} << (bit % 8);
    RecordHeader header;
    if (ParseRecordHeader(std::span(bytes).first(kRecordHeaderBytes), &header) !=
        HeaderState::kGood) {
      ++found;
      continue;
    }
    std::vector<int32_t> tokens(3);
    std::memcpy(tokens.data(), &bytes[kRecordHeaderBytes], 12);
    const auto payload = std::span(bytes).subspan(static_cast<size_t>(kRecordHeaderBytes) + 12, 5);
    if (!TokensIntact(header, tokens) || !PayloadIntact(header, payload)) ++found;
  }
  EXPECT_EQ(found, static_cast<int64_t>(used) * 8);
}

TEST(RecordFormat, VersionsAreToldApart) {
  RecordHeaderBytes bytes = EncodeRecordHeader(GoldenInfo(), kCreatedUs, GoldenPayload());
  RecordHeader header;
  bytes[8] = std::byte{0};
  EXPECT_EQ(ParseRecordHeader(bytes, &header), HeaderState::kOutdated);
  bytes[8] = std::byte{2};
  EXPECT_EQ(ParseRecordHeader(bytes, &header), HeaderState::kDamaged);
  bytes[0] = std::byte{0};
  EXPECT_EQ(ParseRecordHeader(bytes, &header), HeaderState::kNone);
  SegmentHeader segment;
  for (const uint32_t version : {0U, 1U, 9U}) {
    const SegmentHeaderBytes encoded =
        EncodeSegmentHeader({.version = version, .number = 3, .created_us = 4});
    ASSERT_TRUE(ParseSegmentHeader(encoded, &segment));
    EXPECT_EQ(segment.version, version);
    EXPECT_EQ(segment.number, 3);
    EXPECT_FALSE(ParseSegmentHeader(std::span(encoded).first(63), &segment));
  }
}

TEST(RecordFormat, NoRunOfTokensBeginsARecord) {
  const RecordHeaderBytes bytes = EncodeRecordHeader(GoldenInfo(), kCreatedUs, GoldenPayload());
  for (size_t i = 0; i < 8; ++i) EXPECT_GT(std::to_integer<int>(bytes[i]), 1);
}

TEST(RecordFormat, LimitsOfARecord) {
  const auto block = [](int64_t tokens, int64_t payload, int64_t end) {
    return PlausibleRecord(RecordKind::kBlock, tokens, payload, end);
  };
  EXPECT_TRUE(block(128, 0, 128));
  EXPECT_TRUE(block(128, kPayloadBytesMax, kEndPositionMax));
  EXPECT_FALSE(block(128, kPayloadBytesMax + 1, 128));
  EXPECT_FALSE(block(128, -1, 128));
  EXPECT_FALSE(block(128, 0, kEndPositionMax + 128));
  EXPECT_FALSE(block(127, 0, 127));
  EXPECT_FALSE(block(128, 0, 0));
  EXPECT_FALSE(block(128, 0, 200));
  const auto snapshot = [](int64_t tokens, int64_t end) {
    return PlausibleRecord(RecordKind::kSnapshot, tokens, 10, end);
  };
  EXPECT_TRUE(snapshot(0, 0));
  EXPECT_TRUE(snapshot(0, 256));
  EXPECT_TRUE(snapshot(127, 255));
  EXPECT_FALSE(snapshot(128, 128));
  EXPECT_FALSE(snapshot(3, 4));
  EXPECT_FALSE(PlausibleRecord(static_cast<RecordKind>(3), 128, 0, 128));
  EXPECT_EQ(RecordBytes(128, 113920), 114688);
  EXPECT_EQ(RecordBytes(0, 0), 256);
  EXPECT_EQ(RecordBytes(0, 1), 320);
}

}  // namespace
}  // namespace minke

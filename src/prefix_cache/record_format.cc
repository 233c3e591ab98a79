#include "prefix_cache/record_format.h"

// The library's functions are compiled here, so that they use the vector instructions of this
// build; the shared library is built for processors without them.
#define XXH_INLINE_ALL
// Payloads come from the kernel's copy and are seldom in the nearest cache: looking this far ahead
// (bytes) reads records from memory a third faster. The checksum's value does not depend on it.
#define XXH_PREFETCH_DIST 2048
#include <xxhash.h>

#include <bit>
#include <cstring>
#include <type_traits>

namespace minke {

namespace {

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

// No byte is 0 or 1. Token ids are below 2^24, so four bytes of them hold a zero, and no run of
// tokens can look like the beginning of a record.
constexpr std::array<uint8_t, 8> kRecordMagic = {'M', 'n', 'k', 'R', 0xB7, 0x8D, 0xE2, 0x9C};
constexpr std::array<uint8_t, 8> kSegmentMagic = {'M', 'n', 'k', 'S', 0xB7, 0x8D, 0xE2, 0x9C};

struct DiskRecordHeader {
  std::array<uint8_t, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint32_t kind;
  uint32_t token_count;
  uint64_t payload_bytes;
  uint64_t end_position;
  uint64_t created_us;
  std::array<uint8_t, 32> fingerprint;
  std::array<uint8_t, 32> tenant;
  std::array<uint8_t, 32> key;
  std::array<uint8_t, 32> parent;
  std::array<uint8_t, 32> content;
  uint64_t token_checksum;
  uint64_t payload_checksum;
  std::array<uint8_t, 24> reserved;
  uint64_t header_checksum;  // of everything before it
};
static_assert(sizeof(DiskRecordHeader) == kRecordHeaderBytes);
static_assert(offsetof(DiskRecordHeader, payload_bytes) == 24);
static_assert(offsetof(DiskRecordHeader, fingerprint) == 48);
static_assert(offsetof(DiskRecordHeader, token_checksum) == 208);
static_assert(offsetof(DiskRecordHeader, header_checksum) == 248);
static_assert(std::is_trivially_copyable_v<DiskRecordHeader>);

struct DiskSegmentHeader {
  std::array<uint8_t, 8> magic;
  uint32_t version;
  uint32_t header_bytes;
  uint64_t number;
  uint64_t created_us;
  std::array<uint8_t, 24> reserved;
  uint64_t checksum;  // of everything before it
};
static_assert(sizeof(DiskSegmentHeader) == 64);
static_assert(offsetof(DiskSegmentHeader, checksum) == 56);
static_assert(std::is_trivially_copyable_v<DiskSegmentHeader>);

uint64_t Checksum(const void* bytes, size_t size) {
  return XXH3_64bits(bytes, size);
}

}  // namespace

bool PlausibleRecord(RecordKind kind, int64_t token_count, int64_t payload_bytes,
                     int64_t end_position) {
  if (payload_bytes < 0 || payload_bytes > kPayloadBytesMax) return false;
  if (end_position < token_count || end_position > kEndPositionMax) return false;
  if (kind == RecordKind::kBlock) {
    return token_count == kCacheBlockTokens && end_position % kCacheBlockTokens == 0;
  }
  return kind == RecordKind::kSnapshot && token_count >= 0 &&
         token_count == end_position % kCacheBlockTokens;
}

RecordHeaderBytes EncodeRecordHeader(const RecordInfo& info, int64_t created_us,
                                     std::span<const std::byte> payload) {
  const auto token_count = static_cast<int64_t>(info.tokens.size());
  CHECK(static_cast<int64_t>(payload.size()) == info.payload_bytes);
  CHECK(PlausibleRecord(info.kind, token_count, info.payload_bytes, info.end_position));
  DiskRecordHeader disk = {
      .magic = kRecordMagic,
      .version = kStoreFormatVersion,
      .header_bytes = static_cast<uint32_t>(kRecordHeaderBytes),
      .kind = static_cast<uint32_t>(info.kind),
      .token_count = static_cast<uint32_t>(token_count),
      .payload_bytes = static_cast<uint64_t>(info.payload_bytes),
      .end_position = static_cast<uint64_t>(info.end_position),
      .created_us = static_cast<uint64_t>(created_us),
      .fingerprint = info.fingerprint.bytes,
      .tenant = info.tenant.bytes,
      .key = info.key.bytes,
      .parent = info.parent.bytes,
      .content = info.content.bytes,
      .token_checksum = Checksum(info.tokens.data(), info.tokens.size() * sizeof(int32_t)),
      .payload_checksum = Checksum(payload.data(), payload.size()),
      .reserved = {},
      .header_checksum = 0,
  };
  disk.header_checksum = Checksum(&disk, offsetof(DiskRecordHeader, header_checksum));
  return std::bit_cast<RecordHeaderBytes>(disk);
}

HeaderState ParseRecordHeader(std::span<const std::byte> bytes, RecordHeader* header) {
  CHECK(bytes.size() == static_cast<size_t>(kRecordHeaderBytes));
  DiskRecordHeader disk;
  std::memcpy(&disk, bytes.data(), sizeof(disk));
  if (disk.magic != kRecordMagic) return HeaderState::kNone;
  // The rest of another version's header may mean anything.
  if (disk.version < kStoreFormatVersion) return HeaderState::kOutdated;
  if (disk.version != kStoreFormatVersion || disk.header_bytes != kRecordHeaderBytes ||
      disk.header_checksum != Checksum(&disk, offsetof(DiskRecordHeader, header_checksum))) {
    return HeaderState::kDamaged;
  }
  const auto kind = static_cast<RecordKind>(disk.kind);
  const auto payload_bytes = static_cast<int64_t>(disk.payload_bytes);
  const auto end_position = static_cast<int64_t>(disk.end_position);
  if (!PlausibleRecord(kind, disk.token_count, payload_bytes, end_position)) {
    return HeaderState::kDamaged;
  }
  RecordInfo info;
  info.kind = kind;
  info.key.bytes = disk.key;
  info.parent.bytes = disk.parent;
  info.fingerprint.bytes = disk.fingerprint;
  info.tenant.bytes = disk.tenant;
  info.content.bytes = disk.content;
  info.end_position = end_position;
  info.payload_bytes = payload_bytes;
  *header = {.info = std::move(info),
             .token_count = disk.token_count,
             .created_us = static_cast<int64_t>(disk.created_us),
             .token_checksum = disk.token_checksum,
             .payload_checksum = disk.payload_checksum};
  return HeaderState::kGood;
}

bool BeginsRecord(std::span<const std::byte> bytes) {
  return bytes.size() >= kRecordMagic.size() &&
         std::memcmp(bytes.data(), kRecordMagic.data(), kRecordMagic.size()) == 0;
}

bool TokensIntact(const RecordHeader& header, std::span<const int32_t> tokens) {
  return header.token_checksum == Checksum(tokens.data(), tokens.size_bytes());
}

bool PayloadIntact(const RecordHeader& header, std::span<const std::byte> payload) {
  return header.payload_checksum == Checksum(payload.data(), payload.size());
}

SegmentHeaderBytes EncodeSegmentHeader(const SegmentHeader& header) {
  DiskSegmentHeader disk = {
      .magic = kSegmentMagic,
      .version = header.version,
      .header_bytes = static_cast<uint32_t>(kSegmentHeaderBytes),
      .number = static_cast<uint64_t>(header.number),
      .created_us = static_cast<uint64_t>(header.created_us),
      .reserved = {},
      .checksum = 0,
  };
  disk.checksum = Checksum(&disk, offsetof(DiskSegmentHeader, checksum));
  SegmentHeaderBytes bytes = {};
  std::memcpy(bytes.data(), &disk, sizeof(disk));
  return bytes;
}

bool ParseSegmentHeader(std::span<const std::byte> bytes, SegmentHeader* header) {
  DiskSegmentHeader disk;
  if (bytes.size() < sizeof(disk)) return false;
  std::memcpy(&disk, bytes.data(), sizeof(disk));
  if (disk.magic != kSegmentMagic || disk.header_bytes != kSegmentHeaderBytes ||
      disk.checksum != Checksum(&disk, offsetof(DiskSegmentHeader, checksum))) {
    return false;
  }
  *header = {.version = disk.version,
             .number = static_cast<int64_t>(disk.number),
             .created_us = static_cast<int64_t>(disk.created_us)};
  return true;
}

}  // namespace minke

// The bytes of a record and of a segment's beginning (docs/formats/block_store.md). Everything is
// little-endian. A record is a header, the token ids, the payload and zeros up to the next
// multiple of kRecordAlignBytes; header, tokens and payload have a checksum each.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "prefix_cache/block_store.h"

namespace minke {

inline constexpr uint32_t kStoreFormatVersion = 1;
inline constexpr int64_t kRecordAlignBytes = 64;
inline constexpr int64_t kRecordHeaderBytes = 256;
// Records start at a page of the disk behind it: a released block (256 + 512 + 113,920 B) is then
// exactly 28 pages, and freeing it leaves nothing behind.
inline constexpr int64_t kSegmentHeaderBytes = 4096;
inline constexpr int64_t kPayloadBytesMax = int64_t{1} << 30;
inline constexpr int64_t kEndPositionMax = int64_t{1} << 40;  // tokens

using RecordHeaderBytes = std::array<std::byte, kRecordHeaderBytes>;
using SegmentHeaderBytes = std::array<std::byte, kSegmentHeaderBytes>;

struct RecordHeader {
  RecordInfo info;  // tokens are left out
  int64_t token_count = 0;
  int64_t created_us = 0;
  uint64_t token_checksum = 0;
  uint64_t payload_checksum = 0;
};

enum class HeaderState {
  kGood,
  kNone,      // nothing that begins like a header
  kOutdated,  // of an older version
  kDamaged,   // begins like a header and is none, or of a newer version
};

// Length of a record on the disk, padding included.
constexpr int64_t RecordBytes(int64_t token_count, int64_t payload_bytes) {
  const int64_t bytes = kRecordHeaderBytes + 4 * token_count + payload_bytes;
  return (bytes + kRecordAlignBytes - 1) / kRecordAlignBytes * kRecordAlignBytes;
}

// What stands between the end of a record and the next one's place; never all of it.
inline constexpr std::array<std::byte, kRecordAlignBytes> kRecordPadding = {};

// Whether a record of these sizes may exist at all: tokens and positions fit its kind.
bool PlausibleRecord(RecordKind kind, int64_t token_count, int64_t payload_bytes,
                     int64_t end_position);

// REQUIRES payload.size() == info.payload_bytes, and a plausible record.
RecordHeaderBytes EncodeRecordHeader(const RecordInfo& info, int64_t created_us,
                                     std::span<const std::byte> payload);
// `bytes`: kRecordHeaderBytes. Fills `header` for kGood only.
HeaderState ParseRecordHeader(std::span<const std::byte> bytes, RecordHeader* header);
// Whether 8 bytes begin a record: cheap, for searching.
bool BeginsRecord(std::span<const std::byte> bytes);
bool TokensIntact(const RecordHeader& header, std::span<const int32_t> tokens);
bool PayloadIntact(const RecordHeader& header, std::span<const std::byte> payload);

struct SegmentHeader {
  uint32_t version = 0;
  int64_t number = 0;
  int64_t created_us = 0;
};
SegmentHeaderBytes EncodeSegmentHeader(const SegmentHeader& header);
// False if the bytes are no segment's beginning. Any version is accepted.
bool ParseSegmentHeader(std::span<const std::byte> bytes, SegmentHeader* header);

}  // namespace minke

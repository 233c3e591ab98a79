#include "prefix_cache/store_reader.h"

#include <array>

namespace minke {

namespace {

bool SameRecord(const IndexRow& row, const RecordHeader& header) {
  return header.info.kind == row.kind && header.info.key == row.key &&
         header.info.parent == row.parent && header.info.fingerprint == row.fingerprint &&
         header.info.end_position == row.end_position && header.token_count == row.token_count &&
         header.info.payload_bytes == row.payload_bytes;
}

Result<bool> Read(SegmentFiles& files, const IndexRow& row, std::span<std::byte> payload,
                  RecordHeader* header) {
  RecordHeaderBytes header_bytes;
  std::vector<int32_t> tokens(static_cast<size_t>(row.token_count));
  const std::array<std::span<std::byte>, 3> parts = {
      std::span<std::byte>(header_bytes), std::as_writable_bytes(std::span<int32_t>(tokens)),
      payload};
  const int64_t count = TRY(files.ReadAt(row.segment, row.offset, parts));
  const auto expected =
      static_cast<int64_t>(header_bytes.size() + parts[1].size() + payload.size());
  if (count != expected) return false;
  if (ParseRecordHeader(header_bytes, header) != HeaderState::kGood) return false;
  if (!SameRecord(row, *header) || !TokensIntact(*header, tokens)) return false;
  header->info.tokens = std::move(tokens);
  return true;
}

}  // namespace

IndexRow RowFor(const RecordInfo& info, int64_t token_count, int64_t segment, int64_t offset,
                int64_t created_us) {
  return {.segment = segment,
          .offset = offset,
          .kind = info.kind,
          .key = info.key,
          .parent = info.parent,
          .fingerprint = info.fingerprint,
          .tenant = info.tenant,
          .content = info.content,
          .end_position = info.end_position,
          .token_count = token_count,
          .payload_bytes = info.payload_bytes,
          .created_us = created_us,
          .last_used_us = created_us};
}

Result<bool> ReadRecord(SegmentFiles& files, const IndexRow& row, std::span<std::byte> payload,
                        RecordHeader* header) {
  CHECK(static_cast<int64_t>(payload.size()) >= row.payload_bytes);
  payload = payload.first(static_cast<size_t>(row.payload_bytes));
  return TRY(Read(files, row, payload, header)) && PayloadIntact(*header, payload);
}

Result<bool> ReadRecordInfo(SegmentFiles& files, const IndexRow& row, RecordHeader* header) {
  return Read(files, row, {}, header);
}

}  // namespace minke

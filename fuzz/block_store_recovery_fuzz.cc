// Bytes of a segment, as recovery meets them: a search must end, stay inside the file, and return
// only records whose every byte fits its checksums. The first byte of the input says how many times
// 64 bytes the search begins behind the start.
#include <sys/mman.h>

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <span>
#include <string>

#include "core/storage_system.h"
#include "prefix_cache/segment_file.h"

namespace {

using minke::FoundRecord;

void CheckRecord(const FoundRecord& record, int64_t begin, int64_t size, int64_t* last_end) {
  CHECK(record.offset % minke::kRecordAlignBytes == 0);
  CHECK(record.offset >= begin && record.offset >= *last_end);
  CHECK(record.offset + record.bytes <= size);
  CHECK(minke::PlausibleRecord(record.header.info.kind, record.header.token_count,
                               record.header.info.payload_bytes, record.header.info.end_position));
  *last_end = record.offset + record.bytes;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const int64_t begin = int64_t{data[0]} * minke::kRecordAlignBytes;
  const std::span bytes(reinterpret_cast<const std::byte*>(data + 1), size - 1);
  minke::SegmentHeader segment;
  minke::ParseSegmentHeader(bytes, &segment);
  const auto posix = minke::MakePosixStorage();
  minke::StorageSystem& system = *posix;
  const minke::StorageFile file(::memfd_create("segment", MFD_CLOEXEC), "segment");
  CHECK(static_cast<bool>(file));
  CHECK(system.WriteAt(file, 0, std::span(&bytes, 1)).has_value());
  const auto end = static_cast<int64_t>(bytes.size());
  for (const bool bodies : {false, true}) {
    int64_t last_end = begin;
    const auto outcome = minke::ScanRecords(system, file, {.begin = begin, .end = end}, bodies,
                                            [&](const FoundRecord& record) -> minke::Status {
                                              CheckRecord(record, begin, end, &last_end);
                                              return {};
                                            });
    CHECK(outcome.has_value());
    for (const minke::ScanRange& range : outcome->litter) {
      CHECK(range.begin < range.end && range.end <= end);
    }
    CHECK(outcome->litter.size() == static_cast<size_t>(outcome->damaged));
  }
  return 0;
}

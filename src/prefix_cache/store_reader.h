// Reads records at the places that the index names, and trusts none of them.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"
#include "prefix_cache/record_format.h"
#include "prefix_cache/segment_file.h"
#include "prefix_cache/store_index.h"

namespace minke {

// The row of a record that lies there and was not used since it was made.
IndexRow RowFor(const RecordInfo& info, int64_t token_count, int64_t segment, int64_t offset,
                int64_t created_us);

// Reads the record of a row into `payload` (row.payload_bytes of it) and `header`, whose info gets
// its tokens. True if every byte is as it was written and is what the row says; otherwise the
// contents of `payload` mean nothing. A segment whose file is gone is kNotFound.
Result<bool> ReadRecord(SegmentFiles& files, const IndexRow& row, std::span<std::byte> payload,
                        RecordHeader* header);
// The same without the payload.
Result<bool> ReadRecordInfo(SegmentFiles& files, const IndexRow& row, RecordHeader* header);

}  // namespace minke

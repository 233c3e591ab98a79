#include "prefix_cache/store_view.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "prefix_cache/record_format.h"
#include "prefix_cache/store_directory.h"
#include "prefix_cache/store_reader.h"

namespace minke {

namespace {

constexpr std::array<std::byte, kRecordAlignBytes> kPadding = {};

int64_t BytesOf(const IndexRow& row) {
  return RecordBytes(row.token_count, row.payload_bytes);
}

bool Wanted(const IndexRow& row, const std::optional<CacheKey>& tenant) {
  return !tenant || row.tenant == *tenant;
}

ListedRecord Listed(const IndexRow& row) {
  ListedRecord record;
  record.info.kind = row.kind;
  record.info.key = row.key;
  record.info.parent = row.parent;
  record.info.fingerprint = row.fingerprint;
  record.info.tenant = row.tenant;
  record.info.content = row.content;
  record.info.end_position = row.end_position;
  record.info.payload_bytes = row.payload_bytes;
  record.created_us = row.created_us;
  record.last_used_us = row.last_used_us;
  record.segment = SegmentName(row.segment);
  record.offset = row.offset;
  return record;
}

// Rows in the order of their chains: every record after the one that it hangs below, chains used
// last before others.
class ChainOrder {
 public:
  explicit ChainOrder(const std::vector<IndexRow>& rows) : rows_(rows), visited_(rows.size()) {
    for (size_t i = 0; i < rows.size(); ++i) {
      by_parent_.emplace(rows[i].parent, i);
      if (rows[i].kind == RecordKind::kBlock) blocks_.emplace(rows[i].key, i);
    }
  }

  std::vector<size_t> Run(size_t limit) {
    std::vector<size_t> roots;
    for (size_t i = 0; i < rows_.size(); ++i) {
      if (blocks_.count(rows_[i].parent) == 0) roots.push_back(i);
    }
    std::sort(roots.begin(), roots.end(), [this](size_t a, size_t b) {
      if (rows_[a].last_used_us != rows_[b].last_used_us) {
        return rows_[a].last_used_us > rows_[b].last_used_us;
      }
      return a < b;
    });
    std::vector<size_t> order;
    std::vector<size_t> stack(roots.rbegin(), roots.rend());
    while (!stack.empty() && order.size() < limit) {
      const size_t next = stack.back();
      stack.pop_back();
      if (visited_[next]) continue;  // a damaged index may name a record its own parent
      visited_[next] = true;
      order.push_back(next);
      if (rows_[next].kind == RecordKind::kBlock) PushChildren(next, &stack);
    }
    return order;
  }

 private:
  void PushChildren(size_t parent, std::vector<size_t>* stack) const {
    std::vector<size_t> children;
    const auto [begin, end] = by_parent_.equal_range(rows_[parent].key);
    for (auto child = begin; child != end; ++child) children.push_back(child->second);
    std::sort(children.begin(), children.end(), [this](size_t a, size_t b) {
      if (rows_[a].end_position != rows_[b].end_position) {
        return rows_[a].end_position > rows_[b].end_position;
      }
      return a > b;
    });
    stack->insert(stack->end(), children.begin(), children.end());
  }

  const std::vector<IndexRow>& rows_;
  std::unordered_multimap<CacheKey, size_t, CacheKeyHash> by_parent_;
  std::unordered_map<CacheKey, size_t, CacheKeyHash> blocks_;
  std::vector<bool> visited_;
};

// Whether the row still says that the record lies there: it may have been evicted while it was
// read.
Result<bool> StillThere(StoreIndex& index, const IndexRow& row) {
  const std::optional<IndexRow> now = TRY(index.Find(row.key, row.fingerprint));
  return now && now->segment == row.segment && now->offset == row.offset;
}

Status WriteRecord(StorageSystem& system, const StorageFile& file, int64_t offset,
                   const RecordHeader& header, std::span<const std::byte> payload) {
  const RecordHeaderBytes bytes = EncodeRecordHeader(header.info, header.created_us, payload);
  const auto tokens = std::as_bytes(std::span<const int32_t>(header.info.tokens));
  const size_t used = bytes.size() + tokens.size() + payload.size();
  const auto length =
      static_cast<size_t>(RecordBytes(header.token_count, header.info.payload_bytes));
  const std::array<std::span<const std::byte>, 4> parts = {
      std::span<const std::byte>(bytes), tokens, payload, std::span(kPadding).first(length - used)};
  return system.WriteAt(file, offset, parts);
}

Result<int64_t> ExportTo(const StoreView& view, const StorageFile& file, int64_t now_us,
                         const std::optional<CacheKey>& tenant) {
  const SegmentHeaderBytes header =
      EncodeSegmentHeader({.version = kStoreFormatVersion, .number = 0, .created_us = now_us});
  const std::array<std::span<const std::byte>, 1> parts = {std::span<const std::byte>(header)};
  TRY_STATUS(view.system.WriteAt(file, 0, parts));
  int64_t offset = kSegmentHeaderBytes;
  int64_t records = 0;
  std::vector<std::byte> payload;
  for (const auto& [number, scanned_bytes] : TRY(view.index.Segments())) {
    for (const IndexRow& row : TRY(view.index.RowsOfSegment(number))) {
      if (!Wanted(row, tenant)) continue;
      RecordHeader record;
      payload.resize(static_cast<size_t>(row.payload_bytes));
      const Result<bool> intact = ReadRecord(view.files, row, payload, &record);
      if (!intact && intact.error().code != ErrorCode::kNotFound) {
        return tl::unexpected(intact.error());
      }
      if (!intact || !*intact) continue;
      TRY_STATUS(WriteRecord(view.system, file, offset, record, payload));
      offset += BytesOf(row);
      ++records;
    }
  }
  TRY_STATUS(view.system.Sync(file));
  return records;
}

}  // namespace

Result<std::vector<ListedRecord>> ListRecords(const StoreView& view,
                                              const std::optional<CacheKey>& tenant, size_t limit) {
  std::vector<IndexRow> rows;
  TRY_STATUS(view.index.ForEach([&](const IndexRow& row) -> Status {
    if (Wanted(row, tenant)) rows.push_back(row);
    return {};
  }));
  std::vector<ListedRecord> listed;
  for (const size_t i : ChainOrder(rows).Run(limit)) listed.push_back(Listed(rows[i]));
  return listed;
}

Result<VerifyReport> VerifyRecords(const StoreView& view, std::vector<IndexRow>* damaged,
                                   const std::function<void(int64_t, int64_t)>& progress) {
  VerifyReport report;
  const StoreListing listing = TRY(ListStoreDirectory(view.system, view.directory));
  int64_t total = 0;
  for (const auto& [number, status] : listing.segments) total += status.size_bytes;
  int64_t done = 0;
  std::vector<std::byte> payload;
  for (const auto& [number, scanned_bytes] : TRY(view.index.Segments())) {
    int64_t live_bytes = kSegmentHeaderBytes;
    for (const IndexRow& row : TRY(view.index.RowsOfSegment(number))) {
      RecordHeader header;
      payload.resize(static_cast<size_t>(row.payload_bytes));
      const Result<bool> intact = ReadRecord(view.files, row, payload, &header);
      live_bytes += BytesOf(row);
      if ((!intact || !*intact) && !TRY(StillThere(view.index, row))) continue;
      ++report.records_checked;
      report.bytes_checked += BytesOf(row);
      if (progress) progress(std::min(done + row.offset, total), total);
      if (intact && *intact) continue;
      ++report.records_damaged;
      damaged->push_back(row);
      if (report.problems.size() >= kVerifyProblemsMax) continue;
      report.problems.push_back(fmt::format(
          "the record {} at byte {} of {} {}", KeyText(row.key), row.offset,
          view.files.Path(number),
          intact ? std::string("is damaged") : "cannot be read: " + intact.error().message));
    }
    const auto file = listing.segments.find(number);
    if (file == listing.segments.end()) continue;
    done += file->second.size_bytes;
    report.orphan_bytes += std::max<int64_t>(file->second.disk_bytes - live_bytes, 0);
  }
  if (progress) progress(total, total);
  return report;
}

Result<int64_t> ExportRecords(const StoreView& view, const std::string& path, int64_t now_us,
                              const std::optional<CacheKey>& tenant) {
  if (TRY(view.system.Inspect(path))) {
    return Fail(fmt::format("{} exists already; name a new file to export to", path));
  }
  const StorageFile file = TRY(view.system.OpenFile(path, OpenMode::kCreate));
  Result<int64_t> records = ExportTo(view, file, now_us, tenant);
  if (!records) {
    const Status ignored = view.system.Unlink(path);  // half a file helps nobody
  }
  return records;
}

}  // namespace minke

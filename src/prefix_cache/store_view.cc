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

constexpr int64_t kViewWindowBytes = int64_t{64}
                                     << 10;  // of what belongs to no record, read at once

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

// Checks every record and every segment once.
class Verifier {
 public:
  Verifier(const StoreView& view, std::vector<IndexRow>* damaged,
           const std::function<void(int64_t, int64_t)>& progress)
      : view_(view), damaged_(damaged), progress_(progress) {}

  Result<VerifyReport> Run() {
    // The files first: what is appended from now on is neither checked nor an orphan.
    const StoreListing listing = TRY(ListStoreDirectory(view_.system, view_.directory));
    for (const auto& [number, status] : listing.segments) total_ += status.size_bytes;
    for (const auto& [number, scanned_bytes] : TRY(view_.index.Segments())) {
      if (listing.segments.count(number) == 0) TRY(CheckRows(number));
    }
    for (const auto& [number, status] : listing.segments) {
      const std::vector<ScanRange> live = TRY(CheckRows(number));
      // An empty one is what a crash leaves of a new segment.
      if (status.size_bytes > kSegmentHeaderBytes) {
        const Status checked = CheckFile(number, status.size_bytes, live);
        if (!checked && checked.error().code != ErrorCode::kNotFound) {
          AddSegmentProblem(number, "cannot be read: " + checked.error().message);
        }
      }
      done_ += status.size_bytes;
    }
    if (progress_) progress_(total_, total_);
    return std::move(report_);
  }

 private:
  // Returns where the index says that records lie, in order.
  Result<std::vector<ScanRange>> CheckRows(int64_t number) {
    std::vector<ScanRange> live;
    std::vector<std::byte> payload;
    for (const IndexRow& row : TRY(view_.index.RowsOfSegment(number))) {
      RecordHeader header;
      payload.resize(static_cast<size_t>(row.payload_bytes));
      const Result<bool> intact = ReadRecord(view_.files, row, payload, &header);
      live.push_back({.begin = row.offset, .end = row.offset + RowBytes(row)});
      if ((!intact || !*intact) && !TRY(StillThere(view_.index, row))) continue;
      ++report_.records_checked;
      report_.bytes_checked += RowBytes(row);
      if (progress_) progress_(std::min(done_ + row.offset, total_), total_);
      if (intact && *intact) continue;
      ++report_.records_damaged;
      damaged_->push_back(row);
      AddProblem(fmt::format(
          "the record {} at byte {} of {} {}", KeyText(row.key), row.offset,
          view_.files.Path(number),
          intact ? std::string("is damaged") : "cannot be read: " + intact.error().message));
    }
    return live;
  }

  Status CheckFile(int64_t number, int64_t size, const std::vector<ScanRange>& live) {
    const StorageFile file = TRY(view_.system.OpenFile(view_.files.Path(number), OpenMode::kRead));
    SegmentHeaderBytes bytes = {};
    const std::array<std::span<std::byte>, 1> parts = {std::span<std::byte>(bytes)};
    const int64_t count = TRY(view_.system.ReadAt(file, 0, parts));
    SegmentHeader header;
    if (!ParseSegmentHeader(std::span(bytes).first(static_cast<size_t>(count)), &header)) {
      AddSegmentProblem(number, "has a damaged header, which the next process that writes mends");
    } else if (header.version != kStoreFormatVersion) {
      AddSegmentProblem(number, fmt::format("has format {}, and this version knows {}",
                                            header.version, kStoreFormatVersion));
    } else if (header.number != number) {
      AddSegmentProblem(number, fmt::format("has the header of segment {}", header.number));
    }
    int64_t begin = kSegmentHeaderBytes;
    for (const ScanRange& record : live) {
      TRY_STATUS(CountOrphans(file, {.begin = begin, .end = std::min(record.begin, size)}));
      begin = std::max(begin, record.end);
    }
    return CountOrphans(file, {.begin = begin, .end = size});
  }

  // Counts units of kRecordAlignBytes that are not all zero.
  Status CountOrphans(const StorageFile& file, ScanRange range) {
    std::vector<std::byte> window;
    while (range.begin < range.end) {
      range.begin = std::max(range.begin, TRY(view_.system.NextData(file, range.begin)));
      if (range.begin >= range.end) return {};
      window.resize(static_cast<size_t>(std::min(kViewWindowBytes, range.end - range.begin)));
      const std::array<std::span<std::byte>, 1> parts = {std::span<std::byte>(window)};
      const int64_t count = TRY(view_.system.ReadAt(file, range.begin, parts));
      if (count == 0) return {};  // the file became shorter
      for (int64_t at = 0; at < count; at += kRecordAlignBytes) {
        const auto unit = std::span(window).subspan(
            static_cast<size_t>(at), static_cast<size_t>(std::min(count - at, kRecordAlignBytes)));
        const bool zero =
            std::all_of(unit.begin(), unit.end(), [](std::byte b) { return b == std::byte{0}; });
        if (!zero) report_.orphan_bytes += static_cast<int64_t>(unit.size());
      }
      range.begin += count;
    }
    return {};
  }

  void AddProblem(std::string problem) {
    if (report_.problems.size() < kVerifyProblemsMax) {
      report_.problems.push_back(std::move(problem));
    }
  }
  void AddSegmentProblem(int64_t number, const std::string& what) {
    ++report_.segments_damaged;
    AddProblem(fmt::format("the segment {} {}", view_.files.Path(number), what));
  }

  const StoreView& view_;
  std::vector<IndexRow>* damaged_;
  const std::function<void(int64_t, int64_t)>& progress_;
  VerifyReport report_;
  int64_t done_ = 0;
  int64_t total_ = 0;
};

Status WriteRecord(StorageSystem& system, const StorageFile& file, int64_t offset,
                   const RecordHeader& header, std::span<const std::byte> payload) {
  const RecordHeaderBytes bytes = EncodeRecordHeader(header.info, header.created_us, payload);
  const auto tokens = std::as_bytes(std::span<const int32_t>(header.info.tokens));
  const size_t used = bytes.size() + tokens.size() + payload.size();
  const auto length =
      static_cast<size_t>(RecordBytes(header.token_count, header.info.payload_bytes));
  const std::array<std::span<const std::byte>, 4> parts = {
      std::span<const std::byte>(bytes), tokens, payload,
      std::span(kRecordPadding).first(length - used)};
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
      offset += RowBytes(row);
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
  return Verifier(view, damaged, progress).Run();
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

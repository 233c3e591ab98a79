#include "prefix_cache/segment_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstring>
#include <utility>

#include "core/file.h"

namespace minke {

namespace {

constexpr std::string_view kNamePrefix = "segment-";
constexpr std::string_view kNameSuffix = ".mks";
constexpr int64_t kWindowBytes = int64_t{64} << 10;  // read at once while searching

int64_t RoundUp(int64_t value) {
  return (value + kRecordAlignBytes - 1) / kRecordAlignBytes * kRecordAlignBytes;
}

bool AllZero(std::span<const std::byte> bytes) {
  return std::all_of(bytes.begin(), bytes.end(), [](std::byte b) { return b == std::byte{0}; });
}

// Walks a range once.
class Scanner {
 public:
  Scanner(StorageSystem& system, const StorageFile& file, ScanRange range, bool bodies,
          const std::function<Status(const FoundRecord&)>& found)
      : system_(system),
        file_(file),
        end_(range.end),
        bodies_(bodies),
        found_(found),
        position_(RoundUp(range.begin)),
        record_end_(range.begin) {}

  Result<ScanOutcome> Run() {
    while (position_ < end_) {
      TRY_STATUS(FillWindow());
      if (window_.empty()) break;
      TRY_STATUS(SearchWindow());
    }
    CloseLitter(end_);
    outcome_.torn_tail = record_end_ != end_;
    return std::move(outcome_);
  }

 private:
  Status FillWindow() {
    // Holes are skipped, so that an evicted segment costs nothing to search.
    const int64_t data = TRY(system_.NextData(file_, position_));
    position_ = std::max(position_, data / kRecordAlignBytes * kRecordAlignBytes);
    window_.clear();
    if (position_ >= end_) return {};
    window_.resize(static_cast<size_t>(std::min(kWindowBytes, end_ - position_)));
    const std::array<std::span<std::byte>, 1> parts = {std::span<std::byte>(window_)};
    const int64_t count = TRY(system_.ReadAt(file_, position_, parts));
    window_.resize(static_cast<size_t>(count));
    return {};
  }

  // Moves position_ behind the first record in the window, or behind the window.
  Status SearchWindow() {
    const std::span<const std::byte> window(window_);
    const int64_t start = position_;
    for (size_t at = 0; at < window.size(); at += static_cast<size_t>(kRecordAlignBytes)) {
      const auto chunk =
          window.subspan(at, std::min(window.size() - at, static_cast<size_t>(kRecordAlignBytes)));
      position_ = start + static_cast<int64_t>(at);
      if (BeginsRecord(chunk)) {
        RecordHeader header;
        if (TRY(ReadHeader(&header))) return Visit(header);
      }
      if (!AllZero(chunk)) OpenLitter();
    }
    position_ = start + static_cast<int64_t>(RoundUp(static_cast<int64_t>(window.size())));
    return {};
  }

  // Whether a whole record begins at position_.
  Result<bool> ReadHeader(RecordHeader* header) {
    RecordHeaderBytes bytes = {};
    const std::array<std::span<std::byte>, 1> parts = {std::span<std::byte>(bytes)};
    const int64_t count = TRY(system_.ReadAt(file_, position_, parts));
    if (count != kRecordHeaderBytes) return false;
    if (ParseRecordHeader(bytes, header) != HeaderState::kGood) return false;
    return position_ + RecordBytes(header->token_count, header->info.payload_bytes) <= end_;
  }

  Status Visit(const RecordHeader& header) {
    FoundRecord record;
    record.header = header;
    record.offset = position_;
    record.bytes = RecordBytes(header.token_count, header.info.payload_bytes);
    if (bodies_) {
      const auto token_bytes = static_cast<size_t>(header.token_count) * sizeof(int32_t);
      body_.resize(token_bytes + static_cast<size_t>(header.info.payload_bytes));
      const std::array<std::span<std::byte>, 1> parts = {std::span<std::byte>(body_)};
      const int64_t count = TRY(system_.ReadAt(file_, position_ + kRecordHeaderBytes, parts));
      record.body = body_;
      std::vector<int32_t> tokens(static_cast<size_t>(header.token_count));
      if (!tokens.empty()) std::memcpy(tokens.data(), body_.data(), token_bytes);
      record.intact = count == static_cast<int64_t>(body_.size()) && TokensIntact(header, tokens) &&
                      PayloadIntact(header, record.body.subspan(token_bytes));
    }
    CloseLitter(position_);
    position_ += record.bytes;
    record_end_ = position_;
    return found_(record);
  }

  void OpenLitter() {
    if (litter_begin_ < 0) litter_begin_ = record_end_;
  }
  void CloseLitter(int64_t end) {
    if (litter_begin_ < 0) return;
    ++outcome_.damaged;
    outcome_.litter.push_back({.begin = litter_begin_, .end = end});
    litter_begin_ = -1;
  }

  StorageSystem& system_;
  const StorageFile& file_;
  const int64_t end_;
  const bool bodies_;
  const std::function<Status(const FoundRecord&)>& found_;
  int64_t position_;
  int64_t record_end_;         // of the last record found
  int64_t litter_begin_ = -1;  // -1: only zeros since record_end_
  std::vector<std::byte> window_;
  std::vector<std::byte> body_;
  ScanOutcome outcome_;
};

}  // namespace

std::string SegmentName(int64_t number) {
  return fmt::format("{}{:08}{}", kNamePrefix, number, kNameSuffix);
}

std::optional<int64_t> ParseSegmentName(std::string_view name) {
  if (name.size() <= kNamePrefix.size() + kNameSuffix.size() ||
      name.substr(0, kNamePrefix.size()) != kNamePrefix ||
      name.substr(name.size() - kNameSuffix.size()) != kNameSuffix) {
    return std::nullopt;
  }
  const std::string_view digits =
      name.substr(kNamePrefix.size(), name.size() - kNamePrefix.size() - kNameSuffix.size());
  int64_t number = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), number);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  // One name a number: "segment-1.mks" is not ours.
  if (number < 0 || number > kSegmentNumberMax || SegmentName(number) != name) return std::nullopt;
  return number;
}

SegmentFiles::SegmentFiles(StorageSystem& system, std::string directory)
    : system_(system), directory_(std::move(directory)) {}

std::string SegmentFiles::Path(int64_t number) const {
  return JoinPath(directory_, SegmentName(number));
}

Result<int64_t> SegmentFiles::ReadAt(int64_t number, int64_t offset,
                                     std::span<const std::span<std::byte>> parts) {
  {
    const std::shared_lock<std::shared_mutex> lock(mutex_);
    const auto found = open_.find(number);
    if (found != open_.end()) return system_.ReadAt(found->second, offset, parts);
  }
  StorageFile file = TRY(system_.OpenFile(Path(number), OpenMode::kRead));
  auto result = system_.ReadAt(file, offset, parts);
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  if (retired_.count(number) != 0) return result;
  if (open_.size() >= kOpenSegmentsMax) open_.erase(open_.begin());  // the oldest number
  open_.try_emplace(number, std::move(file));
  return result;
}

void SegmentFiles::Retire(int64_t number) {
  const std::unique_lock<std::shared_mutex> lock(mutex_);
  retired_.insert(number);
  open_.erase(number);
}

Result<ScanOutcome> ScanRecords(StorageSystem& system, const StorageFile& file, ScanRange range,
                                bool bodies,
                                const std::function<Status(const FoundRecord&)>& found) {
  return Scanner(system, file, range, bodies, found).Run();
}

}  // namespace minke

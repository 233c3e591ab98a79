// Going back to a working state at a known position (architecture.md 6.3): snapshots of all that
// the full blocks do not hold, and the start of a replay. docs/formats/snapshot.md has the bytes.
#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "model/state.h"

namespace minke {

namespace {

constexpr uint32_t kSnapshotMagic = 0x534b4e4d;  // "MNKS"
constexpr uint32_t kSnapshotVersion = 1;         // part of the format

size_t Size(int64_t value) {
  return static_cast<size_t>(value);
}

}  // namespace

// First in the bytes; all integers are little-endian.
struct SequenceState::SnapshotHeader {
  uint32_t magic = kSnapshotMagic;
  uint32_t version = kSnapshotVersion;
  int64_t length = 0;
  int64_t encoder_begin = 0;
  int64_t decoder_begin = 0;
};

namespace {

// Walks the parts of a snapshot in their order: visit(pointer into the state, bytes).
struct Cursor {
  std::byte* at = nullptr;
  void Put(const void* from, size_t bytes) {
    if (bytes > 0) std::memcpy(at, from, bytes);
    at += bytes;
  }
};
struct ConstCursor {
  const std::byte* at = nullptr;
  void Take(void* to, size_t bytes) {
    if (bytes > 0) std::memcpy(to, at, bytes);
    at += bytes;
  }
};

int64_t TailRowBytes(const StateLayout& layout, int64_t length) {
  int64_t bytes = 0;
  for (const int64_t ratio : layout.ratios) {
    bytes += length % kBlockTokens / ratio * (layout.compressed_row_bytes + layout.index_row_bytes);
  }
  return bytes;
}

int64_t WindowBegin(const StateLayout& layout, int64_t layer, int64_t length, int64_t encoder_begin,
                    int64_t decoder_begin) {
  const int64_t begin = layer <= layout.split_layer ? encoder_begin : decoder_begin;
  return std::max(begin, length - layout.window_slots);
}

int64_t ConstantBytes(const StateLayout& layout, int64_t length, int64_t encoder_begin,
                      int64_t decoder_begin) {
  int64_t bytes = layout.history_length * int64_t{sizeof(int32_t)};
  for (int64_t layer = 0; layer < layout.layer_count; ++layer) {
    bytes += (length - WindowBegin(layout, layer, length, encoder_begin, decoder_begin)) *
             layout.window_row_bytes;
  }
  for (const int64_t ratio : layout.ratios) {
    bytes += length % ratio * 2 * layout.head_dim * int64_t{sizeof(float)};
  }
  return bytes;
}

}  // namespace

int64_t SequenceState::SnapshotBytesMax(const StateLayout& layout) {
  int64_t bytes = static_cast<int64_t>(sizeof(SnapshotHeader)) + WindowStateBytes(layout) +
                  layout.history_length * int64_t{sizeof(int32_t)};
  for (const int64_t ratio : layout.ratios) {
    bytes += (kBlockTokens - 1) / ratio * (layout.compressed_row_bytes + layout.index_row_bytes) +
             (ratio - 1) * 2 * layout.head_dim * int64_t{sizeof(float)};
  }
  return bytes;
}

int64_t SequenceState::snapshot_bytes() const {
  return static_cast<int64_t>(sizeof(SnapshotHeader)) + TailRowBytes(layout_, length_) +
         ConstantBytes(layout_, length_, encoder_begin_, decoder_begin_);
}

void SequenceState::WriteSnapshot(std::byte* out) const {
  CHECK(pending_tokens_ == 0);
  Cursor cursor{out};
  const SnapshotHeader header{
      .length = length_, .encoder_begin = encoder_begin_, .decoder_begin = decoder_begin_};
  cursor.Put(&header, sizeof(header));
  const int64_t tail = length_ % kBlockTokens;
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    const int64_t rows = tail / layout_.ratios[source];
    if (rows == 0) continue;
    const std::byte* block = blocks_[Size(length_ / kBlockTokens)].bytes();
    cursor.Put(block + layout_.compressed_offset[source],
               Size(rows * layout_.compressed_row_bytes));
    cursor.Put(block + layout_.index_offset[source], Size(rows * layout_.index_row_bytes));
  }
  for (int64_t layer = 0; layer < layout_.layer_count; ++layer) {
    const int64_t begin = WindowBegin(layout_, layer, length_, encoder_begin_, decoder_begin_);
    for (int64_t position = begin; position < length_; ++position) {
      cursor.Put(WindowRow(layer, position), Size(layout_.window_row_bytes));
    }
  }
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    const size_t values = Size(length_ % layout_.ratios[source] * layout_.head_dim);
    cursor.Put(pending_kv_[source].data(), values * sizeof(float));
    cursor.Put(pending_gate_[source].data(), values * sizeof(float));
  }
  cursor.Put(history_.data(), Size(layout_.history_length) * sizeof(int32_t));
  CHECK(cursor.at == out + snapshot_bytes());
}

Result<SequenceState::SnapshotHeader> SequenceState::ParseSnapshot(
    std::span<const std::byte> snapshot) const {
  SnapshotHeader header;
  if (snapshot.size() < sizeof(header)) return Fail("A snapshot is shorter than its header.");
  std::memcpy(&header, snapshot.data(), sizeof(header));
  if (header.magic != kSnapshotMagic || header.version != kSnapshotVersion) {
    return Fail("A snapshot has another format than this version writes.");
  }
  const auto in_order = [&](int64_t begin) { return begin >= 0 && begin <= header.length; };
  if (header.length < 0 || !in_order(header.encoder_begin) || !in_order(header.decoder_begin)) {
    return Fail("A snapshot has positions that cannot be.");
  }
  const int64_t expected =
      static_cast<int64_t>(sizeof(header)) + TailRowBytes(layout_, header.length) +
      ConstantBytes(layout_, header.length, header.encoder_begin, header.decoder_begin);
  if (static_cast<int64_t>(snapshot.size()) != expected) {
    return Fail(fmt::format("A snapshot of {} tokens has {} bytes, but this model's has {}.",
                            header.length, snapshot.size(), expected));
  }
  return header;
}

Status SequenceState::AdoptSnapshotRows(std::span<const std::byte> snapshot,
                                        std::vector<BlockRef> full_blocks) {
  const SnapshotHeader header = TRY(ParseSnapshot(snapshot));
  const int64_t full = header.length / kBlockTokens;
  const int64_t tail = header.length % kBlockTokens;
  const auto given = static_cast<int64_t>(full_blocks.size());
  if (layout_.block_bytes == 0) full_blocks.clear();
  if (layout_.block_bytes > 0 && given < full) {
    return Fail(fmt::format("A snapshot of {} tokens needs {} full blocks, found {}.",
                            header.length, full, given));
  }
  if (layout_.block_bytes == 0 || tail == 0 || given > full) {
    AdoptRows(std::move(full_blocks), std::max(header.length, given * kBlockTokens));
    return {};
  }
  BlockRef open = NewBlock();
  if (!open) return Fail(ErrorCode::kLimit, "The memory for rows (--kv-ram) is full.");
  ConstCursor cursor{snapshot.data() + sizeof(header)};
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    const int64_t rows = tail / layout_.ratios[source];
    cursor.Take(open.bytes() + layout_.compressed_offset[source],
                Size(rows * layout_.compressed_row_bytes));
    cursor.Take(open.bytes() + layout_.index_offset[source], Size(rows * layout_.index_row_bytes));
  }
  full_blocks.push_back(std::move(open));
  AdoptRows(std::move(full_blocks), header.length);
  return {};
}

Status SequenceState::RestoreRows(std::span<const std::byte> snapshot,
                                  std::vector<BlockRef> full_blocks) {
  return AdoptSnapshotRows(snapshot, std::move(full_blocks));
}

Status SequenceState::RestoreSnapshot(std::span<const std::byte> snapshot,
                                      std::vector<BlockRef> full_blocks) {
  const SnapshotHeader header = TRY(ParseSnapshot(snapshot));
  TRY_STATUS(AdoptSnapshotRows(snapshot, std::move(full_blocks)));
  length_ = header.length;
  encoder_begin_ = header.encoder_begin;
  decoder_begin_ = pending_decoder_begin_ = header.decoder_begin;
  ConstCursor cursor{snapshot.data() + sizeof(header) + TailRowBytes(layout_, length_)};
  for (int64_t layer = 0; layer < layout_.layer_count; ++layer) {
    const int64_t begin = WindowBegin(layout_, layer, length_, encoder_begin_, decoder_begin_);
    for (int64_t position = begin; position < length_; ++position) {
      cursor.Take(WindowRow(layer, position), Size(layout_.window_row_bytes));
    }
  }
  ClearPending();  // sizes the open groups for the new length
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    const size_t values = Size(length_ % layout_.ratios[source] * layout_.head_dim);
    cursor.Take(pending_kv_[source].data(), values * sizeof(float));
    cursor.Take(pending_gate_[source].data(), values * sizeof(float));
  }
  cursor.Take(history_.data(), Size(layout_.history_length) * sizeof(int32_t));
  CHECK(cursor.at == snapshot.data() + snapshot.size());
  return {};
}

void SequenceState::StartReplay(int64_t from, std::span<const int32_t> history) {
  CHECK(from >= 0 && from <= known_tokens());
  CHECK(static_cast<int64_t>(history.size()) == layout_.history_length);
  adopted_tokens_ = known_tokens();
  length_ = from;
  encoder_begin_ = decoder_begin_ = from;
  ClearPending();
  // An open group's first token lies before the replay. Its row is among the adopted ones, so what
  // is pooled with these zeros goes nowhere.
  for (std::vector<std::vector<float>>* rows : {&pending_kv_, &pending_gate_}) {
    for (std::vector<float>& values : *rows) std::fill(values.begin(), values.end(), 0.0f);
  }
  std::copy(history.begin(), history.end(), history_.begin());
}

}  // namespace minke

#include "model/state.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace minke {

namespace {

size_t Index(int64_t value) {
  return static_cast<size_t>(value);
}

}  // namespace

StateLayout::StateLayout(const ModelConfig& config, const Numerics& numerics)
    : window_format(numerics.window_fp8 ? RowFormat::kFp8Group32 : RowFormat::kF32),
      compressed_format(numerics.compressed_fp4 ? RowFormat::kFp4Group16 : RowFormat::kF32),
      index_format(numerics.index_fp4 ? RowFormat::kFp4Group32 : RowFormat::kF32),
      window_row_bytes(RowBytes(window_format, config.head_dim)),
      compressed_row_bytes(RowBytes(compressed_format, config.head_dim)),
      index_row_bytes(RowBytes(index_format, config.index_head_dim)),
      layer_count(config.num_hidden_layers),
      window_slots(config.sliding_window),
      head_dim(config.head_dim),
      history_length(config.has_engram() ? config.engram_max_ngram_size - 1 : 0) {
  for (size_t source = 0; source < config.kv_source_layer_ids.size(); ++source) {
    const int64_t ratio = config.kv_source_ratio(static_cast<int64_t>(source));
    CHECK(ratio > 0 && kBlockTokens % ratio == 0);
    const int64_t rows = kBlockTokens / ratio;
    ratios.push_back(ratio);
    compressed_offset.push_back(block_bytes);
    block_bytes += rows * compressed_row_bytes;
    index_offset.push_back(block_bytes);
    block_bytes += rows * index_row_bytes;
  }
}

double KvBytesPerToken(const StateLayout& layout) {
  return static_cast<double>(layout.block_bytes) / static_cast<double>(kBlockTokens);
}

int64_t WindowStateBytes(const StateLayout& layout) {
  return layout.layer_count * layout.window_slots * layout.window_row_bytes;
}

SequenceState::SequenceState(const ModelConfig& config, const Numerics& numerics)
    : layout_(config, numerics),
      rings_(AllocateAligned(Index(WindowStateBytes(layout_)))),
      pending_kv_(layout_.ratios.size()),
      pending_gate_(layout_.ratios.size()),
      history_(Index(layout_.history_length), kDeadHistory) {
  std::memset(rings_.get(), 0, Index(WindowStateBytes(layout_)));
}

void SequenceState::Reserve(int64_t tokens) {
  const size_t needed = Index((tokens + kBlockTokens - 1) / kBlockTokens);
  while (blocks_.size() < needed) blocks_.push_back(AllocateAligned(Index(layout_.block_bytes)));
}

const std::byte* SequenceState::CompressedRow(int64_t source, int64_t row) const {
  const int64_t rows_per_block = kBlockTokens / layout_.ratios[Index(source)];
  const AlignedBytes& block = blocks_[Index(row / rows_per_block)];
  return block.get() + layout_.compressed_offset[Index(source)] +
         row % rows_per_block * layout_.compressed_row_bytes;
}

const std::byte* SequenceState::IndexRow(int64_t source, int64_t row) const {
  const int64_t rows_per_block = kBlockTokens / layout_.ratios[Index(source)];
  const AlignedBytes& block = blocks_[Index(row / rows_per_block)];
  return block.get() + layout_.index_offset[Index(source)] +
         row % rows_per_block * layout_.index_row_bytes;
}

std::byte* SequenceState::CompressedRow(int64_t source, int64_t row) {
  return const_cast<std::byte*>(std::as_const(*this).CompressedRow(source, row));
}

std::byte* SequenceState::IndexRow(int64_t source, int64_t row) {
  return const_cast<std::byte*>(std::as_const(*this).IndexRow(source, row));
}

int64_t SequenceState::ContiguousRows(int64_t source, int64_t row, int64_t end) const {
  const int64_t rows_per_block = kBlockTokens / layout_.ratios[Index(source)];
  return std::min(end - row, rows_per_block - row % rows_per_block);
}

const std::byte* SequenceState::WindowRow(int64_t layer, int64_t position) const {
  const int64_t slot = position % layout_.window_slots;
  return rings_.get() + (layer * layout_.window_slots + slot) * layout_.window_row_bytes;
}

std::byte* SequenceState::WindowRow(int64_t layer, int64_t position) {
  return const_cast<std::byte*>(std::as_const(*this).WindowRow(layer, position));
}

int64_t SequenceState::open_tokens(int64_t source) const {
  return length_ % layout_.ratios[Index(source)];
}

void SequenceState::Begin(int64_t tokens) {
  CHECK(tokens >= 0);
  pending_tokens_ = tokens;
  Reserve(length_ + tokens);
  pending_window_.resize(Index(layout_.layer_count * tokens * layout_.window_row_bytes));
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    if (layout_.ratios[source] == 1) continue;
    const int64_t rows = open_tokens(static_cast<int64_t>(source)) + tokens;
    pending_kv_[source].resize(Index(rows * layout_.head_dim));
    pending_gate_[source].resize(Index(rows * layout_.head_dim));
  }
  if (layout_.history_length > 0) history_.resize(Index(layout_.history_length + tokens));
}

std::byte* SequenceState::PendingWindowRow(int64_t layer, int64_t row) {
  return pending_window_.data() + (layer * pending_tokens_ + row) * layout_.window_row_bytes;
}

View<float> SequenceState::PendingKv(int64_t source) {
  return View<float>(pending_kv_[Index(source)].data(), open_tokens(source) + pending_tokens_,
                     layout_.head_dim);
}

View<float> SequenceState::PendingGate(int64_t source) {
  return View<float>(pending_gate_[Index(source)].data(), open_tokens(source) + pending_tokens_,
                     layout_.head_dim);
}

std::span<int32_t> SequenceState::PendingHistory() {
  return history_;
}

const std::byte* SequenceState::VisibleWindowRow(int64_t layer, int64_t position) const {
  DCHECK(position >= 0 && position < length_ + pending_tokens_);
  if (position < length_) return WindowRow(layer, position);
  return pending_window_.data() +
         (layer * pending_tokens_ + position - length_) * layout_.window_row_bytes;
}

void SequenceState::Commit(int64_t tokens) {
  CHECK(tokens >= 0 && tokens <= pending_tokens_);
  const int64_t first_kept = std::max<int64_t>(0, tokens - layout_.window_slots);
  for (int64_t layer = 0; layer < layout_.layer_count; ++layer) {
    for (int64_t row = first_kept; row < tokens; ++row) {
      std::memcpy(WindowRow(layer, length_ + row), PendingWindowRow(layer, row),
                  Index(layout_.window_row_bytes));
    }
  }
  const int64_t new_length = length_ + tokens;
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    const int64_t ratio = layout_.ratios[source];
    if (ratio == 1) continue;
    const int64_t new_open = new_length % ratio;
    const int64_t first = open_tokens(static_cast<int64_t>(source)) + tokens - new_open;
    for (std::vector<float>* rows : {&pending_kv_[source], &pending_gate_[source]}) {
      const auto begin = rows->begin() + first * layout_.head_dim;
      std::copy(begin, begin + new_open * layout_.head_dim, rows->begin());
      rows->resize(Index(new_open * layout_.head_dim));
    }
  }
  if (layout_.history_length > 0) {
    std::copy_n(history_.begin() + tokens, layout_.history_length, history_.begin());
    history_.resize(Index(layout_.history_length));
  }
  length_ = new_length;
  pending_tokens_ = 0;
  pending_window_.clear();
  // Blocks that only rejected rows had needed go back, so that capacity stays within one block
  // of what is used.
  const size_t needed = Index((length_ + kBlockTokens - 1) / kBlockTokens);
  if (blocks_.size() > needed) blocks_.resize(needed);
}

int64_t SequenceState::used_bytes() const {
  int64_t bytes = 0;
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    bytes += RowCount(static_cast<int64_t>(source), length_) *
             (layout_.compressed_row_bytes + layout_.index_row_bytes);
  }
  return bytes;
}

int64_t SequenceState::capacity_bytes() const {
  return static_cast<int64_t>(blocks_.size()) * layout_.block_bytes;
}

int64_t SequenceState::constant_bytes() const {
  int64_t bytes = WindowStateBytes(layout_) + layout_.history_length * 4;
  for (int64_t ratio : layout_.ratios) bytes += (ratio - 1) * 2 * layout_.head_dim * 4;
  return bytes;
}

}  // namespace minke

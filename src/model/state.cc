#include "model/state.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace minke {

namespace {

size_t Index(int64_t value) {
  return static_cast<size_t>(value);
}

int64_t Blocks(int64_t tokens) {
  return (tokens + kBlockTokens - 1) / kBlockTokens;
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
      split_layer(config.kv_source_layer_ids.empty() ? config.num_hidden_layers - 1
                                                     : config.kv_source_layer_ids.back()),
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

SequenceState::SequenceState(const StateLayout& layout, BlockPool& pool)
    : layout_(layout),
      pool_(&pool),
      rings_(AllocateAligned(Index(WindowStateBytes(layout_)))),
      pending_kv_(layout_.ratios.size()),
      pending_gate_(layout_.ratios.size()),
      history_(Index(layout_.history_length), kDeadHistory) {
  CHECK(layout_.block_bytes == 0 || pool.block_bytes() == layout_.block_bytes);
  std::memset(rings_.get(), 0, Index(WindowStateBytes(layout_)));
}

SequenceState::SequenceState(const ModelConfig& config, const Numerics& numerics, BlockPool& pool)
    : SequenceState(StateLayout(config, numerics), pool) {}

SequenceState::~SequenceState() {
  ReleaseReservation();
}

void SequenceState::ReleaseReservation() {
  pool_->Unreserve(std::exchange(reserved_blocks_, 0));
}

std::unique_ptr<SequenceState> SequenceState::Fork() const {
  CHECK(pending_tokens_ == 0);
  auto fork = std::unique_ptr<SequenceState>(new SequenceState(layout_, *pool_));
  fork->length_ = length_;
  fork->adopted_tokens_ = adopted_tokens_;
  fork->encoder_begin_ = encoder_begin_;
  fork->decoder_begin_ = decoder_begin_;
  fork->pending_decoder_begin_ = decoder_begin_;
  fork->blocks_ = blocks_;
  std::memcpy(fork->rings_.get(), rings_.get(), Index(WindowStateBytes(layout_)));
  fork->pending_kv_ = pending_kv_;
  fork->pending_gate_ = pending_gate_;
  fork->history_ = history_;
  return fork;
}

BlockRef SequenceState::NewBlock() {
  if (reserved_blocks_ == 0) return pool_->Allocate();
  --reserved_blocks_;
  return pool_->AllocateReserved();
}

bool SequenceState::Reserve(int64_t tokens) {
  ReleaseReservation();
  if (layout_.block_bytes == 0) return true;
  const auto held = static_cast<int64_t>(blocks_.size());
  int64_t wanted = std::max<int64_t>(0, Blocks(tokens) - held);
  // The open block may have to be copied.
  if (held > 0 && known_tokens() % kBlockTokens != 0 && blocks_.back().shared()) ++wanted;
  if (!pool_->Reserve(wanted)) return false;
  reserved_blocks_ = wanted;
  return true;
}

bool SequenceState::GrowTo(int64_t tokens) {
  if (layout_.block_bytes == 0 || tokens <= known_tokens()) return true;
  const bool open = known_tokens() % kBlockTokens != 0;
  if (open && blocks_.back().shared()) {
    BlockRef copy = NewBlock();
    if (!copy) return false;
    std::memcpy(copy.bytes(), blocks_.back().bytes(), Index(layout_.block_bytes));
    blocks_.back() = std::move(copy);
  }
  while (static_cast<int64_t>(blocks_.size()) < Blocks(tokens)) {
    BlockRef block = NewBlock();
    if (!block) return false;
    blocks_.push_back(std::move(block));
  }
  return true;
}

void SequenceState::AdoptRows(std::vector<BlockRef> blocks, int64_t tokens) {
  CHECK(length_ == 0 && blocks_.empty() && pending_tokens_ == 0);
  CHECK(layout_.block_bytes == 0 || static_cast<int64_t>(blocks.size()) == Blocks(tokens));
  blocks_ = std::move(blocks);
  adopted_tokens_ = tokens;
}

const std::byte* SequenceState::CompressedRow(int64_t source, int64_t row) const {
  const int64_t rows_per_block = kBlockTokens / layout_.ratios[Index(source)];
  const BlockRef& block = blocks_[Index(row / rows_per_block)];
  return block.bytes() + layout_.compressed_offset[Index(source)] +
         row % rows_per_block * layout_.compressed_row_bytes;
}

const std::byte* SequenceState::IndexRow(int64_t source, int64_t row) const {
  const int64_t rows_per_block = kBlockTokens / layout_.ratios[Index(source)];
  const BlockRef& block = blocks_[Index(row / rows_per_block)];
  return block.bytes() + layout_.index_offset[Index(source)] +
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

bool SequenceState::Begin(int64_t tokens, int64_t decoder_from) {
  CHECK(tokens >= 0 && decoder_from >= 0 && decoder_from <= tokens);
  ClearPending();
  if (!GrowTo(length_ + tokens)) {
    DropSpareBlocks();
    return false;
  }
  pending_tokens_ = tokens;
  pending_decoder_begin_ = decoder_from > 0 ? length_ + decoder_from : decoder_begin_;
  pending_window_.resize(Index(layout_.layer_count * tokens * layout_.window_row_bytes));
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    if (layout_.ratios[source] == 1) continue;
    const int64_t rows = open_tokens(static_cast<int64_t>(source)) + tokens;
    pending_kv_[source].resize(Index(rows * layout_.head_dim));
    pending_gate_[source].resize(Index(rows * layout_.head_dim));
  }
  if (layout_.history_length > 0) history_.resize(Index(layout_.history_length + tokens));
  return true;
}

void SequenceState::ClearPending() {
  pending_tokens_ = 0;
  pending_decoder_begin_ = decoder_begin_;
  pending_window_.clear();
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    if (layout_.ratios[source] == 1) continue;
    const int64_t values = open_tokens(static_cast<int64_t>(source)) * layout_.head_dim;
    pending_kv_[source].resize(Index(values));
    pending_gate_[source].resize(Index(values));
  }
  history_.resize(Index(layout_.history_length));
}

// Blocks that only rejected rows had needed go back, so that capacity stays within one block of
// what is used.
void SequenceState::DropSpareBlocks() {
  const size_t needed = Index(layout_.block_bytes == 0 ? 0 : Blocks(known_tokens()));
  if (blocks_.size() > needed) blocks_.resize(needed);
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
    const int64_t first = std::max(first_kept, window_begin(layer) - length_);
    for (int64_t row = first; row < tokens; ++row) {
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
    }
  }
  std::copy_n(history_.begin() + (layout_.history_length > 0 ? tokens : 0), layout_.history_length,
              history_.begin());
  length_ = new_length;
  decoder_begin_ = std::min(pending_decoder_begin_, new_length);
  ClearPending();
  DropSpareBlocks();
}

int64_t SequenceState::used_bytes() const {
  int64_t bytes = 0;
  for (size_t source = 0; source < layout_.ratios.size(); ++source) {
    bytes += RowCount(static_cast<int64_t>(source), known_tokens()) *
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

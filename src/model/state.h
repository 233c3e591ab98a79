// Everything a sequence carries from one call to the next (architecture.md 4.9, 5.1), packed.
//
// Two parts. The global part grows with the context: compressed KV rows and index keys of every
// kv source, in blocks of kBlockTokens tokens. The constant part does not: window rings, open
// compressor groups, Engram history. A forward writes new global rows behind the committed ones
// and keeps new window rows aside; Commit(n) makes the first n of them history. Rows computed but
// not committed leave no trace.
//
// Blocks come from a pool and may be shared with other sequences and with the prefix cache. Full
// ones are never written again; an open one that is shared is copied before the next row goes in.
// The constant part is a snapshot's content (model/snapshot.cc) or is rebuilt by replay (6.3).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/block_pool.h"
#include "core/numeric_formats.h"
#include "core/result.h"
#include "core/tensor.h"
#include "model/config.h"
#include "model/numerics.h"

namespace minke {

// Tokens per block of global rows: the sliding window of the released model, a multiple of every
// compress ratio, 113,920 bytes at the released sizes.
inline constexpr int64_t kBlockTokens = 128;

// Byte layout of all per-sequence state, from the config alone.
struct StateLayout {
  StateLayout(const ModelConfig& config, const Numerics& numerics);

  RowFormat window_format;
  RowFormat compressed_format;
  RowFormat index_format;
  int64_t window_row_bytes = 0;
  int64_t compressed_row_bytes = 0;
  int64_t index_row_bytes = 0;
  int64_t layer_count = 0;
  int64_t split_layer = 0;   // the last kv source: everything above it sees windows only (6.1)
  int64_t window_slots = 0;  // sliding_window
  int64_t head_dim = 0;
  int64_t history_length = 0;              // engram_max_ngram_size - 1, or 0
  std::vector<int64_t> ratios;             // per kv source
  std::vector<int64_t> compressed_offset;  // per kv source, bytes from the start of a block
  std::vector<int64_t> index_offset;       // per kv source
  int64_t block_bytes = 0;
};

// Bytes of the global rows per token, averaged over whole groups: sum over sources of
// (compressed row + index row) / ratio. 890 at the released sizes. block_bytes / kBlockTokens.
double KvBytesPerToken(const StateLayout& layout);
// Bytes of all window rings: layers * window * row. 2,703,360 at the released sizes.
int64_t WindowStateBytes(const StateLayout& layout);

inline constexpr int32_t kDeadHistory = -1;  // no token, or one that blocks n-gram lookback

class SequenceState {
 public:
  // `pool` has blocks of layout().block_bytes and outlives the state.
  SequenceState(const ModelConfig& config, const Numerics& numerics, BlockPool& pool);
  ~SequenceState();
  SequenceState(const SequenceState&) = delete;
  SequenceState& operator=(const SequenceState&) = delete;
  // The same history, ready to go another way: blocks are shared, the constant part is copied.
  std::unique_ptr<SequenceState> Fork() const;

  const StateLayout& layout() const { return layout_; }
  int64_t length() const { return length_; }  // committed tokens
  // Tokens whose global rows are there: more than length() after AdoptRows() until a replay or a
  // continuation has caught up.
  int64_t known_tokens() const { return std::max(length_, adopted_tokens_); }
  // Rows of a source that belong to `tokens` tokens: tokens / ratio.
  int64_t RowCount(int64_t source, int64_t tokens) const {
    return tokens / layout_.ratios[static_cast<size_t>(source)];
  }

  // ---- global rows ----
  // The blocks of known_tokens(), the last one perhaps open.
  std::span<const BlockRef> blocks() const { return blocks_; }
  // Sets blocks of the pool aside for a growth up to `tokens` tokens in all; false if the pool has
  // no room for that. Replaces an earlier reservation.
  [[nodiscard]] bool Reserve(int64_t tokens);
  void ReleaseReservation();
  // Tokens that the blocks held and reserved have room for.
  int64_t room_tokens() const {
    return (static_cast<int64_t>(blocks_.size()) + reserved_blocks_) * kBlockTokens;
  }
  // Takes over rows of the first `tokens` tokens, which are never written again. REQUIRES an empty
  // state, and blocks for exactly these tokens.
  void AdoptRows(std::vector<BlockRef> blocks, int64_t tokens);
  std::byte* CompressedRow(int64_t source, int64_t row);
  std::byte* IndexRow(int64_t source, int64_t row);
  const std::byte* CompressedRow(int64_t source, int64_t row) const;
  const std::byte* IndexRow(int64_t source, int64_t row) const;
  // Rows that lie contiguously from `row` on, at most up to `end`.
  int64_t ContiguousRows(int64_t source, int64_t row, int64_t end) const;

  // Whether a row computed now is to be stored: rows that were adopted stay as they are (6.3).
  bool WritesRow(int64_t source, int64_t row) const {
    return row >= RowCount(source, adopted_tokens_);
  }

  // ---- window rings: position p of layer l in slot p mod window_slots ----
  std::byte* WindowRow(int64_t layer, int64_t position);
  const std::byte* WindowRow(int64_t layer, int64_t position) const;

  // First position whose window row exists in this layer; what lies before it is not looked at. 0
  // in a sequence that was computed whole; later after a replay, or where layers above split_layer
  // skipped tokens.
  int64_t window_begin(int64_t layer) const {
    return layer <= layout_.split_layer ? encoder_begin_ : pending_decoder_begin_;
  }

  // ---- rows of the running call, not yet committed ----
  // Starts a call of `tokens` new tokens at position length(); drops what an earlier call left.
  // Layers above split_layer will run from the call's row `decoder_from` on. False if the pool has
  // no room.
  [[nodiscard]] bool Begin(int64_t tokens, int64_t decoder_from = 0);
  int64_t pending_tokens() const { return pending_tokens_; }
  std::byte* PendingWindowRow(int64_t layer, int64_t row);
  // Compressor inputs: the open tokens of earlier calls first, then the new ones, so that row 0 is
  // the first token of a group. [open_tokens + pending, head_dim] float32; ratio > 1 only.
  View<float> PendingKv(int64_t source);
  View<float> PendingGate(int64_t source);
  int64_t open_tokens(int64_t source) const;  // length() mod ratio
  // Compressed token ids: history (history_length entries, kDeadHistory where there is none),
  // then the new tokens. [history_length + pending]
  std::span<int32_t> PendingHistory();

  // Whether the layers above split_layer have no window rows yet, as after a call that left them
  // out: what follows within a window's reach could not be what it would have been.
  bool decoder_empty() const { return length_ > 0 && decoder_begin_ == length_; }

  // The window row of a position of history or of the running call.
  const std::byte* VisibleWindowRow(int64_t layer, int64_t position) const;

  // Makes the first `tokens` rows of the running call history. REQUIRES 0 <= tokens <= pending.
  void Commit(int64_t tokens);

  // ---- going back to a working state (6.3) ----
  // Empties the constant part so that the next call starts at position `from`, behind whose window
  // nothing is known. history: the history_length compressed ids before `from`. REQUIRES from <=
  // known_tokens().
  void StartReplay(int64_t from, std::span<const int32_t> history);
  // Bytes of a snapshot now, and at most. A snapshot holds the rows of the open block and the
  // constant part: with the full blocks before it, all of the state.
  int64_t snapshot_bytes() const;
  static int64_t SnapshotBytesMax(const StateLayout& layout);
  // Writes snapshot_bytes() bytes. REQUIRES no call running.
  void WriteSnapshot(std::byte* out) const;
  // Restores what WriteSnapshot() wrote. full_blocks: the full blocks before it; further ones that
  // follow are kept as known rows. Errors: bytes that are no snapshot of this layout; no room.
  // REQUIRES an empty state.
  Status RestoreSnapshot(std::span<const std::byte> snapshot, std::vector<BlockRef> full_blocks);
  // Only the rows of a snapshot: AdoptRows() with its open block, for a replay.
  Status RestoreRows(std::span<const std::byte> snapshot, std::vector<BlockRef> full_blocks);

  // ---- accounting ----
  int64_t used_bytes() const;      // global rows of known tokens
  int64_t capacity_bytes() const;  // blocks held
  int64_t constant_bytes() const;  // rings, open groups, history

 private:
  explicit SequenceState(const StateLayout& layout, BlockPool& pool);
  // Room for the rows of `tokens` tokens, the open block being ours alone.
  bool GrowTo(int64_t tokens);
  BlockRef NewBlock();
  void ClearPending();
  void DropSpareBlocks();
  struct SnapshotHeader;
  Result<SnapshotHeader> ParseSnapshot(std::span<const std::byte> snapshot) const;
  Status AdoptSnapshotRows(std::span<const std::byte> snapshot, std::vector<BlockRef> full_blocks);

  StateLayout layout_;
  BlockPool* pool_;
  int64_t reserved_blocks_ = 0;
  int64_t length_ = 0;
  int64_t adopted_tokens_ = 0;
  int64_t pending_tokens_ = 0;
  int64_t encoder_begin_ = 0;
  int64_t decoder_begin_ = 0;
  int64_t pending_decoder_begin_ = 0;  // of the running call; decoder_begin_ between calls
  std::vector<BlockRef> blocks_;
  AlignedBytes rings_;                            // [layer][slot][row bytes]
  std::vector<std::byte> pending_window_;         // [layer][pending][row bytes]
  std::vector<std::vector<float>> pending_kv_;    // per source
  std::vector<std::vector<float>> pending_gate_;  // per source
  std::vector<int32_t> history_;
};

}  // namespace minke

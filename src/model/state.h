// Everything a sequence carries from one call to the next (architecture.md 4.9, 5.1), packed.
//
// Two parts. The global part grows with the context: compressed KV rows and index keys of every
// kv source, in blocks of kBlockTokens tokens. The constant part does not: window rings, open
// compressor groups, Engram history. A forward writes new global rows behind the committed ones
// and keeps new window rows aside; Commit(n) makes the first n of them history. Rows computed but
// not committed leave no trace.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/numeric_formats.h"
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
  SequenceState(const ModelConfig& config, const Numerics& numerics);

  const StateLayout& layout() const { return layout_; }
  int64_t length() const { return length_; }  // committed tokens
  // Rows of a source that belong to `tokens` tokens: tokens / ratio.
  int64_t RowCount(int64_t source, int64_t tokens) const {
    return tokens / layout_.ratios[static_cast<size_t>(source)];
  }

  // ---- global rows ----
  // Makes room for `tokens` tokens in all; never moves what is there.
  void Reserve(int64_t tokens);
  std::byte* CompressedRow(int64_t source, int64_t row);
  std::byte* IndexRow(int64_t source, int64_t row);
  const std::byte* CompressedRow(int64_t source, int64_t row) const;
  const std::byte* IndexRow(int64_t source, int64_t row) const;
  // Rows that lie contiguously from `row` on, at most up to `end`.
  int64_t ContiguousRows(int64_t source, int64_t row, int64_t end) const;

  // ---- window rings: position p of layer l in slot p mod window_slots ----
  std::byte* WindowRow(int64_t layer, int64_t position);
  const std::byte* WindowRow(int64_t layer, int64_t position) const;

  // ---- rows of the running call, not yet committed ----
  // Starts a call of `tokens` new tokens at position length(); drops what an earlier call left.
  void Begin(int64_t tokens);
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

  // The window row of a position of history or of the running call.
  const std::byte* VisibleWindowRow(int64_t layer, int64_t position) const;

  // Makes the first `tokens` rows of the running call history. REQUIRES 0 <= tokens <= pending.
  void Commit(int64_t tokens);

  // ---- accounting ----
  int64_t used_bytes() const;      // global rows of committed tokens
  int64_t capacity_bytes() const;  // blocks held
  int64_t constant_bytes() const;  // rings, open groups, history

 private:
  StateLayout layout_;
  int64_t length_ = 0;
  int64_t pending_tokens_ = 0;
  std::vector<AlignedBytes> blocks_;
  AlignedBytes rings_;                            // [layer][slot][row bytes]
  std::vector<std::byte> pending_window_;         // [layer][pending][row bytes]
  std::vector<std::vector<float>> pending_kv_;    // per source
  std::vector<std::vector<float>> pending_gate_;  // per source
  std::vector<int32_t> history_;
};

}  // namespace minke

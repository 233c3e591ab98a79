// The arithmetic of attention over one block of queries: no libtorch, no allocation.
#pragma once

#include <cstdint>

namespace minke::train {

// One block of queries of one sequence. Pointers are those of the sequence's first row.
struct AttentionBlock {
  int64_t heads = 0;
  int64_t head_dim = 0;
  int64_t window = 0;
  int64_t ratio = 0;  // 0: no compressed rows
  int64_t first = 0;  // queries [first, first + count)
  int64_t count = 0;
  int64_t window_from = -1;            // queries from there on do not see window rows before it
  int64_t slots = 0;                   // of a list of rows; 0: every visible row
  const int32_t* selected = nullptr;   // [T, slots]
  const float* q = nullptr;            // [T, heads * head_dim]
  const float* window_rows = nullptr;  // [T, head_dim]
  const float* compressed = nullptr;   // [Tc, head_dim]
  const float* sink = nullptr;         // [heads]

  int64_t key_first() const { return first > window ? first - window : 0; }
  int64_t key_count() const { return first + count - key_first(); }
  int64_t visible(int64_t position) const { return ratio == 0 ? 0 : (position + 1) / ratio; }
  // Columns of the probabilities: keys of the window, then compressed rows or slots.
  int64_t compressed_count() const { return slots > 0 ? slots : visible(first + count - 1); }
  int64_t columns() const { return key_count() + compressed_count(); }
  int64_t row_count() const { return count * heads; }
};

// probabilities: [count * heads, columns()], zero where nothing is seen; sink_probabilities and out
// are those of the sequence's first row: [T, heads], [T, heads * head_dim].
void AttendBlock(const AttentionBlock& block, float* probabilities, float* sink_probabilities,
                 float* out);

struct AttentionBlockGradients {
  float* q = nullptr;            // overwritten for the block's queries
  float* window_rows = nullptr;  // the rest is added to
  float* compressed = nullptr;
  float* sink = nullptr;
};
// dout: [T, heads * head_dim]; scratch: [count * heads, columns()].
void AttendBlockBackward(const AttentionBlock& block, const float* probabilities,
                         const float* sink_probabilities, const float* dout, float* scratch,
                         const AttentionBlockGradients& gradients);

// Adds the probabilities of one query on every visible compressed row, over all heads, to mass
// [visible]. scratch: [window + visible].
void MeasureQuery(const AttentionBlock& block, int64_t position, float* scratch, float* mass);

}  // namespace minke::train

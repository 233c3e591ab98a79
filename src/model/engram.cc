// Engram n-gram memory (architecture.md 8.3, 8.4): row ids from the last compressed token ids,
// lookup, projection, gated write into the residual streams. The hash constants are in
// engram_hash.cc.
#include "core/file.h"
#include "core/page_memory.h"
#include "model/layers.h"
#include "model/weight_stream.h"

namespace minke {

namespace {

constexpr int64_t kColumnsPerScale = 32;
// What asking for the pages of a row costs, in values that are computed: about a microsecond.
constexpr int64_t kAskingCost = 2048;

// One table row, exact in bf16: E4M3 times a power of two. Offsets are 64-bit: a released table
// has 98 GB.
void DecodeTableRow(const EngramTable& table, int64_t row, float* out) {
  const uint8_t* codes = table.codes + row * table.cols;
  const uint8_t* scales = table.scales + row * (table.cols / kColumnsPerScale);
  for (int64_t column = 0; column < table.cols; ++column) {
    out[column] = DecodeE4M3(codes[column]) * DecodeUe8m0(scales[column / kColumnsPerScale]);
  }
}

// Row ids of every token of the call, [T, columns].
View<int64_t> RowIds(StepContext& step, int64_t engram_index) {
  const ModelConfig& config = step.config;
  View<int64_t> rows = step.arena.Allocate<int64_t>(step.row_count, config.engram_columns());
  for (const SequenceSpan& sequence : step.sequences) {
    EngramRows(step.tables, step.tables.engram[static_cast<size_t>(engram_index)],
               sequence.state->PendingHistory(), sequence.state->layout().history_length,
               config.engram_n_heads, rows.Rows(sequence.first_row, sequence.count));
  }
  return rows;
}

// The rows of the call alone, one behind the other, as a table; `rows` become their numbers in it.
Result<EngramTable> GatherTable(StepContext& step, int64_t engram_index, const EngramTable& table,
                                View<int64_t> rows) {
  const int64_t count = rows.rows * rows.cols;
  View<uint8_t> codes = step.arena.Allocate<uint8_t>(count, table.cols);
  View<uint8_t> scales = step.arena.Allocate<uint8_t>(count, table.cols / kColumnsPerScale);
  TRY_STATUS(step.stream->GatherEngramRows(engram_index, rows, codes, scales));
  for (int64_t row = 0; row < rows.rows; ++row) {
    for (int64_t column = 0; column < rows.cols; ++column) {
      rows.Row(row)[column] = row * rows.cols + column;
    }
  }
  return EngramTable{codes.data, scales.data, count, table.cols};
}

// A row lies in a page or two of its own, its scales in another.
void StartReadingRow(const EngramTable& table, int64_t row) {
  const uint8_t* codes = table.codes + row * table.cols;
  const uint8_t* last = codes + table.cols - 1;
  StartReadingPage(codes);
  const bool one_page = reinterpret_cast<uintptr_t>(codes) / kPageBytes ==
                        reinterpret_cast<uintptr_t>(last) / kPageBytes;
  if (!one_page) StartReadingPage(last);
  StartReadingPage(table.scales + row * (table.cols / kColumnsPerScale));
}

// Without this each page of a mapped table would be a read of the disk that somebody waits for, one
// after the other.
void StartReadingRows(StepContext& step, const EngramTable& table, View<const int64_t> rows) {
  step.pool.ParallelFor(rows.rows, step.RowGrain(rows.cols * kAskingCost),
                        [&](int64_t begin, int64_t end, int /*worker*/) {
                          for (int64_t row = begin; row < end; ++row) {
                            for (int64_t column = 0; column < rows.cols; ++column) {
                              StartReadingRow(table, rows.Row(row)[column]);
                            }
                          }
                        });
}

}  // namespace

void PrefetchEngram(StepContext& step, const ModelWeights& weights) {
  if (step.tables.engram.empty()) return;
  ArenaScope scope(step.arena);
  std::vector<WeightStream::EngramRowList> lists;
  for (size_t index = 0; index < step.tables.engram.size(); ++index) {
    const auto engram_index = static_cast<int64_t>(index);
    lists.push_back({engram_index, RowIds(step, engram_index)});
  }
  if (step.stream != nullptr) {
    step.stream->PrefetchEngramRows(lists);
    return;
  }
  for (size_t index = 0; index < lists.size(); ++index) {
    const auto layer = static_cast<size_t>(step.config.engram_layer_ids[index]);
    StartReadingRows(step, weights.layers[layer].engram.embed, lists[index].rows);
  }
}

Status Engram(StepContext& step, int64_t layer, const EngramWeights& weights, View<float> streams) {
  ArenaScope scope(step.arena);
  const ModelConfig& config = step.config;
  const int64_t engram_index = config.layers[static_cast<size_t>(layer)].engram_index;
  const int64_t columns = config.engram_columns();
  const int64_t head_dim = config.engram_head_dim;

  View<int64_t> rows = RowIds(step, engram_index);
  if (step.diagnostics != nullptr && step.diagnostics->engram_rows) {
    step.diagnostics->engram_rows(layer, rows);
  }
  EngramTable table = weights.embed;
  if (step.stream != nullptr) table = TRY(GatherTable(step, engram_index, table, rows));

  View<float> embedded = step.arena.Allocate<float>(step.row_count, columns * head_dim);
  step.pool.ParallelFor(step.row_count, step.RowGrain(embedded.cols),
                        [&](int64_t begin, int64_t end, int /*worker*/) {
                          for (int64_t row = begin; row < end; ++row) {
                            for (int64_t column = 0; column < columns; ++column) {
                              DecodeTableRow(table, rows.Row(row)[column],
                                             embedded.Row(row) + column * head_dim);
                            }
                          }
                        });

  View<float> projected =
      step.arena.Allocate<float>(step.row_count, (config.hc_mult + 1) * config.hidden_size);
  Linear(step, weights.wkv, embedded, projected);
  step.kernels.engram_write(streams, projected, weights.q_weight, weights.k_weight, {},
                            config.hc_mult, static_cast<float>(config.rms_norm_eps),
                            step.numerics.round_activations, step.pool);
  step.Dump("engram_out", layer, streams);
  return {};
}

}  // namespace minke

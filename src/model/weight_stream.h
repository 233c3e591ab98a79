// Models larger than memory: dense weights stay in memory, routed experts and rows of the Engram
// tables are read when they are needed, and kept as far as a budget goes. The arithmetic is the
// same as with everything in memory, so are its bits.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/piece_cache.h"
#include "checkpoint/read_pool.h"
#include "checkpoint/safetensors.h"
#include "core/page_memory.h"
#include "core/result.h"
#include "core/tensor.h"
#include "model/config.h"
#include "model/weights.h"

namespace minke {

// Reads in flight, enough for a fast disk (bench/disk_rate).
inline constexpr int kWeightReaders = 8;

// What a model takes and how its reads went since it was opened. Seconds and bytes are totals.
struct WeightStreamStats {
  int64_t budget_bytes = 0;
  int64_t dense_bytes = 0;    // read once
  int64_t expert_slots = 0;   // experts that the budget holds
  int64_t expert_count = 0;   // of all layers
  int64_t expert_bytes = 0;   // of one, as it is kept
  bool direct = false;        // reads pass the page cache by
  int64_t read_bytes = 0;     // without the dense ones
  double wait_seconds = 0;    // in which nothing could be computed
  int64_t waited_bytes = 0;   // of read_bytes, what arrived in that time
  PieceCounts experts;        // by expert and layer
  PieceCounts engram_blocks;  // pages of the tables
};

// Thread safety: one thread at a time, but for stats().
class WeightStream {
 public:
  // Reads the dense tensors and makes the checkpoint's views point to them. `checkpoint` stays
  // where it is. REQUIRES: CheckTensors() passed. Errors: a budget that is too small, which says
  // what would do; trouble with files or memory.
  static Result<std::unique_ptr<WeightStream>> Create(const ModelConfig& config,
                                                      Checkpoint& checkpoint, int64_t budget_bytes);

  // Begins to read a layer's experts, distinct ones.
  void StartExperts(int64_t layer, std::span<const int32_t> experts);
  // Reads experts that the layer is likely to ask for, best first, when nothing else is needed.
  void PrefetchExperts(int64_t layer, std::span<const int32_t> experts);
  // Hands out the weights of the experts that StartExperts() named, each once, as they come; they
  // stay until `body` returns. `weights` are the layer's. Errors: the disk's, naming file and
  // tensor.
  Status ForEachExpert(
      int64_t layer, const MoeWeights& weights,
      const std::function<void(int32_t expert, const ExpertWeights& weights)>& body);

  // Reads what these rows of a table need when nothing is urgent; a call ends the one before it.
  struct EngramRowList {
    int64_t engram_index = 0;
    View<const int64_t> rows;  // any shape
  };
  void PrefetchEngramRows(std::span<const EngramRowList> lists);
  // Codes and scales of rows of a table. rows: [n, columns]; codes: [n * columns, engram_head_dim];
  // scales: [n * columns, engram_head_dim / 32]. Errors: the disk's.
  Status GatherEngramRows(int64_t engram_index, View<const int64_t> rows, View<uint8_t> codes,
                          View<uint8_t> scales);

  WeightStreamStats stats() const;

 private:
  static constexpr size_t kExpertTensors = 6;  // weight and scale of w1, w2, w3
  struct ExpertPlace {
    std::array<size_t, kExpertTensors> offsets = {};
    std::vector<PieceExtent> extents;
  };
  // One tensor of a table, cut into pages of its file that are numbered from first_block on.
  struct TablePart {
    const ByteSource* source = nullptr;
    uint64_t begin = 0;  // of the tensor, in the file
    uint64_t row_bytes = 0;
    int64_t first_block = 0;
    int64_t block_count = 0;
  };
  struct Table {
    TablePart codes;
    TablePart scales;
  };
  // Bytes of a row, cut where pages meet.
  struct RowSpan {
    int64_t block = 0;
    uint32_t offset = 0;  // in the block
    uint32_t bytes = 0;
    uint8_t* target = nullptr;
  };
  struct Budget {
    int64_t expert_slots = 0;
    int64_t engram_slots = 0;
  };

  WeightStream(const ModelConfig& config, int64_t budget_bytes);
  Status LoadDense(Checkpoint& checkpoint);
  void LayOutExperts(const Checkpoint& checkpoint);
  void NumberEngramBlocks(const Checkpoint& checkpoint);
  TablePart NumberPart(const TensorView& tensor);
  Result<Budget> Split(const Checkpoint& checkpoint, int64_t dense_bytes) const;
  Status MakeCaches(const Budget& budget);
  // How many of `likely` experts are worth reading ahead.
  size_t WorthReadingAhead(size_t likely);
  int64_t ExpertPiece(int64_t layer, int32_t expert) const;
  void BlockExtent(int64_t block, std::vector<PieceExtent>& extents) const;
  static void AddRow(const TablePart& part, int64_t row, uint8_t* target,
                     std::vector<RowSpan>& spans);

  const ModelConfig& config_;
  int64_t budget_bytes_;
  std::unique_ptr<CheckpointReader> reader_;
  PageMemory dense_;
  std::vector<ExpertPlace> places_;  // [layers * experts]
  size_t expert_bytes_ = 0;          // of the largest
  std::vector<Table> tables_;        // by engram_index
  int64_t block_count_ = 0;          // over all tables
  // Experts read ahead of late, and those of them that were needed.
  double ahead_count_ = 0;
  double ahead_hits_ = 0;
  PieceCounts ahead_seen_;
  int64_t loaded_bytes_ = 0;  // of the pool's, that were dense
  double loaded_seconds_ = 0;
  double loaded_waited_bytes_ = 0;
  // The caches end before the pool, which still reads into them.
  std::unique_ptr<ReadPool> pool_;
  std::unique_ptr<PieceCache> experts_;
  std::unique_ptr<PieceCache> engram_;  // null without tables
};

}  // namespace minke

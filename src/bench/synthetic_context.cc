#include "bench/synthetic_context.h"

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "bench/random_weights.h"
#include "recall/random.h"

namespace minke {
namespace {

constexpr int64_t kDistinctRows = 1024;  // encoded; the cache repeats them in random order
// About what the norms in front of the caches leave (architecture.md, appendix D).
constexpr double kRowDeviation = 0.5;

class RandomRows {
 public:
  RandomRows(RowFormat format, int64_t channels, Random& random)
      : row_bytes_(RowBytes(format, channels)),
        bytes_(static_cast<size_t>(kDistinctRows * row_bytes_)) {
    const std::vector<uint16_t> table = Bf16Normal(0, kRowDeviation);
    std::vector<uint16_t> values(static_cast<size_t>(channels));
    std::vector<float> row(values.size());
    for (int64_t i = 0; i < kDistinctRows; ++i) {
      FillBf16(table, random, values);
      std::transform(values.begin(), values.end(), row.begin(), DecodeBf16);
      EncodeRow(format, row,
                std::span(bytes_).subspan(static_cast<size_t>(i * row_bytes_),
                                          static_cast<size_t>(row_bytes_)));
    }
  }
  void CopyOne(Random& random, std::byte* to) const {
    std::memcpy(to, bytes_.data() + random.Below(kDistinctRows) * row_bytes_,
                static_cast<size_t>(row_bytes_));
  }

 private:
  int64_t row_bytes_;
  std::vector<std::byte> bytes_;
};

void FillBlock(const StateLayout& layout, const RandomRows& compressed, const RandomRows& index,
               Random& random, std::byte* block) {
  for (size_t source = 0; source < layout.ratios.size(); ++source) {
    const int64_t rows = kBlockTokens / layout.ratios[source];
    for (int64_t row = 0; row < rows; ++row) {
      compressed.CopyOne(
          random, block + layout.compressed_offset[source] + row * layout.compressed_row_bytes);
      index.CopyOne(random, block + layout.index_offset[source] + row * layout.index_row_bytes);
    }
  }
}

// Window rows, open groups and history of the last tokens, as a call would leave them.
Status FillWindows(SequenceState& state, int64_t tokens, const RandomRows& window, Random& random) {
  const StateLayout& layout = state.layout();
  if (!state.Begin(tokens)) return Fail(ErrorCode::kLimit, "No room for the rows of a window.");
  for (int64_t layer = 0; layer < layout.layer_count; ++layer) {
    for (int64_t row = 0; row < tokens; ++row) {
      window.CopyOne(random, state.PendingWindowRow(layer, row));
    }
  }
  for (size_t source = 0; source < layout.ratios.size(); ++source) {
    if (layout.ratios[source] == 1) continue;
    for (const View<float>& open : {state.PendingKv(static_cast<int64_t>(source)),
                                    state.PendingGate(static_cast<int64_t>(source))}) {
      for (int64_t i = 0; i < open.rows * open.cols; ++i) {
        open.data[i] = static_cast<float>(random.Uniform() - 0.5);
      }
    }
  }
  if (layout.history_length > 0)
    std::fill_n(state.PendingHistory().begin(), layout.history_length + tokens, 0);
  state.Commit(tokens);
  return {};
}

}  // namespace

Result<std::unique_ptr<SequenceState>> MakeSyntheticContext(const Model& model, BlockPool& pool,
                                                            int64_t tokens, uint64_t seed) {
  std::unique_ptr<SequenceState> state = model.NewSequence(pool);
  if (tokens == 0) return state;
  const StateLayout& layout = state->layout();
  const ModelConfig& config = model.config();
  Random random({seed, static_cast<uint64_t>(tokens)});
  const int64_t window_tokens = std::min(tokens, layout.window_slots);
  if (layout.block_bytes > 0) {
    const RandomRows compressed(layout.compressed_format, layout.head_dim, random);
    const RandomRows index(layout.index_format, config.index_head_dim, random);
    std::vector<BlockRef> blocks;
    for (int64_t at = 0; at < tokens; at += kBlockTokens) {
      BlockRef block = pool.Allocate();
      if (!block) {
        return Fail(ErrorCode::kLimit,
                    fmt::format("No memory for the cache of {} tokens; measure a shorter context.",
                                tokens));
      }
      FillBlock(layout, compressed, index, random, block.bytes());
      blocks.push_back(std::move(block));
    }
    state->AdoptRows(std::move(blocks), tokens);
  } else {
    state->AdoptRows({}, tokens);
  }
  const std::vector<int32_t> history(static_cast<size_t>(layout.history_length), 0);
  state->StartReplay(tokens - window_tokens, history);
  const RandomRows window(layout.window_format, layout.head_dim, random);
  TRY_STATUS(FillWindows(*state, window_tokens, window, random));
  return state;
}

}  // namespace minke

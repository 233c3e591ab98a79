// Runs over one growing sequence, for the tests of snapshots, forks and replay.
#pragma once

#include <cstring>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/model/golden_model.h"

namespace minke::testing {

// Tokens read after a restore: a pair and a half, twice.
inline constexpr int64_t kContinued = 5;

inline bool SameBits(View<const float> a, View<const float> b) {
  if (a.rows != b.rows || a.cols != b.cols) return false;
  for (int64_t row = 0; row < a.rows; ++row) {
    if (std::memcmp(a.Row(row), b.Row(row), static_cast<size_t>(a.cols) * sizeof(float)) != 0) {
      return false;
    }
  }
  return true;
}

// One model with its worker thread and scratch.
class CacheBench {
 public:
  explicit CacheBench(const std::string& set)
      : model_(LoadGoldenModel(set, Numerics::Official(), FastKernels())),
        tokens_(GoldenPrompt(set)),
        layout_(model_->config(), model_->numerics()) {}

  const Model& model() const { return *model_; }
  const std::vector<int32_t>& tokens() const { return tokens_; }
  const StateLayout& layout() const { return layout_; }
  int64_t window() const { return layout_.window_slots; }

  // Reads tokens [state.length(), end) in chunks; logits of all rows that run the decoder, which
  // are those from position decoder_begin on.
  Matrix<float> Run(SequenceState& state, std::span<const int32_t> tokens, int64_t end,
                    int64_t chunk = 1 << 20, int64_t decoder_begin = 0) {
    const int64_t start = state.length();
    const int64_t first_row = std::max(start, decoder_begin);
    Matrix<float> logits(end - first_row, model_->config().vocab_size);
    int64_t written = 0;
    while (state.length() < end) {
      const int64_t begin = state.length();
      const int64_t count = std::min(chunk, end - begin);
      const int64_t skipped = std::clamp<int64_t>(decoder_begin - begin, 0, count);
      const ForwardRows call{
          .state = &state,
          .tokens = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
          .logits_from = skipped,
          .decoder_from = skipped};
      const Status status =
          model_->Forward({&call, 1}, logits.view().Rows(written, count - skipped), pool_, arena_);
      EXPECT_TRUE(status.has_value()) << status.error().message;
      written += count - skipped;
      state.Commit(count);
    }
    return logits;
  }

  static std::vector<std::byte> Snapshot(const SequenceState& state) {
    std::vector<std::byte> bytes(static_cast<size_t>(state.snapshot_bytes()));
    state.WriteSnapshot(bytes.data());
    return bytes;
  }
  static std::vector<BlockRef> FullBlocks(const SequenceState& state) {
    const auto full = static_cast<size_t>(state.length() / kBlockTokens);
    return {state.blocks().begin(), state.blocks().begin() + static_cast<std::ptrdiff_t>(std::min(
                                                                 full, state.blocks().size()))};
  }
  std::unique_ptr<SequenceState> Restore(std::span<const std::byte> snapshot,
                                         std::vector<BlockRef> blocks) {
    auto state = model_->NewSequence();
    const Status status = state->RestoreSnapshot(snapshot, std::move(blocks));
    EXPECT_TRUE(status.has_value()) << status.error().message;
    return state;
  }

 private:
  std::unique_ptr<Model> model_;
  std::vector<int32_t> tokens_;
  StateLayout layout_;
  ThreadPool pool_{1};
  Arena arena_;
};

}  // namespace minke::testing

// One call over rows of several timelines: by the model, or by what stands in for it.
#include <cstring>

#include "engine/engine.h"
#include "engine/engine_impl.h"

namespace minke {
namespace {

// Rows of zeros where the model would have left its own, so that what is kept is the same bytes
// however a timeline came to be.
void ZeroRows(SequenceState& state, int64_t count) {
  const StateLayout& layout = state.layout();
  for (int64_t source = 0; source < static_cast<int64_t>(layout.ratios.size()); ++source) {
    const int64_t end = state.RowCount(source, state.length() + count);
    for (int64_t row = state.RowCount(source, state.length()); row < end; ++row) {
      if (!state.WritesRow(source, row)) continue;
      std::memset(state.CompressedRow(source, row), 0,
                  static_cast<size_t>(layout.compressed_row_bytes));
      std::memset(state.IndexRow(source, row), 0, static_cast<size_t>(layout.index_row_bytes));
    }
  }
}

}  // namespace

Status Engine::Impl::RunSubstitute(std::span<const StepRows> parts, View<float> logits) {
  std::vector<ForwardSequence> sequences;
  int64_t written = 0;
  for (const StepRows& part : parts) {
    const auto count = static_cast<int64_t>(part.tokens.size());
    if (!part.state->Begin(count, part.decoder_from)) {
      return Fail(ErrorCode::kLimit, "The memory for rows of the context (--kv-ram) has no room.");
    }
    ZeroRows(*part.state, count);
    std::span<float> wanted;
    if (part.want_logits) {
      wanted = {logits.Row(written++), static_cast<size_t>(logits.cols)};
    }
    sequences.push_back({*part.timeline, count, wanted});
  }
  return options.forward(sequences);
}

Status Engine::Impl::RunStep(std::span<const StepRows> parts, View<float> logits) {
  for (const StepRows& part : parts) {
    part.timeline->insert(part.timeline->end(), part.tokens.begin(), part.tokens.end());
  }
  Status status;
  if (options.forward) {
    status = RunSubstitute(parts, logits);
  } else {
    std::vector<ForwardRows> forward;
    for (const StepRows& part : parts) {
      const auto count = static_cast<int64_t>(part.tokens.size());
      forward.push_back({.state = part.state,
                         .tokens = part.tokens,
                         .logits_from = part.want_logits ? count - 1 : count,
                         .decoder_from = part.decoder_from});
    }
    status = loaded.model->Forward(forward, logits, pool, arena);
  }
  for (const StepRows& part : parts) {
    if (status) {
      part.state->Commit(static_cast<int64_t>(part.tokens.size()));
      continue;
    }
    part.timeline->resize(part.timeline->size() - part.tokens.size());
    CHECK(part.state->Begin(0), "a call of no rows needs no room");  // forgets what was begun
  }
  return status;
}

}  // namespace minke

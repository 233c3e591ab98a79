// The model: embedding, 20 + 20 layers, head (architecture.md 3.1, 11). One call runs rows of
// several sequences together; every row's result is that of running it alone.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/result.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "model/layers.h"
#include "model/numerics.h"
#include "model/state.h"
#include "model/weight_copy.h"
#include "model/weight_stream.h"
#include "model/weights.h"

namespace minke {

// New tokens of one sequence in a call.
struct ForwardRows {
  SequenceState* state = nullptr;
  std::span<const int32_t> tokens;  // at least one; positions from state->length() on
  // Logits are wanted for rows [logits_from, tokens.size()); tokens.size() for none.
  int64_t logits_from = 0;
  // Rows before it stop below the decoder: they leave all global rows behind, and the window rows
  // of layers up to the split layer (6.2, variant V3). At most logits_from; 0 is the exact model.
  int64_t decoder_from = 0;
};

class Model {
  // Only Create can make one, yet make_unique may call the constructor.
  struct Passkey {};

 public:
  explicit Model(Passkey) {}
  // Takes the opened checkpoint. `engram_token_map`: token id -> compressed id, vocab_size entries
  // (text/compressed_vocabulary), empty where the config has no Engram. `kernels` outlives it.
  // `weights_ram_bytes`: the most that weights may take in memory, the others being read as they
  // are needed (WeightStream); 0: all of them are mapped.
  static Result<std::unique_ptr<Model>> Create(ModelConfig config, Checkpoint checkpoint,
                                               std::vector<int32_t> engram_token_map,
                                               Numerics numerics, const Kernels& kernels,
                                               int64_t weights_ram_bytes = 0);

  // Moves the weights from the mapping into memory of their own (weight_copy.h), which `pool`'s
  // workers use first; the bits stay the same. Before the first Forward(). REQUIRES no stream.
  // Errors: too little memory, files that cannot be read; then the model must not be used.
  Status CopyWeights(int64_t available_bytes, ThreadPool& pool, const CopyProgress& progress);

  const ModelConfig& config() const { return config_; }
  const ModelWeights& weights() const { return weights_; }
  const Checkpoint& checkpoint() const { return checkpoint_; }
  const Numerics& numerics() const { return numerics_; }
  const ModelTables& tables() const { return tables_; }
  const Kernels& kernels() const { return *kernels_; }
  // Null where all weights are mapped or copied.
  const WeightStream* stream() const { return stream_.get(); }

  // A sequence whose blocks come from the pool, or from memory without a budget. A state outlives
  // neither pool nor model.
  std::unique_ptr<SequenceState> NewSequence(BlockPool& pool) const;
  std::unique_ptr<SequenceState> NewSequence() const;

  // Empty where decoder_from and replay may be used; otherwise why not (6.2: what must hold for
  // prefill to stop early).
  const std::string& replay_obstacle() const { return replay_obstacle_; }
  // The Engram history behind `tokens` older ones: history_length compressed ids.
  std::vector<int32_t> EngramHistory(std::span<const int32_t> tokens) const;

  // Computes the rows; commits nothing: call state->Commit(n) afterwards. logits: [sum of wanted
  // rows, vocab_size], sequences in order. Errors: token id outside the vocabulary, a context
  // above max_position_embeddings, an empty row list, a pool without room; with a stream, the
  // disk's. `arena` is scratch, reused across calls.
  Status Forward(std::span<const ForwardRows> rows, View<float> logits, ThreadPool& pool,
                 Arena& arena, const Diagnostics* diagnostics = nullptr) const;

 private:
  ModelConfig config_;
  Checkpoint checkpoint_;
  std::unique_ptr<WeightStream> stream_;  // keeps what weights_ point to, where there is one
  PageMemory copied_;                     // the same for CopyWeights()
  ModelWeights weights_;
  ModelTables tables_;
  Numerics numerics_;
  const Kernels* kernels_ = nullptr;
  std::string replay_obstacle_;
  std::unique_ptr<BlockPool> unbounded_pool_;  // for NewSequence()
};

}  // namespace minke

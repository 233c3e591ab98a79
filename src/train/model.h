// The model of architecture.md as a differentiable function in float32, over whole rows
// [B, T]. Parameter names are those of the checkpoint's catalogue (model/weights.h), so that
// exporting is writing them down.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/result.h"
#include "model/config.h"
#include "train/row.h"

namespace minke::train {

// Which rule updates a parameter.
enum class ParameterGroup {
  kMuon,         // matrices [out, in], or stacks of them [n, out, in]
  kAdam,         // vectors, gates, hyper-connections, index weights
  kEmbedding,    // embed and head
  kEngramTable,  // Engram rows
  kBias,         // the router's balancing bias: no gradient, see UpdateRouterBias()
};

struct Parameter {
  std::string name;     // of the catalogue
  torch::Tensor value;  // float32, contiguous
  ParameterGroup group = ParameterGroup::kMuon;
  bool structured = false;  // holds structure from the initialisation: learns slowly at first
  bool stacked = false;     // [experts, out, in], named "layers.L.ffn.experts.*.w1.weight"
};

// How compressed rows are stored, for the comparison of cache precisions. kHarsh: three levels
// under one scale per 16 channels (train/row_rounding.h).
enum class RowPrecision { kFloat, kBf16, kQ4K, kHarsh };

// What is rounded in the forward pass; gradients pass straight through.
struct Quantization {
  RowPrecision rows = RowPrecision::kFloat;
  bool index = false;        // Q4I on index keys and indexer queries
  bool window = false;       // Q8 on window rows
  bool activations = false;  // Q8 on the input of FP8 and FP4 products
  bool weights = false;      // FP8 and FP4 weights on their stored grid, BF16 for the rest
  static Quantization None() { return {}; }
  static Quantization All() { return {RowPrecision::kQ4K, true, true, true, true}; }
};

// Where the DSpark stages propose: the token behind `position` is given, those after it are
// drafted.
struct DraftAnchor {
  int64_t batch = 0;
  int64_t position = 0;
};

struct ForwardOptions {
  bool sparse = false;                // the index_topk best rows; else every visible row
  bool pool = false;                  // Reindex layers inside the candidate pool
  int64_t index_topk = 0;             // instead of the config's; 0: the config's
  int64_t candidate_topk_blocks = 0;  // as index_topk
  Quantization quantization;
  bool distill = false;  // compute the indexers' loss
  // The indexers alone get gradients, and their loss is ListLoss() instead of KL (train/indexer.h).
  bool indexers_only = false;
  double index_sharpness = 1;    // exponent of the attention that ListLoss() compares with
  bool mask_compressed = false;  // control: attention sees window and sink only
  bool engram = true;            // control: off leaves the Engram's contribution out
  // [B] or empty: query positions from which the decoder runs on a truncated window, as after a
  // replay prefill (6.2, V3); -1: exact.
  std::vector<int64_t> decoder_from;
  // The positions that IndexQuality counts, bool [B, T]; undefined: every sixteenth one from two
  // windows on. Each costs a dense attention of its own, so give few.
  torch::Tensor measured;
  // What the DSpark stages propose is computed for each of these. REQUIRES: draft stages, and
  // dspark_block_size + 1 tokens of the row behind each position.
  std::vector<DraftAnchor> drafts;
};

// Proposals of the DSpark stages, each with the row's own tokens before it (architecture.md 9.3).
struct DraftResult {
  torch::Tensor logits;      // [anchors, dspark_block_size, vocab_size]: of position + 2, + 3, ...
  torch::Tensor confidence;  // [anchors, dspark_block_size], before the sigmoid
  torch::Tensor expert_loads;  // [stages, dspark_n_routed_experts] float64, no gradient
};

// Fractions over the measured positions of a forward pass, for the progress line and the tests.
// They compare the lists that the index would select (sparse or not) with dense attention.
struct IndexQuality {
  int64_t layer = -1;           // the index source
  double queries = 0;           // measured positions with attention on compressed rows
  double top1_recall = 0;       // the row with most attention is among the selected ones
  double mass_recall = 0;       // attention mass on the selected rows
  double pool_recall = 0;       // the row with most attention is in the candidate pool; -1: no pool
  double pool_topk_recall = 0;  // share of the index_topk rows with most attention in it; -1: none
};

struct ForwardResult {
  torch::Tensor hidden;        // [B, T, hidden_size], after the final norm
  torch::Tensor index_loss;    // scalar; undefined unless distill
  torch::Tensor expert_loads;  // [layers, experts] float64 counts of this pass, no gradient
  std::vector<IndexQuality> index_quality;  // per index source; only with distill
  DraftResult drafts;                       // undefined tensors without anchors
};

enum class Initialisation {
  kStructured,  // with the look-up circuit of train/structured_initialisation.h
  kPlain,       // random values alone
};

// Thread safety: Forward() and Logits() of one model may run in one thread at a time; a model and
// its replicas may run at the same time, while nobody changes parameters.
class Model {
 public:
  // Initialised from one seed. `engram_token_map`: token id -> compressed id
  // (text/compressed_vocabulary), empty without Engram.
  static Result<std::unique_ptr<Model>> Create(
      const ModelConfig& config, std::vector<int32_t> engram_token_map, uint64_t seed,
      Initialisation initialisation = Initialisation::kStructured);
  ~Model();
  // Takes the parameters of a released-format checkpoint directory.
  Status Load(const std::string& model_dir);

  // A second model over the same parameter memory with gradients of its own, for a replica.
  std::unique_ptr<Model> Replica() const;

  const ModelConfig& config() const;
  // In the catalogue's order. Values are to be changed in place only: `value` is the leaf of the
  // graph, and replicas share its memory. A parameter that a pass did not use has no gradient
  // (those of the indexers without `distill`, the Engram's with `engram` off, biases always).
  std::vector<Parameter>& parameters();

  // ids: int64 [B, T], T at least the largest compress ratio. REQUIRES: with decoder_from, no
  // Engram above the last kv source.
  ForwardResult Forward(const torch::Tensor& ids, const ForwardOptions& options) const;
  // hidden [n, hidden_size] -> logits [n, vocab_size]. The head is rounded where weights are.
  torch::Tensor Logits(const torch::Tensor& hidden, const Quantization& quantization = {}) const;

  // bias += rate * sign(mean load - load), per layer (architecture.md 7), or per draft stage.
  void UpdateRouterBias(const torch::Tensor& expert_loads, double rate);
  void UpdateDraftRouterBias(const torch::Tensor& expert_loads, double rate);

 private:
  struct Impl;
  explicit Model(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minke::train

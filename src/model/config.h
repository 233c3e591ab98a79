// config.json -> ModelConfig and the derived role of every layer (architecture.md 1).
// Field names are those of config.json.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace minke {

struct RopeScaling {
  double factor = 1.0;
  double beta_fast = 32.0;
  double beta_slow = 1.0;
  int64_t original_max_position_embeddings = 0;  // 0: no YaRN
};

struct VisionConfig {
  int64_t num_hidden_layers = 0;  // 0: the checkpoint has no vision tensors
  int64_t hidden_size = 0;
  int64_t num_attention_heads = 0;
  int64_t intermediate_size = 0;
  int64_t patch_size = 0;
  int64_t downsample_ratio = 0;
};

// What a layer does in CSA2 (architecture.md 1.3).
enum class LayerMode {
  kSwa,      // sliding window only
  kFull,     // owns compressor, index keys and indexer
  kReindex,  // own indexer over the source's index keys
  kReuse,    // takes rows and selection of earlier layers
};
const char* LayerModeName(LayerMode mode);  // "SWA", "Full", "Reindex", "Reuse"

struct LayerRole {
  LayerMode mode = LayerMode::kSwa;
  int64_t compress_ratio = 0;
  int64_t kv_source = -1;        // layer id whose compressed rows are read; -1: none
  int64_t index_source = -1;     // layer id whose selection is used; -1: none
  int64_t kv_source_index = -1;  // position of kv_source in kv_source_layer_ids
  bool publishes_candidates = false;
  bool uses_candidates = false;
  int64_t engram_index = -1;  // position in engram_layer_ids; -1: no Engram
};

struct ModelConfig {
  int64_t bos_token_id = 0;
  int64_t eos_token_id = 1;
  int64_t pad_token_id = 2;
  int64_t image_token_id = -1;

  int64_t vocab_size = 0;
  int64_t hidden_size = 0;
  int64_t moe_intermediate_size = 0;
  int64_t num_hidden_layers = 0;
  int64_t num_attention_heads = 0;
  int64_t head_dim = 0;
  int64_t qk_rope_head_dim = 0;
  int64_t q_lora_rank = 0;
  int64_t o_lora_rank = 0;
  int64_t o_groups = 0;
  double swiglu_limit = 0;
  double rms_norm_eps = 0;
  int64_t max_position_embeddings = 0;
  double rope_theta = 0;
  double compress_rope_theta = 0;
  RopeScaling rope_scaling;
  int64_t n_routed_experts = 0;
  int64_t n_shared_experts = 0;
  int64_t num_experts_per_tok = 0;
  bool norm_topk_prob = true;
  double routed_scaling_factor = 1.0;
  double gate_temp = 1.0;
  int64_t sliding_window = 0;
  std::vector<int64_t> compress_ratios;  // [num_hidden_layers], draft stages cut off
  std::vector<int64_t> kv_source_layer_ids;
  std::vector<int64_t> index_source_layer_ids;
  int64_t index_n_heads = 0;
  int64_t index_head_dim = 0;
  int64_t index_topk = 0;
  int64_t candidate_source_layer_id = -1;
  int64_t candidate_topk_blocks = 0;
  int64_t candidate_block_size = 0;
  int64_t hc_mult = 0;
  int64_t hc_sinkhorn_iters = 0;
  double hc_eps = 0;
  std::vector<int64_t> engram_layer_ids;
  std::vector<int64_t> engram_num_embeddings;
  int64_t engram_max_ngram_size = 0;
  int64_t engram_vocab_size = 0;
  int64_t engram_n_heads = 0;
  int64_t engram_head_dim = 0;
  int64_t engram_pad_token_id = 0;
  int64_t engram_compressed_vocab_size = 0;
  int64_t num_nextn_predict_layers = 0;
  int64_t dspark_block_size = 0;
  int64_t dspark_noise_token_id = 0;
  std::vector<int64_t> dspark_target_layer_ids;
  int64_t dspark_markov_rank = 0;
  int64_t dspark_n_routed_experts = 0;
  int64_t dspark_num_experts_per_tok = 0;
  VisionConfig vision;

  std::vector<LayerRole> layers;  // [num_hidden_layers], derived

  bool has_engram() const { return !engram_layer_ids.empty(); }
  // Columns of one Engram lookup: (engram_max_ngram_size - 1) * engram_n_heads.
  int64_t engram_columns() const { return (engram_max_ngram_size - 1) * engram_n_heads; }
  // Rows that a full candidate pool has at least: the last kept block may hold a single row, the
  // others are full (architecture.md 4.5).
  int64_t candidate_rows_min() const {
    return (candidate_topk_blocks - 1) * candidate_block_size + 1;
  }
  int64_t kv_source_ratio(int64_t kv_source_index) const {
    return compress_ratios[static_cast<size_t>(
        kv_source_layer_ids[static_cast<size_t>(kv_source_index)])];
  }
};

// Limits on what a config may ask for: several times the released sizes, and small enough that no
// product of them overflows and no catalogue of tensors grows beyond memory.
inline constexpr uint64_t kConfigBytesMax = uint64_t{1} << 20;
inline constexpr int64_t kVocabSizeMax = int64_t{1} << 22;  // tokens
inline constexpr int64_t kDimensionMax = int64_t{1} << 17;  // any row length
inline constexpr int64_t kLayerCountMax = 1024;
inline constexpr int64_t kHeadCountMax = 1024;
inline constexpr int64_t kExpertCountMax = 4096;
inline constexpr int64_t kContextTokensMax = int64_t{1} << 24;
inline constexpr int64_t kWindowTokensMax = int64_t{1} << 16;
inline constexpr int64_t kSelectedRowsMax = int64_t{1} << 16;  // index_topk
inline constexpr int64_t kCandidateBlocksMax = int64_t{1} << 20;
inline constexpr int64_t kCandidateBlockRowsMax = 4096;
inline constexpr int64_t kStreamCountMax = 16;  // hc_mult
inline constexpr int64_t kSinkhornItersMax = 1000;
inline constexpr int64_t kEngramRowsMax = int64_t{1} << 33;  // rows of one table
inline constexpr int64_t kEngramNgramMax = 8;                // tokens
inline constexpr int64_t kEngramHeadCountMax = 64;
inline constexpr int64_t kDraftStageCountMax = 16;
inline constexpr int64_t kDraftBlockTokensMax = 64;
inline constexpr int64_t kPatchSizeMax = 256;  // pixels
inline constexpr int64_t kDownsampleRatioMax = 16;
inline constexpr int64_t kModelTensorsMax = int64_t{1} << 20;

// Parses and validates config.json text; `what` names it in errors. Every size is bounded, every
// relation that the kernels rely on is checked (dimensions multiples of 32, sources ascending and
// of equal ratio, candidate capacity, known quantization formats ...).
Result<ModelConfig> ParseConfig(std::string_view text, std::string_view what);
Result<ModelConfig> LoadConfig(const std::string& path);

}  // namespace minke

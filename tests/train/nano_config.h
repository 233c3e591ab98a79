// The shape of the shipped model with small Engram tables, for tests that need no trained weights.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "model/config.h"

namespace minke::testing {

inline constexpr int64_t kNanoVocabulary = 2048;

// Every second token shares a compressed id with its neighbour.
inline std::vector<int32_t> NanoTokenMap() {
  std::vector<int32_t> map;
  for (int64_t id = 0; id < kNanoVocabulary; ++id) map.push_back(static_cast<int32_t>(id / 2));
  return map;
}

inline std::string NanoConfigText() {
  return R"({"architectures": ["DeepseekV41ForCausalLM"], "model_type": "deepseek_v41",
    "dtype": "bfloat16", "bos_token_id": 0, "eos_token_id": 1, "pad_token_id": 2,
    "image_token_id": 5,
    "quantization_config": {"quant_method": "fp8", "activation_scheme": "dynamic",
      "weight_block_size": [32, 32], "scale_fmt": "ue8m0", "expert_dtype": "fp4"},
    "text_config": {"model_type": "deepseek_v41_text", "vocab_size": 2048, "hidden_size": 128,
      "moe_intermediate_size": 64, "num_hidden_layers": 6, "num_attention_heads": 4,
      "num_key_value_heads": 1, "head_dim": 64, "qk_rope_head_dim": 16, "q_lora_rank": 96,
      "o_lora_rank": 64, "o_groups": 2, "hidden_act": "silu", "swiglu_limit": 10.0,
      "rms_norm_eps": 1e-06, "attention_bias": false, "tie_word_embeddings": false,
      "max_position_embeddings": 131072, "rope_theta": 100, "rope_scaling": null,
      "n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2,
      "scoring_func": "sqrtsoftplus", "topk_method": "noaux_tc", "norm_topk_prob": true,
      "routed_scaling_factor": 1.5, "sliding_window": 32, "compress_ratios": [0, 0, 2, 2, 1, 1],
      "compress_rope_theta": 160000, "kv_source_layer_ids": [2, 4],
      "index_source_layer_ids": [2, 4, 5], "index_n_heads": 4, "index_head_dim": 32,
      "index_topk": 32, "candidate_source_layer_id": 4, "candidate_topk_blocks": 24,
      "candidate_block_size": 4, "hc_mult": 4, "hc_sinkhorn_iters": 20, "hc_eps": 1e-06,
      "engram_layer_ids": [1], "engram_num_embeddings": [98490], "engram_max_ngram_size": 4,
      "engram_vocab_size": 16381, "engram_n_heads": 2, "engram_head_dim": 32,
      "engram_pad_token_id": 2, "engram_compressed_vocab_size": 1024,
      "num_nextn_predict_layers": 0, "dspark_block_size": 0, "dspark_noise_token_id": 0,
      "dspark_target_layer_ids": [], "dspark_markov_rank": 256, "dspark_n_routed_experts": 0,
      "dspark_num_experts_per_tok": 0},
    "vision_config": {"model_type": "deepseek_v41_vision", "num_hidden_layers": 0,
      "hidden_size": 1024, "num_attention_heads": 16, "intermediate_size": 2816, "patch_size": 14,
      "rope_theta": 10000.0, "downsample_ratio": 3, "max_image_tokens": 1024,
      "min_pixels": 295936, "max_wh_ratio": null}})";
}

inline ModelConfig NanoConfig() {
  Result<ModelConfig> config = ParseConfig(NanoConfigText(), "nano");
  CHECK(config.has_value(), config.error().message);
  return std::move(*config);
}

}  // namespace minke::testing

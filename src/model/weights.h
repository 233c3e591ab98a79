// One table of tensor names, shapes and dtypes from the config alone (architecture.md 2.2), and
// the binding of a checkpoint's tensors to fields. Nothing is dequantized, and nothing is copied
// but tensors whose place in the file breaks the alignment of their elements: everything else
// points into the mapped file.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "checkpoint/safetensors.h"
#include "core/result.h"
#include "core/tensor.h"
#include "kernels/kernels.h"
#include "model/config.h"

namespace minke {

// The part of the model that a tensor is counted under by `minke inspect`.
enum class ModelPart { kEmbedding, kBackbone, kRoutedExperts, kEngram, kDspark, kVision };
const char* ModelPartName(ModelPart part);

struct TensorSpec {
  std::string name;
  DType dtype = DType::kBf16;
  std::vector<int64_t> shape;  // as stored: packed FP4 has half its columns
  ModelPart part = ModelPart::kBackbone;
  int64_t parameters = 0;  // logical elements; 0 for scale tensors
};

// Every tensor of the complete checkpoint in a fixed order: backbone, draft stages (mtp.*) where
// num_nextn_predict_layers > 0, and vision tensors where vision.num_hidden_layers > 0.
std::vector<TensorSpec> TensorCatalogue(const ModelConfig& config);
int64_t TensorBytes(const TensorSpec& spec);
// Whether every token needs all of it: no expert, no Engram table, nothing but the text backbone.
bool IsDenseTensor(const TensorSpec& spec);

struct CompressorWeights {
  Weight wkv;                      // BF16 [head_dim, hidden]
  Weight wgate;                    // BF16 [head_dim, hidden]; data null at ratio 1
  std::span<const uint16_t> norm;  // [head_dim]
};

struct IndexerWeights {
  Weight wq_b;          // FP8 [index_n_heads * index_head_dim, q_lora_rank]
  Weight weights_proj;  // BF16 [index_n_heads, hidden]
  Weight wk;            // BF16 [index_head_dim, head_dim]; data null unless a kv source
  std::span<const uint16_t> k_norm;  // [index_head_dim]; empty unless a kv source
};

struct AttentionWeights {
  std::span<const float> attn_sink;   // [heads]
  Weight wq_a;                        // FP8 [q_lora_rank, hidden]
  std::span<const uint16_t> q_norm;   // [q_lora_rank]
  Weight wq_b;                        // FP8 [heads * head_dim, q_lora_rank]
  Weight wkv;                         // FP8 [head_dim, hidden]
  std::span<const uint16_t> kv_norm;  // [head_dim]
  Weight wo_a;                        // FP8 [o_groups * o_lora_rank, heads / o_groups * head_dim]
  Weight wo_b;                        // FP8 [hidden, o_groups * o_lora_rank]
  CompressorWeights compressor;       // kv sources only
  IndexerWeights indexer;             // index sources only
};

struct ExpertWeights {
  Weight w1;  // gate [moe_intermediate, hidden]
  Weight w2;  // down [hidden, moe_intermediate]
  Weight w3;  // up   [moe_intermediate, hidden]
};

struct MoeWeights {
  Weight gate;                         // BF16 [experts, hidden]
  std::span<const float> bias;         // [experts]
  std::span<const float> bias_vl;      // [experts], for image spans
  ExpertWeights shared_experts;        // FP8
  std::vector<ExpertWeights> experts;  // FP4
};

struct HyperConnectionWeights {
  Weight fn;                     // F32 [(2 + hc_mult) * hc_mult, hc_mult * hidden]
  std::span<const float> base;   // [(2 + hc_mult) * hc_mult]
  std::span<const float> scale;  // [3]
};

// Rows of E4M3 codes with one UE8M0 scale per row and 32 columns (architecture.md 2.3): no
// WeightFormat, because rows are looked up and never multiplied. Byte offsets need 64 bits.
struct EngramTable {
  const uint8_t* codes = nullptr;   // [rows, cols]
  const uint8_t* scales = nullptr;  // [rows, cols / 32]
  int64_t rows = 0;                 // engram_num_embeddings
  int64_t cols = 0;                 // engram_head_dim
};

struct EngramWeights {
  EngramTable embed;
  Weight wkv;                          // FP8 [(hc_mult + 1) * hidden, columns * engram_head_dim]
  std::span<const uint16_t> q_weight;  // [hc_mult * hidden]
  std::span<const uint16_t> k_weight;  // [hc_mult * hidden]
};

struct LayerWeights {
  std::span<const uint16_t> attn_norm;  // [hidden]
  std::span<const uint16_t> ffn_norm;   // [hidden]
  HyperConnectionWeights hc_attn;
  HyperConnectionWeights hc_ffn;
  AttentionWeights attn;
  MoeWeights ffn;
  EngramWeights engram;  // Engram layers only
};

struct ModelWeights {
  Weight embed;                    // BF16 [vocab, hidden]
  Weight head;                     // BF16 [vocab, hidden]
  std::span<const uint16_t> norm;  // [hidden]
  std::vector<LayerWeights> layers;
  // Copies of BF16 and F32 tensors that lie at odd addresses; other fields may point into them.
  std::vector<AlignedBytes> realigned;
};

// The released file has no such tensor; small checkpoints of other writers have a few. More than
// this is refused, because it would double the memory of the model.
inline constexpr uint64_t kRealignedBytesMax = uint64_t{256} << 20;

// Checks every tensor of the checkpoint against the catalogue: missing, extra, dtype, shape. Errors
// name the tensor, its file, what was expected and what was found; missing and extra ones are
// counted and listed. A checkpoint whose tensors lie at odd addresses passes here.
Status CheckTensors(const ModelConfig& config, const Checkpoint& checkpoint);

// CheckTensors(), and then binds the text backbone. The weights live as long as the checkpoint.
Result<ModelWeights> BindWeights(const ModelConfig& config, const Checkpoint& checkpoint);

}  // namespace minke

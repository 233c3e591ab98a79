// Which values are rounded where. Official() is the model; the others are diagnostic modes that
// run on the reference kernels (docs/numerics.md).
#pragma once

namespace minke {

struct Numerics {
  bool round_activations = true;    // bf16 at every boundary between modules
  bool quantize_gemm_input = true;  // Q8 on the input of FP8 and FP4 products
  bool window_fp8 = true;           // window KV rows packed in FP8
  bool compressed_fp4 = true;       // compressed KV rows packed in FP4
  bool index_fp4 = true;            // index keys packed in FP4, indexer queries on the same grid
  bool round_probabilities = true;  // attention probabilities in bf16
  bool round_scores = true;         // index scores in bf16

  // On a step whose ratio-2 group is still open, score against the last kv source's keys as the
  // reference's decode does (architecture.md 4.9). Off: the owner's keys.
  bool stale_index_keys = false;

  static Numerics Official() { return {}; }
  // No rounding of any activation or cache entry.
  static Numerics F32() { return {false, false, false, false, false, false, false, false}; }
  // Float32 activations, quantized caches and indexer vectors.
  static Numerics F32CacheQuant() { return {false, false, true, true, true, false, false, false}; }
};

}  // namespace minke

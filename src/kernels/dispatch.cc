#include "kernels/kernels.h"
#include "kernels/reference.h"

namespace minke {

const Kernels& ReferenceKernels() {
  static const Kernels kTable = {
      .name = "reference",
      .matmul = reference::Matmul,
      .round_bf16 = reference::RoundBf16Rows,
      .quantize_q8 = reference::QuantizeQ8,
      .quantize_q4i = reference::QuantizeQ4I,
      .rms_norm = reference::RmsNorm,
      .rope = reference::Rope,
      .hc_mix = reference::HcMix,
      .hc_collapse = reference::HcCollapse,
      .hc_expand = reference::HcExpand,
      .compressor_pool = reference::CompressorPool,
      .index_scores = reference::IndexScores,
      .select_candidates = reference::SelectCandidates,
      .select_topk = reference::SelectTopk,
      .sparse_attention = reference::SparseAttention,
      .router_select = reference::RouterSelect,
      .swiglu = reference::SwiGlu,
      .moe_combine = reference::MoeCombine,
      .engram_write = reference::EngramWrite,
  };
  return kTable;
}

const Kernels& FastKernels() {
  return ReferenceKernels();
}
const char* FastTargetName() {
  return "reference";
}

}  // namespace minke

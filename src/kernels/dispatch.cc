// The two tables and the choice of the SIMD target.
#include <cstdlib>
#include <string_view>

#include <hwy/highway.h>

#include "kernels/kernels.h"
#include "kernels/reference.h"
#include "kernels/self_check.h"
#include "kernels/simd.h"

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

namespace simd {

const char* ForceTarget(std::string_view name) {
  hwy::SetSupportedTargetsForTest(0);  // back to what the processor has
  // Highway does not ask for all that target-inl.h lets the compiler use.
  if (__builtin_cpu_supports("gfni") == 0) hwy::DisableTargets(HWY_AVX3_DL);
  const int64_t available = hwy::SupportedTargets() & HWY_TARGETS;
  for (int64_t left = available; left != 0; left &= left - 1) {
    const int64_t target = left & -left;
    if (name == hwy::TargetName(target)) hwy::SetSupportedTargetsForTest(target);
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return RunningTarget();
}

namespace {

// The table behind SIMD: entries that it does not name spend their time in exp and log, whose
// one float32 definition both tables share, or are too small to matter.
Kernels MakeTable() {
  Kernels table = ReferenceKernels();
  table.name = "simd";
  table.matmul = Matmul;
  table.round_bf16 = RoundBf16Rows;
  table.quantize_q8 = QuantizeQ8;
  table.quantize_q4i = QuantizeQ4I;
  table.rms_norm = RmsNorm;
  table.rope = Rope;
  table.hc_mix = HcMix;
  table.hc_collapse = HcCollapse;
  table.hc_expand = HcExpand;
  table.index_scores = IndexScores;
  table.select_candidates = SelectCandidates;
  table.select_topk = SelectTopk;
  table.sparse_attention = SparseAttention;
  table.moe_combine = MoeCombine;
  table.engram_write = EngramWrite;
  return table;
}

}  // namespace

const Kernels& TableFor(std::string_view name) {
  if (name == "reference") return ReferenceKernels();
  static const Kernels kTable = MakeTable();
  ForceTarget(name);
  return kTable;
}

}  // namespace simd

namespace {

struct Choice {
  const Kernels* table;
  const char* difference;  // the entry for which the SIMD table was turned down, or null
};

// MINKE_TARGET is read once: a table in use must not change under its user.
const Choice& ChosenTable() {
  static const Choice kChoice = [] {
    const char* name = std::getenv("MINKE_TARGET");
    const Kernels& table = simd::TableFor(name == nullptr ? "" : name);
    const char* difference = FirstDifference(table);
    return Choice{difference == nullptr ? &table : &ReferenceKernels(), difference};
  }();
  return kChoice;
}

}  // namespace

const Kernels& FastKernels() {
  return *ChosenTable().table;
}

const char* FastKernelsDifference() {
  return ChosenTable().difference;
}

const char* FastTargetName() {
  const Kernels& table = FastKernels();
  return &table == &ReferenceKernels() ? table.name : simd::RunningTarget();
}

}  // namespace minke

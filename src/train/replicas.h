// Replicas of a model that share its parameters: each takes its rows of a step in a thread of its
// own, and the gradients are added in the order of the replicas, so the result does not depend on
// which of them is done first. It does depend on how many there are, as any order of sums does.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/result.h"
#include "core/thread_pool.h"
#include "train/loss.h"
#include "train/model.h"
#include "train/row_source.h"

namespace minke::train {

inline constexpr int kReplicasMax = 64;
inline constexpr int64_t kMeasureSteps = 10;  // the index is measured once in so many steps

// What a step gave, over all replicas.
struct StepResult {
  LossSums sums;
  double loss = 0;                          // what the gradients are of
  double index_loss = 0;                    // mean over rows; 0 without distillation
  std::vector<IndexQuality> index_quality;  // per index source; only in steps that measure it
  torch::Tensor expert_loads;               // [layers, experts] float64
  DraftSums drafts;                         // of the DSpark stages, where the stage has them
  torch::Tensor draft_loads;                // [stages, experts] float64; undefined without them
  std::vector<torch::Tensor> gradients;     // of each parameter; undefined where there is none
};

class Replicas {
 public:
  // `model` outlives it. REQUIRES 1 <= count <= kReplicasMax.
  Replicas(Model& model, int count);

  int count() const { return static_cast<int>(parts_.size()); }
  ThreadPool& pool() { return pool_; }

  // Makes the rows of the plan and computes loss and gradients. What libtorch throws comes back as
  // an error.
  Result<StepResult> Run(const RowSource& source, const StageConfig& stage, const StepPlan& plan,
                         uint64_t seed, int64_t step);

 private:
  struct Part {
    Model* model = nullptr;
    std::unique_ptr<Model> own;  // of all but the first
    std::vector<Row> rows;
    std::vector<RowKind> kinds;
    std::vector<int64_t> decoder_from;
    std::vector<DraftAnchor> drafts;
    LossSums sums;
    double loss = 0;
    double index_loss = 0;
    std::vector<IndexQuality> index_quality;
    torch::Tensor expert_loads;
    DraftSums draft_sums;
    torch::Tensor draft_loads;
    Status status;
  };
  // Calls body(part) for every part, each in its thread, and returns the first error in order.
  template <typename Body>
  Status ForEachPart(const Body& body);
  void MakeRows(Part& part, size_t replica, const RowSource& source, const StageConfig& stage,
                const StepPlan& plan, uint64_t seed, int64_t step) const;
  static void RunPart(Part& part, const StageConfig& stage, const LossScales& scales,
                      int64_t step_rows, bool measure);
  void AddGradients(StepResult* result);
  void AddFigures(StepResult* result);

  std::vector<Part> parts_;
  ThreadPool pool_;
};

}  // namespace minke::train

#include "train/replicas.h"

#include <algorithm>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "train/blas_check.h"

namespace minke::train {
namespace {

// ids: int64 [rows, T].
torch::Tensor Ids(std::span<const Row> rows) {
  const auto count = static_cast<int64_t>(rows.size());
  const auto length = static_cast<int64_t>(rows[0].ids.size());
  torch::Tensor ids = torch::empty({count, length}, torch::kInt64);
  int64_t* out = ids.data_ptr<int64_t>();
  for (const Row& row : rows) {
    CHECK(static_cast<int64_t>(row.ids.size()) == length);
    out = std::copy(row.ids.begin(), row.ids.end(), out);
  }
  return ids;
}

// Where a value is looked up, which is what the index is for, bool [rows, T]: of each row the last
// `per_row` such positions.
torch::Tensor Measured(std::span<const Row> rows, int64_t per_row) {
  const auto length = static_cast<int64_t>(rows[0].ids.size());
  torch::Tensor measured = torch::zeros({static_cast<int64_t>(rows.size()), length}, torch::kBool);
  bool* out = measured.data_ptr<bool>();
  for (const Row& row : rows) {
    int64_t left = per_row;
    for (int64_t i = length - 1; i >= 0 && left > 0; --i) {
      if (row.targets[static_cast<size_t>(i)] != TargetKind::kFirst) continue;
      out[i] = true;
      --left;
    }
    out += length;
  }
  return measured;
}

// The queries of a stage that trains the indexers alone: where values are looked up, and a few
// others, for running text.
torch::Tensor MeasuredForLists(std::span<const Row> rows) {
  constexpr int64_t kPerRow = 64;  // of the first tokens of values
  constexpr int64_t kElsewhere = 3;
  torch::Tensor measured = Measured(rows, kPerRow);
  for (int64_t i = 1; i <= kElsewhere; ++i) {
    measured.select(1, measured.size(1) * i / (kElsewhere + 1)).fill_(true);
  }
  return measured;
}

void AddLoads(const torch::Tensor& part, torch::Tensor* sum) {
  if (!part.defined()) return;
  *sum = sum->defined() ? *sum + part : part.clone();
}

ForwardOptions OptionsOf(const StageConfig& stage) {
  ForwardOptions options;
  options.sparse = stage.sparse;
  options.pool = stage.pool;
  options.index_topk = stage.index_topk;
  options.candidate_topk_blocks = stage.candidate_topk_blocks;
  options.quantization = stage.quantization;
  options.distill = stage.distill > 0;
  options.indexers_only = stage.indexers_only;
  options.index_sharpness = stage.index_sharpness;
  return options;
}

}  // namespace

Replicas::Replicas(Model& model, int count) : parts_(static_cast<size_t>(count)), pool_(count, 0) {
  parts_[0].model = &model;
  for (size_t i = 1; i < parts_.size(); ++i) {
    parts_[i].own = model.Replica();
    parts_[i].model = parts_[i].own.get();
  }
}

template <typename Body>
Status Replicas::ForEachPart(const Body& body) {
  pool_.ParallelFor(count(), 1, [&](int64_t begin, int64_t end, int) {
    UseOneThreadPerCaller();  // libtorch keeps that number per thread
    for (int64_t i = begin; i < end; ++i) {
      Part& part = parts_[static_cast<size_t>(i)];
      part.status = {};
      // An exception may not leave a thread.
      try {
        body(part, static_cast<size_t>(i));
      } catch (const std::exception& error) {
        part.status = Fail(fmt::format("libtorch: {}", error.what()));
      }
    }
  });
  for (const Part& part : parts_) {
    if (!part.status) return part.status;
  }
  return {};
}

void Replicas::MakeRows(Part& part, size_t replica, const RowSource& source,
                        const StageConfig& stage, const StepPlan& plan, uint64_t seed,
                        int64_t step) const {
  part.rows.clear();
  part.kinds.clear();
  part.decoder_from.clear();
  part.drafts.clear();
  const int64_t window = part.model->config().sliding_window;
  for (size_t i = replica; i < plan.kinds.size(); i += parts_.size()) {
    const auto index = static_cast<int64_t>(i);
    part.rows.push_back(source.Make({seed, step, index, plan.kinds[i], plan.shape.length, &stage}));
    part.kinds.push_back(plan.kinds[i]);
    part.decoder_from.push_back(ReplayStart(stage, part.rows.back(), window, seed, step, index));
    if (!(stage.drafts > 0)) continue;
    const int64_t block = part.model->config().dspark_block_size;
    const auto row = static_cast<int64_t>(part.rows.size()) - 1;
    for (const int64_t at : DraftPlaces(plan.shape.length, block, seed, step, index)) {
      part.drafts.push_back({row, at});
    }
  }
}

void Replicas::RunPart(Part& part, const StageConfig& stage, const LossScales& scales,
                       int64_t step_rows, bool measure) {
  part.sums = {};
  part.loss = 0;
  part.index_loss = 0;
  part.index_quality.clear();
  part.expert_loads = torch::Tensor();
  part.draft_sums = {};
  part.draft_loads = torch::Tensor();
  for (Parameter& parameter : part.model->parameters()) parameter.value.mutable_grad().reset();
  if (part.rows.empty()) return;
  ForwardOptions options = OptionsOf(stage);
  if (stage.replay_share > 0) options.decoder_from = part.decoder_from;
  // Sparse attention teaches the index at the measured positions, so there they are always wanted.
  constexpr int64_t kPerRow = 4;
  if (options.distill) {
    options.measured = stage.indexers_only
                           ? MeasuredForLists(part.rows)
                           : Measured(part.rows, measure || stage.sparse ? kPerRow : 0);
  }
  options.drafts = part.drafts;
  ForwardResult result = part.model->Forward(Ids(part.rows), options);
  torch::Tensor loss;
  if (!stage.indexers_only) {
    loss = RowLoss(*part.model, result.hidden, stage.quantization, part.rows, part.kinds, scales,
                   &part.sums);
  }
  const double share = static_cast<double>(part.rows.size()) / static_cast<double>(step_rows);
  if (!part.drafts.empty()) {
    const torch::Tensor weighted =
        DraftLoss(result.drafts, part.drafts, part.rows, &part.draft_sums) * (stage.drafts * share);
    loss = loss.defined() ? loss + weighted : weighted;
    part.draft_loads = result.drafts.expert_loads;
  }
  if (result.index_loss.defined()) {
    part.index_loss = result.index_loss.item<double>() * share;
    const torch::Tensor weighted = result.index_loss * (stage.distill * share);
    loss = loss.defined() ? loss + weighted : weighted;
  }
  part.index_quality = std::move(result.index_quality);
  part.expert_loads = result.expert_loads;
  if (!loss.defined()) return;
  part.loss = loss.item<double>();
  loss.backward();
}

void Replicas::AddGradients(StepResult* result) {
  const size_t count = parts_[0].model->parameters().size();
  result->gradients.resize(count);
  pool_.ParallelFor(static_cast<int64_t>(count), 1, [&](int64_t begin, int64_t end, int) {
    const torch::NoGradGuard no_grad;
    for (auto i = static_cast<size_t>(begin); i < static_cast<size_t>(end); ++i) {
      torch::Tensor sum;
      for (Part& part : parts_) {
        torch::Tensor& gradient = part.model->parameters()[i].value.mutable_grad();
        if (!gradient.defined()) continue;
        if (!sum.defined()) {
          sum = gradient.contiguous();
        } else {
          sum.add_(gradient);
        }
      }
      result->gradients[i] = sum;
    }
  });
}

void Replicas::AddFigures(StepResult* result) {
  for (Part& part : parts_) {
    result->sums.Add(part.sums);
    result->loss += part.loss;
    result->index_loss += part.index_loss;
    result->drafts.Add(part.draft_sums);
    AddLoads(part.expert_loads, &result->expert_loads);
    AddLoads(part.draft_loads, &result->draft_loads);
    result->index_quality.resize(std::max(result->index_quality.size(), part.index_quality.size()));
    for (size_t i = 0; i < part.index_quality.size(); ++i) {
      const IndexQuality& from = part.index_quality[i];
      IndexQuality& to = result->index_quality[i];
      to.layer = from.layer;
      to.queries += from.queries;
      to.top1_recall += from.queries * from.top1_recall;
      to.mass_recall += from.queries * from.mass_recall;
      to.pool_recall += from.queries * from.pool_recall;
      to.pool_topk_recall += from.queries * from.pool_topk_recall;
    }
  }
  std::erase_if(result->index_quality,
                [](const IndexQuality& entry) { return !(entry.queries > 0); });
  for (IndexQuality& quality : result->index_quality) {
    quality.top1_recall /= quality.queries;
    quality.mass_recall /= quality.queries;
    quality.pool_recall /= quality.queries;
    quality.pool_topk_recall /= quality.queries;
  }
}

Result<StepResult> Replicas::Run(const RowSource& source, const StageConfig& stage,
                                 const StepPlan& plan, uint64_t seed, int64_t step) {
  TRY_STATUS(ForEachPart([&](Part& part, size_t replica) {
    MakeRows(part, replica, source, stage, plan, seed, step);
  }));
  LossWeights weights;
  for (const Part& part : parts_) {
    for (const Row& row : part.rows) weights.Add(row);
  }
  const LossScales scales = ScalesOf(weights, stage.weights.text);
  const bool measure = step % kMeasureSteps == 0;
  TRY_STATUS(ForEachPart(
      [&](Part& part, size_t) { RunPart(part, stage, scales, plan.shape.count, measure); }));
  StepResult result;
  AddFigures(&result);
  AddGradients(&result);
  return result;
}

}  // namespace minke::train

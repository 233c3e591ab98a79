// Mixture of experts (architecture.md 7): gate, routed and shared experts, combination. Rows are
// gathered per expert so that an expert's weights are read once for all rows that chose it; every
// row's arithmetic is the same as alone.
#include <algorithm>
#include <cstring>

#include "model/layers.h"
#include "model/weight_stream.h"

namespace minke {

namespace {

// Rows of a call that say which experts the next layer is likely to need.
constexpr int64_t kPredictingRowsMax = 16;

struct Routing {
  View<int32_t> experts;  // [T, k], best first
  View<float> weights;    // [T, k]
};

// A bias under which exactly `experts` are taken, in their order. Scores lie far below the steps.
void ForceBias(std::span<const int32_t> experts, std::span<float> bias) {
  constexpr float kStep = 1.0e6f;
  std::fill(bias.begin(), bias.end(), -kStep);
  float value = kStep * static_cast<float>(experts.size());
  for (int32_t expert : experts) {
    bias[static_cast<size_t>(expert)] = value;
    value -= kStep;
  }
}

// layer -1: nobody may overwrite the selection.
Routing Route(StepContext& step, int64_t layer, const MoeWeights& weights, View<const float> x) {
  const ModelConfig& config = step.config;
  const int64_t count = config.num_experts_per_tok;
  Routing routing{step.arena.Allocate<int32_t>(x.rows, count),
                  step.arena.Allocate<float>(x.rows, count)};
  View<float> logits = step.arena.Allocate<float>(x.rows, config.n_routed_experts);
  LinearF32(step, weights.gate, x, logits);
  const RouterParameters parameters{
      .selected_count = count,
      .routed_scaling_factor = static_cast<float>(config.routed_scaling_factor),
      .gate_temp = static_cast<float>(config.gate_temp),
      .norm_topk_prob = config.norm_topk_prob};
  for (int64_t row = 0; row < x.rows; ++row) {
    const std::span<const float> row_logits{logits.Row(row), static_cast<size_t>(logits.cols)};
    const std::span<int32_t> experts{routing.experts.Row(row), static_cast<size_t>(count)};
    const std::span<float> row_weights{routing.weights.Row(row), static_cast<size_t>(count)};
    step.kernels.router_select(row_logits, weights.bias, parameters, experts, row_weights);
    if (layer >= 0 && step.diagnostics != nullptr && step.diagnostics->force_experts) {
      step.diagnostics->force_experts(layer, step.positions[static_cast<size_t>(row)], experts);
      std::vector<float> bias(static_cast<size_t>(config.n_routed_experts));
      ForceBias(experts, bias);
      step.kernels.router_select(row_logits, bias, parameters, experts, row_weights);
    }
  }
  return routing;
}

// y = w2( weight * silu(w1 x) * (w3 x) ) with the five rounding points of 7.2.
void Expert(StepContext& step, const ExpertWeights& weights, View<const float> x,
            std::span<const float> row_weights, View<float> y) {
  ArenaScope scope(step.arena);
  View<float> gate = step.arena.Allocate<float>(x.rows, weights.w1.rows);
  View<float> up = step.arena.Allocate<float>(x.rows, weights.w3.rows);
  Linear(step, weights.w1, x, gate);
  Linear(step, weights.w3, x, up);
  step.kernels.swiglu(gate, up, row_weights, static_cast<float>(step.config.swiglu_limit),
                      step.numerics.round_activations, gate, step.pool);
  Linear(step, weights.w2, gate, y);
}

// The slots of a call by ascending expert; slot t * k + j is the j-th expert of token t.
std::span<const int32_t> SlotsByExpert(StepContext& step, const Routing& routing) {
  const int64_t slot_count = routing.experts.rows * routing.experts.cols;
  std::span<int32_t> slots = step.arena.AllocateSpan<int32_t>(slot_count);
  for (int64_t slot = 0; slot < slot_count; ++slot) {
    slots[static_cast<size_t>(slot)] = static_cast<int32_t>(slot);
  }
  const int32_t* experts = routing.experts.data;
  std::sort(slots.begin(), slots.end(), [experts](int32_t a, int32_t b) {
    return experts[a] != experts[b] ? experts[a] < experts[b] : a < b;
  });
  return slots;
}

std::vector<int32_t> DistinctExperts(const Routing& routing, std::span<const int32_t> slots) {
  std::vector<int32_t> distinct;
  for (const int32_t slot : slots) {
    const int32_t expert = routing.experts.data[slot];
    if (distinct.empty() || distinct.back() != expert) distinct.push_back(expert);
  }
  return distinct;
}

// One expert for all rows that chose it. slots: SlotsByExpert(). routed [T * k, d]: row t * k + j
// is the output of the j-th expert of token t, so the order of experts changes nothing.
void RoutedExpert(StepContext& step, int32_t expert, const ExpertWeights& weights,
                  View<const float> x, const Routing& routing, std::span<const int32_t> all_slots,
                  View<float> routed) {
  ArenaScope scope(step.arena);
  const int64_t per_token = routing.experts.cols;
  const int32_t* experts = routing.experts.data;
  const auto begin =
      std::lower_bound(all_slots.begin(), all_slots.end(), expert,
                       [experts](int32_t slot, int32_t value) { return experts[slot] < value; });
  auto end = begin;
  while (end != all_slots.end() && experts[*end] == expert) ++end;
  const std::span<const int32_t> slots(begin, end);
  const auto rows = static_cast<int64_t>(slots.size());
  View<float> gathered = step.arena.Allocate<float>(rows, x.cols);
  View<float> output = step.arena.Allocate<float>(rows, x.cols);
  std::span<float> row_weights = step.arena.AllocateSpan<float>(rows);
  const auto row_bytes = static_cast<size_t>(x.cols) * sizeof(float);
  for (int64_t row = 0; row < rows; ++row) {
    const int32_t slot = slots[static_cast<size_t>(row)];
    std::memcpy(gathered.Row(row), x.Row(slot / per_token), row_bytes);
    row_weights[static_cast<size_t>(row)] = routing.weights.data[slot];
  }
  Expert(step, weights, gathered, row_weights, output);
  for (int64_t row = 0; row < rows; ++row) {
    std::memcpy(routed.Row(slots[static_cast<size_t>(row)]), output.Row(row), row_bytes);
  }
}

// Begins to read what the next layer is likely to choose: what its router says of this layer's
// input, which differs from its own by one layer's share. Only the reads depend on it.
void PrefetchNext(StepContext& step, int64_t layer, View<const float> x) {
  if (step.next_moe == nullptr) return;
  ArenaScope scope(step.arena);
  const View<const float> rows = x.Rows(0, std::min(x.rows, kPredictingRowsMax));
  const Routing routing = Route(step, -1, *step.next_moe, rows);
  std::vector<int32_t> likely;
  // Every row's best expert, then every row's second, ...
  for (int64_t rank = 0; rank < routing.experts.cols; ++rank) {
    for (int64_t row = 0; row < rows.rows; ++row) {
      const int32_t expert = routing.experts.Row(row)[rank];
      if (std::find(likely.begin(), likely.end(), expert) == likely.end()) likely.push_back(expert);
    }
  }
  step.stream->PrefetchExperts(layer + 1, likely);
}

// The k slots of one token by ascending expert id, the reference's order of addition (7.3).
void AscendingExperts(std::span<const int32_t> experts, std::span<int32_t> order) {
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int32_t>(i);
  std::sort(order.begin(), order.end(), [experts](int32_t a, int32_t b) {
    return experts[static_cast<size_t>(a)] < experts[static_cast<size_t>(b)];
  });
}

}  // namespace

Status Moe(StepContext& step, int64_t layer, const MoeWeights& weights, View<const float> x,
           View<float> y) {
  ArenaScope scope(step.arena);
  const int64_t per_token = step.config.num_experts_per_tok;
  const Routing routing = Route(step, layer, weights, x);
  step.Dump("router_idx", layer, routing.experts);
  step.Dump("router_w", layer, routing.weights);
  const std::span<const int32_t> by_expert = SlotsByExpert(step, routing);
  const std::vector<int32_t> experts = DistinctExperts(routing, by_expert);
  if (step.stream != nullptr) {
    step.stream->StartExperts(layer, experts);
    PrefetchNext(step, layer, x);
  }
  // In front of the routed ones, whose reads it hides.
  View<float> shared = step.arena.Allocate<float>(x.rows, x.cols);
  Expert(step, weights.shared_experts, x, {}, shared);
  View<float> routed = step.arena.Allocate<float>(x.rows * per_token, x.cols);
  const auto run = [&](int32_t expert, const ExpertWeights& expert_weights) {
    RoutedExpert(step, expert, expert_weights, x, routing, by_expert, routed);
  };
  if (step.stream != nullptr) {
    TRY_STATUS(step.stream->ForEachExpert(layer, weights, run));
  } else {
    for (const int32_t expert : experts) run(expert, weights.experts[static_cast<size_t>(expert)]);
  }
  View<int32_t> order = step.arena.Allocate<int32_t>(x.rows, per_token);
  step.pool.ParallelFor(
      x.rows, step.RowGrain(x.cols), [&](int64_t begin, int64_t end, int /*worker*/) {
        for (int64_t row = begin; row < end; ++row) {
          const std::span<int32_t> slots{order.Row(row), static_cast<size_t>(per_token)};
          AscendingExperts({routing.experts.Row(row), static_cast<size_t>(per_token)}, slots);
          step.kernels.moe_combine(routed.Rows(row * per_token, per_token), slots,
                                   {shared.Row(row), static_cast<size_t>(x.cols)},
                                   step.numerics.round_activations,
                                   {y.Row(row), static_cast<size_t>(x.cols)});
        }
      });
  return {};
}

}  // namespace minke

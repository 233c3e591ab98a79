#include "train/moe.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/result.h"
#include "train/expert.h"
#include "train/fake_quantization.h"
#include "train/gemm.h"
#include "train/router.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

RouterOptions RouterOf(const MoeOptions& options) {
  return {options.selected_count, static_cast<float>(options.routed_scaling_factor),
          static_cast<float>(options.gate_temp), options.norm_topk_prob};
}

// Slots (token * k + rank) in the order of their experts, and where every expert's begin.
struct SlotOrder {
  std::vector<int64_t> slots;
  std::vector<int64_t> begin;  // [experts + 1]
};

SlotOrder OrderSlots(const int32_t* experts, int64_t slot_count, int64_t expert_count) {
  SlotOrder order{std::vector<int64_t>(static_cast<size_t>(slot_count)),
                  std::vector<int64_t>(static_cast<size_t>(expert_count + 1))};
  for (int64_t slot = 0; slot < slot_count; ++slot) {
    ++order.begin[static_cast<size_t>(experts[slot] + 1)];
  }
  std::partial_sum(order.begin.begin(), order.begin.end(), order.begin.begin());
  std::vector<int64_t> next(order.begin.begin(), order.begin.end() - 1);
  for (int64_t slot = 0; slot < slot_count; ++slot) {
    order.slots[static_cast<size_t>(next[static_cast<size_t>(experts[slot])]++)] = slot;
  }
  return order;
}

void Gather(const float* rows, const SlotOrder& order, int64_t per_token, int64_t d, float* out) {
  for (size_t i = 0; i < order.slots.size(); ++i) {
    std::copy_n(rows + order.slots[i] / per_token * d, d, out + static_cast<int64_t>(i) * d);
  }
}

void ScatterAdd(const float* rows, const SlotOrder& order, int64_t per_token, int64_t d,
                float* out) {
  for (size_t i = 0; i < order.slots.size(); ++i) {
    float* target = out + order.slots[i] / per_token * d;
    const float* source = rows + static_cast<int64_t>(i) * d;
    for (int64_t c = 0; c < d; ++c) target[c] += source[c];
  }
}

// Saved tensors, in this order.
enum Saved {
  kX,
  kXq,
  kGate,
  kW1,
  kW2,
  kW3,
  kS1,
  kS2,
  kS3,
  kExperts,
  kWeights,
  kScores,
  kLogits,
  kA,
  kB,
  kH,
  kSharedA,
  kSharedB,
  kSharedH
};

float* Data(const Tensor& tensor) {
  return tensor.data_ptr<float>();
}

// The weights of expert e of a stack.
ExpertShape ShapeOf(const Tensor& w1, double limit, bool quantize) {
  return {w1.size(-1), w1.size(-2), static_cast<float>(limit), quantize};
}
ExpertMatrices MatricesOf(const Tensor& w1, const Tensor& w2, const Tensor& w3, int64_t e) {
  const int64_t floats = w1.size(-1) * w1.size(-2);
  return {Data(w1) + e * floats, Data(w2) + e * floats, Data(w3) + e * floats};
}
ExpertGradients GradientsOf(const Tensor& w1, const Tensor& w2, const Tensor& w3, int64_t e) {
  const int64_t floats = w1.size(-1) * w1.size(-2);
  return {Data(w1) + e * floats, Data(w2) + e * floats, Data(w3) + e * floats};
}

struct MoeFunction : torch::autograd::Function<MoeFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& x, const Tensor& gate,
                        const Tensor& w1, const Tensor& w2, const Tensor& w3, const Tensor& s1,
                        const Tensor& s2, const Tensor& s3, const Tensor* bias,
                        const MoeOptions* given, const Tensor* loads) {
    const MoeOptions& options = *given;
    const int64_t tokens = x.size(0);
    const int64_t d = x.size(1);
    const int64_t inner = w1.size(1);
    const int64_t expert_count = gate.size(0);
    const int64_t k = options.selected_count;
    Tensor xq = x;
    if (options.quantize_activations) {
      xq = torch::empty_like(x);
      RoundRows(RowRounding::kFp8Group32, Data(x), tokens, d, Data(xq));
    }
    Tensor logits = torch::empty({tokens, expert_count});
    GemmNt(tokens, expert_count, d, {Data(x), d}, {Data(gate), d}, 0.0f,
           {Data(logits), expert_count});
    Tensor experts = torch::empty({tokens, k}, torch::kInt32);
    Tensor weights = torch::empty({tokens, k});
    Tensor scores = torch::empty({tokens, k});
    RouteTokens(RouterOf(options), Data(logits), Data(*bias), tokens, expert_count,
                experts.data_ptr<int32_t>(), Data(scores), Data(weights));
    const SlotOrder order = OrderSlots(experts.data_ptr<int32_t>(), tokens * k, expert_count);
    std::vector<float> gathered(static_cast<size_t>(tokens * k * d));
    std::vector<float> outputs(static_cast<size_t>(tokens * k * d));
    Gather(Data(xq), order, k, d, gathered.data());
    Tensor a = torch::empty({tokens * k, inner});
    Tensor b = torch::empty_like(a);
    Tensor h = torch::empty_like(a);
    const ExpertShape shape = ShapeOf(w1, options.swiglu_limit, options.quantize_activations);
    std::vector<float> row_weights(static_cast<size_t>(tokens * k));
    for (size_t i = 0; i < row_weights.size(); ++i) {
      row_weights[i] = Data(weights)[order.slots[i]];
    }
    for (int64_t e = 0; e < expert_count; ++e) {
      const int64_t first = order.begin[static_cast<size_t>(e)];
      const int64_t rows = order.begin[static_cast<size_t>(e + 1)] - first;
      if (loads->defined()) loads->data_ptr<double>()[e] += static_cast<double>(rows);
      ExpertForward(shape, MatricesOf(w1, w2, w3, e), gathered.data() + first * d, rows,
                    row_weights.data() + first,
                    {Data(a) + first * inner, Data(b) + first * inner, Data(h) + first * inner},
                    outputs.data() + first * d);
    }
    Tensor y = torch::empty_like(x);
    Tensor shared_a = torch::empty({tokens, s1.size(0)});
    Tensor shared_b = torch::empty_like(shared_a);
    Tensor shared_h = torch::empty_like(shared_a);
    ExpertForward(ShapeOf(s1, options.swiglu_limit, options.quantize_activations),
                  MatricesOf(s1, s2, s3, 0), Data(xq), tokens, nullptr,
                  {Data(shared_a), Data(shared_b), Data(shared_h)}, Data(y));
    ScatterAdd(outputs.data(), order, k, d, Data(y));
    context->save_for_backward({x, xq, gate, w1, w2, w3, s1, s2, s3, experts, weights, scores,
                                logits, a, b, h, shared_a, shared_b, shared_h});
    context->saved_data["factor"] = options.routed_scaling_factor;
    context->saved_data["temp"] = options.gate_temp;
    context->saved_data["norm"] = options.norm_topk_prob;
    context->saved_data["limit"] = options.swiglu_limit;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Tensor dy = gradients[0].contiguous();
    const double limit = context->saved_data["limit"].toDouble();
    variable_list out(11);
    out[0] = torch::empty_like(saved[kX]);
    for (size_t i = 1; i < 8; ++i) out[i] = torch::zeros_like(saved[kGate + i - 1]);
    const int64_t tokens = dy.size(0);
    const int64_t d = dy.size(1);
    std::vector<float> dweights(static_cast<size_t>(saved[kExperts].numel()));
    ExpertBackward(ShapeOf(saved[kS1], limit, false),
                   MatricesOf(saved[kS1], saved[kS2], saved[kS3], 0), Data(saved[kXq]), tokens,
                   nullptr, {Data(saved[kSharedA]), Data(saved[kSharedB]), Data(saved[kSharedH])},
                   Data(dy), GradientsOf(out[5], out[6], out[7], 0), Data(out[0]), nullptr);
    RoutedBackward(saved, dy, limit, out, dweights);
    const RouterOptions router{saved[kExperts].size(1),
                               static_cast<float>(context->saved_data["factor"].toDouble()),
                               static_cast<float>(context->saved_data["temp"].toDouble()),
                               context->saved_data["norm"].toBool()};
    const int64_t expert_count = saved[kGate].size(0);
    std::vector<float> dlogits(static_cast<size_t>(tokens * expert_count));
    RouteTokensBackward(router, Data(saved[kLogits]), saved[kExperts].data_ptr<int32_t>(),
                        Data(saved[kScores]), dweights.data(), tokens, expert_count,
                        dlogits.data());
    GemmNn(tokens, d, expert_count, {dlogits.data(), expert_count}, {Data(saved[kGate]), d}, 1.0f,
           {Data(out[0]), d});
    GemmTn(expert_count, d, tokens, {dlogits.data(), expert_count}, {Data(saved[kX]), d}, 0.0f,
           {Data(out[1]), d});
    return out;
  }

  // The routed experts' share of the gradients, and those of the router's weights by slot.
  static void RoutedBackward(const variable_list& saved, const Tensor& dy, double limit,
                             variable_list& out, std::vector<float>& dweights) {
    const int64_t k = saved[kExperts].size(1);
    const int64_t d = dy.size(1);
    const int64_t inner = saved[kW1].size(1);
    const int64_t expert_count = saved[kGate].size(0);
    const SlotOrder order =
        OrderSlots(saved[kExperts].data_ptr<int32_t>(), saved[kExperts].numel(), expert_count);
    const size_t slot_count = order.slots.size();
    std::vector<float> gathered(slot_count * static_cast<size_t>(d));
    std::vector<float> dgathered(gathered.size());
    std::vector<float> dinputs(gathered.size());
    Gather(Data(saved[kXq]), order, k, d, gathered.data());
    Gather(Data(dy), order, k, d, dgathered.data());
    std::vector<float> row_weights(slot_count);
    std::vector<float> row_gradients(slot_count);
    for (size_t i = 0; i < slot_count; ++i) {
      row_weights[i] = Data(saved[kWeights])[order.slots[i]];
    }
    for (int64_t e = 0; e < expert_count; ++e) {
      const int64_t first = order.begin[static_cast<size_t>(e)];
      const int64_t rows = order.begin[static_cast<size_t>(e + 1)] - first;
      ExpertBackward(ShapeOf(saved[kW1], limit, false),
                     MatricesOf(saved[kW1], saved[kW2], saved[kW3], e), gathered.data() + first * d,
                     rows, row_weights.data() + first,
                     {Data(saved[kA]) + first * inner, Data(saved[kB]) + first * inner,
                      Data(saved[kH]) + first * inner},
                     dgathered.data() + first * d, GradientsOf(out[2], out[3], out[4], e),
                     dinputs.data() + first * d, row_gradients.data() + first);
    }
    ScatterAdd(dinputs.data(), order, k, d, Data(out[0]));
    for (size_t i = 0; i < slot_count; ++i) {
      dweights[static_cast<size_t>(order.slots[i])] = row_gradients[i];
    }
  }
};

}  // namespace

Tensor Moe(const Tensor& x, const MoeTensors& tensors, const MoeOptions& options,
           const Tensor& loads) {
  CHECK(options.selected_count >= 1 && options.selected_count <= tensors.gate.size(0));
  return MoeFunction::apply(x.contiguous(), tensors.gate, tensors.w1, tensors.w2, tensors.w3,
                            tensors.shared_w1, tensors.shared_w2, tensors.shared_w3, &tensors.bias,
                            &options, &loads);
}

}  // namespace minke::train

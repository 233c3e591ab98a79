#include "train/loss.h"

#include <vector>

#include "core/result.h"

namespace minke::train {
namespace {

bool IsText(TargetKind kind) {
  return kind == TargetKind::kText || kind == TargetKind::kOther;
}

// A supervised position.
struct Target {
  size_t row = 0;
  size_t position = 0;
};

// Weighted cross-entropy whose gradient is computed along with it, in the memory of the
// probabilities: logits are the widest tensor of a step, and every further pass over them costs.
class WeightedCrossEntropy : public torch::autograd::Function<WeightedCrossEntropy> {
 public:
  // logits: [n, vocabulary]; targets: int64 [n]; factors: [n]. Returns the sum of factors times
  // negative log-likelihoods, and these [n].
  static torch::autograd::variable_list forward(torch::autograd::AutogradContext* context,
                                                const torch::Tensor& logits,
                                                const torch::Tensor& targets,
                                                const torch::Tensor& factors) {
    torch::Tensor log_probabilities = torch::log_softmax(logits, 1);
    const torch::Tensor index = targets.unsqueeze(1);
    const torch::Tensor nats = log_probabilities.gather(1, index).squeeze(1).neg();
    torch::Tensor gradient = log_probabilities.exp_();
    gradient.scatter_add_(1, index, torch::full_like(index, -1, torch::kFloat32));
    gradient.mul_(factors.unsqueeze(1));
    context->save_for_backward({gradient});
    context->mark_non_differentiable({nats});
    return {torch::dot(nats, factors), nats};
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    return {context->get_saved_variables()[0] * gradients[0], torch::Tensor(), torch::Tensor()};
  }
};

void Count(bool right, Accuracy* accuracy) {
  ++accuracy->total;
  accuracy->right += right ? 1 : 0;
}

void Collect(TargetKind target, RowKind kind, double weight, double nats, bool right,
             LossSums* sums) {
  const auto row = static_cast<size_t>(kind);
  if (IsText(target)) {
    sums->text += weight * nats;
    sums->text_weight += weight;
    sums->text_nats += nats;
    ++sums->text_tokens;
    return;
  }
  sums->recall += weight * nats;
  sums->recall_weight += weight;
  if (target == TargetKind::kFirst) Count(right, &sums->first[row]);
  if (target == TargetKind::kValue) Count(right, &sums->value[row]);
  if (target == TargetKind::kRestated) Count(right, &sums->restated);
}

}  // namespace

void LossSums::Add(const LossSums& other) {
  const auto add = [](const Accuracy& from, Accuracy* to) {
    to->right += from.right;
    to->total += from.total;
  };
  recall += other.recall;
  recall_weight += other.recall_weight;
  text += other.text;
  text_weight += other.text_weight;
  text_nats += other.text_nats;
  text_tokens += other.text_tokens;
  for (size_t kind = 0; kind < kRowKindCount; ++kind) {
    add(other.first[kind], &first[kind]);
    add(other.value[kind], &value[kind]);
  }
  add(other.restated, &restated);
}

void DraftSums::Add(const DraftSums& other) {
  nats += other.nats;
  proposals += other.proposals;
  right += other.right;
}

torch::Tensor DraftLoss(const DraftResult& drafts, std::span<const DraftAnchor> anchors,
                        std::span<const Row> rows, DraftSums* sums) {
  const int64_t block = drafts.logits.size(1);
  std::vector<int64_t> ids;
  for (const DraftAnchor& anchor : anchors) {
    const Row& row = rows[static_cast<size_t>(anchor.batch)];
    for (int64_t i = 0; i < block; ++i) {
      ids.push_back(row.ids[static_cast<size_t>(anchor.position + 2 + i)]);
    }
  }
  const torch::Tensor wanted = torch::tensor(ids, torch::kInt64);
  const torch::Tensor logits = drafts.logits.view({-1, drafts.logits.size(2)});
  const torch::Tensor nats =
      torch::log_softmax(logits, 1).gather(1, wanted.unsqueeze(1)).neg().mean();
  const torch::Tensor right = logits.detach().argmax(1).eq(wanted);
  const torch::Tensor doubt = torch::binary_cross_entropy_with_logits(drafts.confidence.view({-1}),
                                                                      right.to(torch::kFloat32));
  const auto count = static_cast<int64_t>(ids.size());
  sums->nats += nats.item<double>() * static_cast<double>(count);
  sums->proposals += count;
  sums->right += right.sum().item<int64_t>();
  return nats + doubt;
}

void LossWeights::Add(const Row& row) {
  for (size_t i = 0; i < row.weights.size(); ++i) {
    (IsText(row.targets[i]) ? text : recall) += row.weights[i];
  }
}

LossScales ScalesOf(const LossWeights& weights, double text_factor) {
  return {weights.recall > 0 ? 1 / weights.recall : 0,
          weights.text > 0 ? text_factor / weights.text : 0};
}

torch::Tensor RowLoss(const Model& model, const torch::Tensor& hidden,
                      const Quantization& quantization, std::span<const Row> rows,
                      std::span<const RowKind> kinds, const LossScales& scales, LossSums* sums) {
  const auto length = static_cast<size_t>(hidden.size(1));
  std::vector<Target> targets;
  std::vector<int64_t> positions;
  std::vector<int64_t> ids;
  std::vector<float> factors;
  for (size_t row = 0; row < rows.size(); ++row) {
    CHECK(rows[row].ids.size() == length && rows[row].weights.size() == length);
    for (size_t i = 0; i + 1 < length; ++i) {
      const float weight = rows[row].weights[i];
      if (!(weight > 0)) continue;
      const double scale = IsText(rows[row].targets[i]) ? scales.text : scales.recall;
      targets.push_back({row, i});
      positions.push_back(static_cast<int64_t>(row * length + i));
      ids.push_back(rows[row].ids[i + 1]);
      factors.push_back(static_cast<float>(weight * scale));
    }
  }
  if (targets.empty()) return {};
  const torch::Tensor chosen =
      hidden.reshape({-1, hidden.size(2)}).index_select(0, torch::tensor(positions, torch::kInt64));
  const torch::Tensor logits = model.Logits(chosen, quantization);
  const torch::Tensor wanted = torch::tensor(ids, torch::kInt64);
  const auto parts = WeightedCrossEntropy::apply(logits, wanted, torch::tensor(factors));
  const torch::Tensor right = logits.detach().argmax(1).eq(wanted);
  const float* const nats = parts[1].data_ptr<float>();
  const bool* const is_right = right.data_ptr<bool>();
  for (size_t i = 0; i < targets.size(); ++i) {
    const Row& row = rows[targets[i].row];
    const size_t position = targets[i].position;
    Collect(row.targets[position], kinds[targets[i].row], row.weights[position], nats[i],
            is_right[i], sums);
  }
  return parts[0];
}

}  // namespace minke::train

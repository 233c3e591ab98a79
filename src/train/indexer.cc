#include "train/indexer.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "core/result.h"
#include "kernels/kernels.h"
#include "train/index_scores.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kQueriesAtOnce = 32;
constexpr double kHiddenScore = -1e30;  // of rows that a query does not see

IndexScorer ScorerOf(const Tensor& queries, const Tensor& weights, const Tensor& keys,
                     int64_t ratio, int64_t batch) {
  const int64_t tokens = queries.size(1);
  return {.heads = weights.size(2),
          .dim = keys.size(2),
          .ratio = ratio,
          .queries = queries.data_ptr<float>() + batch * tokens * queries.size(2),
          .weights = weights.data_ptr<float>() + batch * tokens * weights.size(2),
          .keys = keys.data_ptr<float>() + batch * keys.size(1) * keys.size(2)};
}

int64_t Blocks(int64_t rows, int64_t block_size) {
  return block_size == 0 ? 0 : (rows + block_size - 1) / block_size;
}

// The list of one query, and its pool.
void SelectOne(std::span<const float> scores, const SelectionOptions& options,
               std::span<uint8_t> kept, std::span<int32_t> selected) {
  const Kernels& kernels = FastKernels();
  if (options.publishes) {
    kernels.select_candidates(scores, options.block_size, options.topk_blocks, kept);
  }
  kernels.select_topk(scores, options.restricted ? kept : std::span<uint8_t>(), options.block_size,
                      selected);
}

// The fraction of the `topk` rows with most attention that are in kept blocks.
double KeptShare(std::span<const float> attention, int64_t topk, std::span<const uint8_t> kept,
                 int64_t block_size) {
  std::vector<int64_t> rows(attention.size());
  std::iota(rows.begin(), rows.end(), 0);
  const auto count = std::min<int64_t>(topk, static_cast<int64_t>(rows.size()));
  std::partial_sort(rows.begin(), rows.begin() + count, rows.end(), [&](int64_t a, int64_t b) {
    const float left = attention[static_cast<size_t>(a)];
    const float right = attention[static_cast<size_t>(b)];
    return left != right ? left > right : a < b;
  });
  const auto found = std::count_if(rows.begin(), rows.begin() + count, [&](int64_t row) {
    return kept[static_cast<size_t>(row / block_size)] != 0;
  });
  return static_cast<double>(found) / static_cast<double>(count);
}

// The gradients of the summed loss, and the sum of the weights it is to be divided by.
struct LossFunction : torch::autograd::Function<LossFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& queries, const Tensor& weights,
                        const Tensor& keys, const Tensor* given_mass, const Tensor* given_selected,
                        int64_t ratio, int64_t first_position) {
    const Tensor& mass = *given_mass;
    const Tensor& selected = *given_selected;
    Tensor dqueries = torch::zeros_like(queries);
    Tensor dweights = torch::zeros_like(weights);
    Tensor dkeys = torch::zeros_like(keys);
    const int64_t tokens = queries.size(1);
    IndexLossSums sums;
    for (int64_t batch = 0; batch < queries.size(0); ++batch) {
      const IndexScorer scorer = ScorerOf(queries, weights, keys, ratio, batch);
      IndexLossPart part;
      part.mass_columns = mass.size(2);
      part.mass = mass.data_ptr<float>() + batch * tokens * part.mass_columns;
      if (selected.defined()) {
        part.selected = selected.data_ptr<int32_t>() + batch * tokens * part.mass_columns;
      }
      part.dqueries = dqueries.data_ptr<float>() + batch * tokens * queries.size(2);
      part.dweights = dweights.data_ptr<float>() + batch * tokens * weights.size(2);
      part.dkeys = dkeys.data_ptr<float>() + batch * keys.size(1) * keys.size(2);
      AddIndexLoss(scorer, std::min(first_position, tokens), tokens, part, sums);
    }
    const double weight = std::max(sums.weight, 1e-20);
    context->save_for_backward({dqueries, dweights, dkeys});
    context->saved_data["factor"] = 1.0 / weight;
    return torch::full({}, sums.loss / weight);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const double factor = context->saved_data["factor"].toDouble() * gradients[0].item<double>();
    return {saved[0] * factor, saved[1] * factor, saved[2] * factor, Tensor(),
            Tensor(),          Tensor(),          Tensor()};
  }
};

}  // namespace

Tensor MakePool(int64_t batch, int64_t tokens, int64_t rows, int64_t block_size) {
  return torch::zeros({batch, tokens, Blocks(rows, block_size)}, torch::kUInt8);
}

Tensor SelectRows(const IndexVectors& vectors, const SelectionOptions& options, Tensor& kept) {
  const torch::NoGradGuard no_gradient;
  const int64_t batch_count = vectors.queries.size(0);
  const int64_t tokens = vectors.queries.size(1);
  Tensor selected = torch::full({batch_count, tokens, options.topk}, -1, torch::kInt32);
  std::vector<float> scores;
  std::vector<float> scratch;
  for (int64_t batch = 0; batch < batch_count; ++batch) {
    const IndexScorer scorer =
        ScorerOf(vectors.queries, vectors.weights, vectors.keys, vectors.ratio, batch);
    for (int64_t first = 0; first < tokens; first += kQueriesAtOnce) {
      const int64_t count = std::min(kQueriesAtOnce, tokens - first);
      const int64_t stride = scorer.Score(first, count, scores, scratch);
      for (int64_t t = first; t < first + count; ++t) {
        const int64_t visible = vectors.visible(t);
        std::span<uint8_t> kept_row;
        if (options.publishes || options.restricted) {
          kept_row = {kept.data_ptr<uint8_t>() + (batch * tokens + t) * kept.size(2),
                      static_cast<size_t>(Blocks(visible, options.block_size))};
        }
        SelectOne({scores.data() + (t - first) * stride, static_cast<size_t>(visible)}, options,
                  kept_row,
                  {selected.data_ptr<int32_t>() + (batch * tokens + t) * options.topk,
                   static_cast<size_t>(options.topk)});
      }
    }
  }
  return selected;
}

Tensor IndexLoss(const IndexVectors& vectors, const Tensor& mass, const Tensor& selected,
                 int64_t first_position) {
  return LossFunction::apply(vectors.queries, vectors.weights, vectors.keys, &mass, &selected,
                             vectors.ratio, first_position);
}

Tensor MeasuredIndexLoss(const IndexVectors& vectors, const std::vector<MeasuredQuery>& measured,
                         const Tensor& target) {
  const int64_t heads = vectors.heads();
  const int64_t dim = vectors.keys.size(2);
  const int64_t rows = vectors.keys.size(1);
  const auto count = static_cast<int64_t>(measured.size());
  std::vector<Tensor> losses;
  for (int64_t i = 0; i < count; ++i) {
    const MeasuredQuery& query = measured[static_cast<size_t>(i)];
    const int64_t visible = std::min(vectors.visible(query.position), rows);
    if (visible < 1 || target[i].sum().item<float>() <= 0.0f) continue;
    const Tensor keys = vectors.keys[query.batch].narrow(0, 0, visible);
    const Tensor dots =
        vectors.queries[query.batch][query.position].view({heads, dim}).matmul(keys.t());
    const Tensor weights = vectors.weights[query.batch][query.position].view({1, heads});
    const Tensor log_share = torch::log_softmax(weights.matmul(torch::relu(dots)), 1).view({-1});
    const Tensor wanted = target[i].narrow(0, 0, visible);
    losses.push_back(torch::xlogy(wanted, wanted).sum() - (wanted * log_share).sum());
  }
  if (losses.empty()) return torch::zeros({});
  return torch::stack(losses).mean();
}

Tensor ListLoss(const IndexVectors& vectors, const std::vector<MeasuredQuery>& measured,
                const Tensor& target, int64_t list_rows) {
  const int64_t heads = vectors.heads();
  const int64_t dim = vectors.keys.size(2);
  const int64_t rows = vectors.keys.size(1);
  const int64_t tokens = vectors.queries.size(1);
  const auto count = static_cast<int64_t>(measured.size());
  std::vector<Tensor> sums;
  double queries = 0;
  // Queries of one sequence follow one another.
  for (int64_t begin = 0, end = 0; begin < count; begin = end) {
    const int64_t batch = measured[static_cast<size_t>(begin)].batch;
    std::vector<int64_t> positions;
    std::vector<int64_t> visible;
    for (; end < count && measured[static_cast<size_t>(end)].batch == batch; ++end) {
      const int64_t position = measured[static_cast<size_t>(end)].position;
      positions.push_back(position);
      visible.push_back(std::min(vectors.visible(position), rows));
    }
    CHECK(positions.back() < tokens);
    const Tensor at = torch::tensor(positions, torch::kInt64);
    const auto pick = [&](const Tensor& of) { return of[batch].index_select(0, at); };
    const Tensor dots = pick(vectors.queries).view({-1, dim}).matmul(vectors.keys[batch].t());
    const Tensor scores = pick(vectors.weights)
                              .unsqueeze(1)
                              .bmm(torch::relu(dots).view({end - begin, heads, rows}))
                              .squeeze(1);
    const Tensor hidden =
        torch::arange(rows).unsqueeze(0).ge(torch::tensor(visible, torch::kInt64).unsqueeze(1));
    const Tensor log_share =
        torch::log_softmax(scores.masked_fill(hidden, kHiddenScore), 1).masked_fill(hidden, 0);
    const Tensor wanted = target.slice(0, begin, end).masked_fill(hidden, 0);
    const double size = static_cast<double>(list_rows);
    sums.push_back(
        (wanted * ((log_share.exp() * (size - 1)).log1p() - log_share - std::log(size))).sum());
    queries += wanted.sum(1).gt(0).sum().item<double>();
  }
  if (queries == 0) return torch::zeros({});
  return torch::stack(sums).sum() / queries;
}

QualitySums MeasureSelection(const IndexVectors& vectors, const SelectionOptions& options,
                             const AttentionMass& mass,
                             std::vector<std::vector<uint8_t>>& pool_rows) {
  QualitySums sums;
  std::vector<float> scores;
  std::vector<float> scratch;
  std::vector<int32_t> list(static_cast<size_t>(options.topk));
  pool_rows.resize(mass.measured.size());
  for (size_t i = 0; i < mass.measured.size(); ++i) {
    const MeasuredQuery& query = mass.measured[i];
    const int64_t visible = vectors.visible(query.position);
    const float* attention =
        mass.measured_rows.data_ptr<float>() + static_cast<int64_t>(i) * mass.measured_rows.size(1);
    double total = 0;
    for (int64_t row = 0; row < visible; ++row) total += attention[row];
    if (total <= 0) continue;
    ScorerOf(vectors.queries, vectors.weights, vectors.keys, vectors.ratio, query.batch)
        .Score(query.position, 1, scores, scratch);
    if (options.publishes) {
      pool_rows[i].resize(static_cast<size_t>(Blocks(visible, options.block_size)));
    }
    SelectOne({scores.data(), static_cast<size_t>(visible)}, options, pool_rows[i], list);
    const int64_t best = std::max_element(attention, attention + visible) - attention;
    double listed = 0;
    bool found = false;
    for (const int32_t row : list) {
      if (row < 0) break;
      listed += attention[row];
      found = found || row == best;
    }
    sums.queries += 1;
    sums.top1 += found ? 1 : 0;
    sums.mass += listed / total;
    if (pool_rows[i].empty()) continue;
    sums.in_a_pool += 1;
    sums.pool += pool_rows[i][static_cast<size_t>(best / options.block_size)] != 0 ? 1 : 0;
    sums.pool_topk += KeptShare({attention, static_cast<size_t>(visible)}, options.topk,
                                pool_rows[i], options.block_size);
  }
  return sums;
}

}  // namespace minke::train

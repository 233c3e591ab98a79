#include "tests/model/golden_model.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "model/config.h"

namespace minke::testing {

namespace {

template <typename T>
T Must(Result<T> result) {
  CHECK(result.has_value(), result.error().message);
  return std::move(*result);
}

double Cosine(const float* a, const float* b, int64_t n) {
  double ab = 0;
  double aa = 0;
  double bb = 0;
  for (int64_t i = 0; i < n; ++i) {
    ab += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
  }
  return aa == 0 || bb == 0 ? 0 : ab / std::sqrt(aa * bb);
}

double Quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<size_t>(q * static_cast<double>(sorted.size() - 1))];
}

}  // namespace

std::unique_ptr<Model> LoadGoldenModel(const std::string& set, const Numerics& numerics,
                                       const Kernels& kernels, const ConfigChange& change) {
  ModelConfig config = Must(LoadConfig(GoldenPath(set + "/config.json")));
  std::vector<int32_t> token_map;
  if (config.has_engram()) {
    const Golden expected(set + "/expected.json");
    for (int64_t id : expected["engram_token_map"].Ints()) {
      token_map.push_back(static_cast<int32_t>(id));
    }
  }
  if (change) change(config);
  return Must(Model::Create(std::move(config), Must(Checkpoint::Open(GoldenPath(set))),
                            std::move(token_map), numerics, kernels));
}

std::vector<int32_t> GoldenPrompt(const std::string& set) {
  return GoldenIds(*GoldenJson(set + "/case.json").Find("prompt_ids"));
}

Matrix<float> RunTokens(const Model& model, std::span<const int32_t> tokens, const Cutting& cutting,
                        const Diagnostics* diagnostics) {
  const auto count = static_cast<int64_t>(tokens.size());
  ThreadPool pool(cutting.threads, cutting.share_cost_min);
  Arena arena;
  auto state = model.NewSequence();
  Matrix<float> logits(count, model.config().vocab_size);
  for (int64_t begin = 0; begin < count;) {
    int64_t rows = cutting.chunk == 0 ? count - begin : std::min(cutting.chunk, count - begin);
    if (cutting.decode_from >= 0) {
      rows = begin >= cutting.decode_from ? 1 : std::min(rows, cutting.decode_from - begin);
    }
    const ForwardRows call{
        .state = state.get(),
        .tokens = tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(rows)),
        .logits_from = 0};
    const Status status =
        model.Forward({&call, 1}, logits.view().Rows(begin, rows), pool, arena, diagnostics);
    CHECK(status.has_value(), status.error().message);
    state->Commit(rows);
    begin += rows;
  }
  return logits;
}

Distance Compare(View<const float> actual, View<const float> reference) {
  CHECK(actual.rows == reference.rows && actual.cols == reference.cols);
  CHECK(actual.rows > 0 && actual.cols > 0);
  std::vector<double> differences;
  std::vector<double> cosines;
  Distance distance;
  int64_t identical = 0;
  for (int64_t row = 0; row < actual.rows; ++row) {
    for (int64_t i = 0; i < actual.cols; ++i) {
      const double a = actual.Row(row)[i];
      const double b = reference.Row(row)[i];
      const double difference = std::abs(a - b);
      differences.push_back(std::isnan(difference) ? INFINITY : difference);
      if (a == b) ++identical;
      distance.reference_max = std::max(distance.reference_max, std::abs(b));
    }
    cosines.push_back(Cosine(actual.Row(row), reference.Row(row), actual.cols));
  }
  std::sort(differences.begin(), differences.end());
  std::sort(cosines.begin(), cosines.end());
  distance.median = Quantile(differences, 0.5);
  distance.p99 = Quantile(differences, 0.99);
  distance.max = differences.back();
  distance.min_cosine = cosines.front();
  distance.cosine_tenth = Quantile(cosines, 0.1);
  distance.identical_share =
      static_cast<double>(identical) / static_cast<double>(differences.size());
  CHECK(distance.reference_max > 0, "the reference is all zero: this comparison proves nothing");
  return distance;
}

Matrix<float> TakeRows(View<const float> matrix, std::span<const int64_t> positions) {
  Matrix<float> rows(static_cast<int64_t>(positions.size()), matrix.cols);
  for (size_t i = 0; i < positions.size(); ++i) {
    std::copy_n(matrix.Row(positions[i]), matrix.cols, rows.view().Row(static_cast<int64_t>(i)));
  }
  return rows;
}

std::vector<int64_t> GoldenPositions(const Json& array) {
  std::vector<int64_t> positions;
  for (const Json& value : array.as_array()) positions.push_back(value.as_int());
  return positions;
}

Distance StructureDistance(const std::string& set, const Kernels& kernels,
                           const ConfigChange& change, int64_t tokens_max) {
  const auto model = LoadGoldenModel(set, Numerics::F32(), kernels, change);
  std::vector<int32_t> tokens = GoldenPrompt(set);
  if (static_cast<int64_t>(tokens.size()) > tokens_max) {
    tokens.resize(static_cast<size_t>(tokens_max));
  }
  const Matrix<float> logits = RunTokens(*model, tokens);
  const Json info = GoldenJson(set + "/case.json");
  std::vector<int64_t> positions = GoldenPositions(*info.Find("f32_modes")->Find("positions"));
  std::erase_if(positions, [tokens_max](int64_t position) { return position >= tokens_max; });
  const GoldenMatrix golden = GoldenLogits(set, "logits_f32");
  const View<const float> reference(golden.values.data(), golden.rows, golden.cols);
  return Compare(TakeRows(logits.view(), positions).view(),
                 reference.Rows(0, static_cast<int64_t>(positions.size())));
}

bool StructureHolds(const Distance& distance) {
  return distance.max <= 2e-4 && distance.median <= 1e-5;
}

Diagnostics ForcedSelection(const ModelConfig& config, const Golden& expected) {
  using Table = std::vector<std::vector<int64_t>>;
  auto experts = std::make_shared<Table>(static_cast<size_t>(config.num_hidden_layers));
  auto rows = std::make_shared<Table>(static_cast<size_t>(config.num_hidden_layers));
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const auto index = static_cast<size_t>(layer);
    (*experts)[index] = expected["router_idx." + std::to_string(layer)].Ints();
    const std::string name = "topk." + std::to_string(layer);
    if (expected.Has(name)) (*rows)[index] = expected[name].Ints();
  }
  const int64_t tokens = expected.index().Find("n_tokens")->as_int();
  Diagnostics diagnostics;
  const auto take = [tokens](const std::shared_ptr<Table>& table, int64_t layer, int64_t position,
                             std::span<int32_t> target) {
    const std::vector<int64_t>& values = (*table)[static_cast<size_t>(layer)];
    const auto width = values.size() / static_cast<size_t>(tokens);
    std::fill(target.begin(), target.end(), -1);
    for (size_t i = 0; i < std::min(width, target.size()); ++i) {
      target[i] = static_cast<int32_t>(values[static_cast<size_t>(position) * width + i]);
    }
  };
  diagnostics.force_topk = [rows, take](int64_t layer, int64_t position,
                                        std::span<int32_t> target) {
    take(rows, layer, position, target);
  };
  diagnostics.force_experts = [experts, take](int64_t layer, int64_t position,
                                              std::span<int32_t> target) {
    take(experts, layer, position, target);
  };
  return diagnostics;
}

LayerBench::LayerBench(const Model& model, std::vector<int64_t> positions,
                       const Diagnostics* diagnostics)
    : positions_(std::move(positions)), state_(model.NewSequence()) {
  const auto count = static_cast<int64_t>(positions_.size());
  CHECK(state_->Begin(count));
  sequences_.push_back(
      SequenceSpan{.state = state_.get(), .first_row = 0, .count = count, .start = 0});
  step_ = std::make_unique<StepContext>(StepContext{.config = model.config(),
                                                    .tables = model.tables(),
                                                    .numerics = model.numerics(),
                                                    .kernels = model.kernels(),
                                                    .pool = pool_,
                                                    .arena = arena_,
                                                    .diagnostics = diagnostics,
                                                    .sequences = sequences_,
                                                    .positions = positions_,
                                                    .row_count = count,
                                                    .selected = {},
                                                    .candidates = {}});
  step_->selected = arena_.Allocate<int32_t>(count, model.config().index_topk);
  std::fill_n(step_->selected.data, count * model.config().index_topk, -1);
  const int64_t block_size = std::max<int64_t>(model.config().candidate_block_size, 1);
  step_->candidates = arena_.Allocate<uint8_t>(count, (count + block_size - 1) / block_size);
}

}  // namespace minke::testing

#include "tests/model/layer_checks.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <map>

namespace minke::testing {

namespace {

// A selection may differ where the k-th and the next score are this close, relative to the score
// range: a few bf16 steps, the distance by which another order of additions moves a score.
constexpr double kMarginTiny = 0.02;
constexpr double kRouterMarginTiny = 1e-4;

std::string Name(const std::string& base, int64_t layer) {
  return base + "." + std::to_string(layer);
}

std::vector<int64_t> AllPositions(const Golden& expected) {
  std::vector<int64_t> positions(static_cast<size_t>(expected.index().Find("n_tokens")->as_int()));
  for (size_t i = 0; i < positions.size(); ++i) positions[i] = static_cast<int64_t>(i);
  return positions;
}

Matrix<float> AsMatrix(const GoldenTensor& tensor) {
  Matrix<float> matrix(tensor.Dim(0), tensor.size() / tensor.Dim(0));
  const std::vector<float> values = tensor.Floats();
  std::copy(values.begin(), values.end(), matrix.data());
  return matrix;
}

LayerAgreement Agree(const std::string& name, View<const float> actual,
                     View<const float> reference) {
  LayerAgreement agreement{name, Compare(actual, reference).identical_share, 0};
  for (int64_t row = 0; row < actual.rows; ++row) {
    double largest = 0;
    double error = 0;
    for (int64_t i = 0; i < actual.cols; ++i) {
      largest = std::max(largest, std::abs(double{reference.Row(row)[i]}));
      const double difference = std::abs(double{actual.Row(row)[i]} - reference.Row(row)[i]);
      error = std::isnan(difference) ? INFINITY : std::max(error, difference);
    }
    agreement.row_error = std::max(agreement.row_error, error / largest);
  }
  return agreement;
}

// Runs the attention of every layer in order on golden inputs, so that shared rows are there.
void RunAttention(const Model& model, const Golden& expected, LayerBench& bench,
                  const std::function<void(int64_t layer, View<const float> y)>& done) {
  for (int64_t layer = 0; layer < model.config().num_hidden_layers; ++layer) {
    const Matrix<float> x = AsMatrix(expected[Name("attn_in", layer)]);
    Matrix<float> y(x.rows(), x.cols());
    const AttentionWeights& weights = model.weights().layers[static_cast<size_t>(layer)].attn;
    AttentionState(bench.step(), layer, weights, x.view());
    Attention(bench.step(), layer, weights, x.view(), y.view());
    done(layer, y.view());
  }
}

double IdenticalShare(const std::vector<uint8_t>& golden, const std::vector<uint8_t>& ours) {
  CHECK(golden.size() == ours.size() && !golden.empty());
  int64_t same = 0;
  for (size_t i = 0; i < golden.size(); ++i) same += golden[i] == ours[i] ? 1 : 0;
  return static_cast<double>(same) / static_cast<double>(golden.size());
}

// Codes and scales of `count` packed rows, in the golden files' order: all codes, all scales.
std::vector<uint8_t> SplitRows(int64_t count, int64_t code_bytes, int64_t row_bytes,
                               const std::function<const std::byte*(int64_t)>& row) {
  std::vector<uint8_t> codes;
  std::vector<uint8_t> scales;
  for (int64_t i = 0; i < count; ++i) {
    const auto* bytes = reinterpret_cast<const uint8_t*>(row(i));
    codes.insert(codes.end(), bytes, bytes + code_bytes);
    scales.insert(scales.end(), bytes + code_bytes, bytes + row_bytes);
  }
  codes.insert(codes.end(), scales.begin(), scales.end());
  return codes;
}

double PackedAgreement(const Golden& expected, const std::string& base, int64_t layer,
                       int64_t channels, int64_t row_bytes,
                       const std::function<const std::byte*(int64_t)>& row) {
  std::vector<uint8_t> golden = expected[Name(base + "_codes", layer)].RawU8();
  const std::vector<uint8_t> scales = expected[Name(base + "_scales", layer)].RawU8();
  const int64_t count = expected[Name(base + "_codes", layer)].Dim(0);
  golden.insert(golden.end(), scales.begin(), scales.end());
  if (row_bytes != static_cast<int64_t>(golden.size()) / count) return 0;  // not packed
  return IdenticalShare(golden, SplitRows(count, channels / 2, row_bytes, row));
}

// What one run of the attention layers saw, row by row.
struct Seen {
  std::map<int64_t, std::vector<std::vector<float>>> scores;        // layer -> position -> rows
  std::map<int64_t, std::vector<std::vector<int32_t>>> selections;  // before forcing
};

Diagnostics Observe(const Model& model, const Golden& expected, Seen& seen) {
  Diagnostics diagnostics = ForcedSelection(model.config(), expected);
  const auto force = diagnostics.force_topk;
  diagnostics.force_topk = [force, &seen](int64_t layer, int64_t position,
                                          std::span<int32_t> rows) {
    auto& list = seen.selections[layer];
    if (list.size() <= static_cast<size_t>(position))
      list.resize(static_cast<size_t>(position) + 1);
    list[static_cast<size_t>(position)].assign(rows.begin(), rows.end());
    force(layer, position, rows);
  };
  diagnostics.tensor = [&seen](std::string_view name, int64_t layer, View<const float> values) {
    if (name != "index_scores") return;
    seen.scores[layer].emplace_back(values.data, values.data + values.cols);
  };
  return diagnostics;
}

void CompareSelections(const Golden& expected, int64_t layer, const Seen& seen,
                       SourceAgreement& agreement) {
  const GoldenTensor& golden = expected[Name("topk", layer)];
  const std::vector<int64_t> rows = golden.Ints();
  const std::vector<float> margins = expected[Name("index_margin", layer)].Floats();
  const auto width = static_cast<size_t>(golden.Dim(1));
  const auto& selections = seen.selections.at(layer);
  for (size_t position = 0; position < selections.size(); ++position) {
    std::vector<int64_t> ours(selections[position].begin(), selections[position].end());
    std::vector<int64_t> theirs(rows.begin() + static_cast<int64_t>(position * width),
                                rows.begin() + static_cast<int64_t>((position + 1) * width));
    theirs.resize(ours.size(), -1);
    const auto& scores = seen.scores.at(layer)[position];
    float range = 0;
    for (float score : scores) range = std::max(range, std::abs(score));
    const bool tiny = std::abs(margins[position]) <= kMarginTiny * range;
    if (ours != theirs && !tiny) ++agreement.selections_differing_beyond_margin;
  }
}

void CompareScores(const Golden& expected, int64_t layer, const Seen& seen,
                   SourceAgreement& agreement) {
  const GoldenTensor& golden = expected[Name("index_scores", layer)];
  const std::vector<float> values = golden.Floats();
  const std::vector<int64_t> positions = GoldenPositions(*expected.index().Find("positions"));
  int64_t same = 0;
  int64_t total = 0;
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto& scores = seen.scores.at(layer)[static_cast<size_t>(positions[i])];
    for (size_t row = 0; row < scores.size(); ++row) {
      const float theirs = values[i * static_cast<size_t>(golden.Dim(1)) + row];
      if (std::isinf(theirs)) continue;  // masked by the candidate pool there
      ++total;
      same += scores[row] == theirs ? 1 : 0;
    }
  }
  CHECK(total > 0);
  agreement.scores_identical = static_cast<double>(same) / static_cast<double>(total);
}

double CandidateAgreement(const GoldenTensor& golden, const StepContext& step,
                          const LayerRole& role, int64_t block_size) {
  const std::vector<int64_t> blocks = golden.Ints();
  int64_t same = 0;
  int64_t total = 0;
  for (int64_t row = 0; row < golden.Dim(0); ++row) {
    const int64_t count =
        (step.VisibleRows(row, role.compress_ratio) + block_size - 1) / block_size;
    bool equal = true;
    for (int64_t block = 0; block < count; ++block) {
      equal = equal && blocks[static_cast<size_t>(row * golden.Dim(1) + block)] ==
                           step.candidates.Row(row)[block];
    }
    ++total;
    same += equal ? 1 : 0;
  }
  return static_cast<double>(same) / static_cast<double>(total);
}

}  // namespace

bool AttentionHolds(const LayerAgreement& layer) {
  return layer.identical_share >= 0.97 && layer.row_error <= 0.02;
}

bool MoeHolds(const LayerAgreement& layer) {
  return layer.identical_share >= 0.99 && layer.row_error <= 0.01;
}

std::vector<LayerAgreement> AttentionAgreement(const Model& model, const Golden& expected) {
  const Diagnostics forced = ForcedSelection(model.config(), expected);
  LayerBench bench(model, AllPositions(expected), &forced);
  const std::vector<int64_t> positions = GoldenPositions(*expected.index().Find("positions"));
  std::vector<LayerAgreement> result;
  RunAttention(model, expected, bench, [&](int64_t layer, View<const float> y) {
    const std::string name = Name("attn_out", layer);
    result.push_back(Agree(name, TakeRows(y, positions).view(), AsMatrix(expected[name]).view()));
  });
  return result;
}

std::vector<LayerAgreement> MoeAgreement(const Model& model, const Golden& expected) {
  const Diagnostics forced = ForcedSelection(model.config(), expected);
  LayerBench bench(model, GoldenPositions(*expected.index().Find("positions")), &forced);
  std::vector<LayerAgreement> result;
  for (int64_t layer = 0; layer < model.config().num_hidden_layers; ++layer) {
    const Matrix<float> x = AsMatrix(expected[Name("ffn_in", layer)]);
    Matrix<float> y(x.rows(), x.cols());
    CHECK(Moe(bench.step(), layer, model.weights().layers[static_cast<size_t>(layer)].ffn, x.view(),
              y.view())
              .has_value());
    const std::string name = Name("ffn_out", layer);
    result.push_back(Agree(name, y.view(), AsMatrix(expected[name]).view()));
  }
  return result;
}

RouterAgreement CompareRouter(const Model& model, const Golden& expected) {
  RouterAgreement agreement;
  Matrix<int32_t> experts;
  Matrix<float> weights;
  Diagnostics diagnostics;
  diagnostics.indices = [&](std::string_view name, int64_t, View<const int32_t> values) {
    if (name != "router_idx") return;
    experts = Matrix<int32_t>(values.rows, values.cols);
    std::copy_n(values.data, values.rows * values.cols, experts.data());
  };
  diagnostics.tensor = [&](std::string_view name, int64_t, View<const float> values) {
    if (name != "router_w") return;
    weights = Matrix<float>(values.rows, values.cols);
    std::copy_n(values.data, values.rows * values.cols, weights.data());
  };
  const std::vector<int64_t> positions = GoldenPositions(*expected.index().Find("positions"));
  LayerBench bench(model, positions, &diagnostics);
  for (int64_t layer = 0; layer < model.config().num_hidden_layers; ++layer) {
    const Matrix<float> x = AsMatrix(expected[Name("ffn_in", layer)]);
    Matrix<float> y(x.rows(), x.cols());
    CHECK(Moe(bench.step(), layer, model.weights().layers[static_cast<size_t>(layer)].ffn, x.view(),
              y.view())
              .has_value());
    const std::vector<int64_t> golden = expected[Name("router_idx", layer)].Ints();
    const std::vector<float> golden_weights = expected[Name("router_w", layer)].Floats();
    const std::vector<float> margins = expected[Name("router_margin", layer)].Floats();
    for (size_t i = 0; i < positions.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const auto first = static_cast<size_t>(positions[i] * experts.cols());
      bool same = true;
      double error = 0;
      for (int64_t slot = 0; slot < experts.cols(); ++slot) {
        const size_t at = first + static_cast<size_t>(slot);
        same = same && golden[at] == experts.view().Row(row)[slot];
        error =
            std::max(error, std::abs(double{golden_weights[at]} - weights.view().Row(row)[slot]));
      }
      ++agreement.rows;
      if (same) agreement.weight_error = std::max(agreement.weight_error, error);
      if (!same && margins[static_cast<size_t>(positions[i])] > kRouterMarginTiny) {
        ++agreement.differing_beyond_margin;
      }
    }
  }
  return agreement;
}

std::vector<SourceAgreement> CompareSources(const Model& model, const Golden& expected) {
  const ModelConfig& config = model.config();
  Seen seen;
  const Diagnostics diagnostics = Observe(model, expected, seen);
  LayerBench bench(model, AllPositions(expected), &diagnostics);
  std::vector<SourceAgreement> result;
  RunAttention(model, expected, bench, [&](int64_t layer, View<const float>) {
    const LayerRole& role = config.layers[static_cast<size_t>(layer)];
    if (role.mode != LayerMode::kFull && role.mode != LayerMode::kReindex) return;
    SourceAgreement agreement{.name = Name(LayerModeName(role.mode), layer)};
    const SequenceState& state = bench.state();
    if (role.mode == LayerMode::kFull) {
      const int64_t source = role.kv_source_index;
      agreement.compressed_bytes_identical = PackedAgreement(
          expected, "comp_kv", layer, config.head_dim, state.layout().compressed_row_bytes,
          [&](int64_t row) { return state.CompressedRow(source, row); });
      agreement.index_bytes_identical = PackedAgreement(
          expected, "index_k", layer, config.index_head_dim, state.layout().index_row_bytes,
          [&](int64_t row) { return state.IndexRow(source, row); });
    }
    CompareScores(expected, layer, seen, agreement);
    CompareSelections(expected, layer, seen, agreement);
    if (role.publishes_candidates) {
      agreement.candidates_identical =
          CandidateAgreement(expected[Name("candidate_blocks", layer)], bench.step(), role,
                             config.candidate_block_size);
    }
    result.push_back(agreement);
  });
  return result;
}

}  // namespace minke::testing

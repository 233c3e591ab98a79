// A golden set as a running model, and the comparisons that the model tests share.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "model/forward.h"
#include "tests/support/golden.h"

namespace minke::testing {

using ConfigChange = std::function<void(ModelConfig&)>;

// Loads tests/golden/<set>; the Engram token map is the golden one. Aborts the test run with the
// loader's message if it cannot.
std::unique_ptr<Model> LoadGoldenModel(const std::string& set, const Numerics& numerics,
                                       const Kernels& kernels, const ConfigChange& change = {});

std::vector<int32_t> GoldenPrompt(const std::string& set);

// How a sequence is cut into calls.
struct Cutting {
  int64_t chunk = 0;         // tokens a call; 0: all at once
  int64_t decode_from = -1;  // from this position on one token a call; -1: never
  int threads = 1;
  int64_t share_cost_min = kShareCostMin;  // 0: split however small the work
};

// Logits of every token, [tokens, vocab].
Matrix<float> RunTokens(const Model& model, std::span<const int32_t> tokens,
                        const Cutting& cutting = {}, const Diagnostics* diagnostics = nullptr);

// Differences of two lists of numbers.
struct Distance {
  double median = 0;
  double p99 = 0;
  double max = 0;
  double min_cosine = 1;       // over rows
  double cosine_tenth = 1;     // nine rows of ten have at least this
  double identical_share = 0;  // exactly equal values
  double reference_max = 0;    // 0 would make the comparison prove nothing
};
Distance Compare(View<const float> actual, View<const float> reference);

// Rows of `matrix` at `positions`.
Matrix<float> TakeRows(View<const float> matrix, std::span<const int64_t> positions);
std::vector<int64_t> GoldenPositions(const Json& array);

// The structure check: float32 logits of the set's first tokens_max tokens on the given kernels
// against logits_f32, and the limits of tests/golden/README.md.
Distance StructureDistance(const std::string& set, const Kernels& kernels,
                           const ConfigChange& change, int64_t tokens_max);
bool StructureHolds(const Distance& distance);

// Takes the selections of the golden file instead of the model's own.
Diagnostics ForcedSelection(const ModelConfig& config, const Golden& expected);

// Everything a mechanism needs to run on its own, for `tokens` rows of one new sequence.
class LayerBench {
 public:
  LayerBench(const Model& model, std::vector<int64_t> positions, const Diagnostics* diagnostics);
  StepContext& step() { return *step_; }
  SequenceState& state() { return *state_; }

 private:
  ThreadPool pool_{1};
  Arena arena_;
  std::vector<int64_t> positions_;
  std::unique_ptr<SequenceState> state_;
  std::vector<SequenceSpan> sequences_;
  std::unique_ptr<StepContext> step_;
};

}  // namespace minke::testing

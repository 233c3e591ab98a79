#include "bench/prefill_bench.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/decode_bench.h"
#include "bench/model_work.h"
#include "bench/synthetic_context.h"
#include "core/block_pool.h"
#include "kernels/kernels.h"
#include "recall/random.h"

namespace minke {
namespace {

constexpr size_t kPrefillCeilingBytes = size_t{1} << 28;  // the bound is the multiply-adds

class PrefillRun {
 public:
  PrefillRun(const Model& model, const PrefillBenchOptions& options, ThreadPool& pool)
      : model_(model),
        options_(options),
        pool_(pool),
        layout_(model.config(), model.numerics()),
        clock_(model.config()),
        logits_(1, model.config().vocab_size),
        block_pool_(std::max<int64_t>(1, layout_.block_bytes), kBenchPoolBytes) {
    Random random({options.seed});
    for (int64_t i = 0; i < options.tokens; ++i) {
      tokens_.push_back(static_cast<int32_t>(random.Below(model.config().vocab_size)));
    }
    const ModelWork work(model.config(), layout_);
    exact_work_ = work.MultiplyAdds(options.context, options.tokens, options.tokens, 1);
    replay_work_ = work.MultiplyAdds(options.context, options.tokens, DecoderRows(true), 1);
  }

  double work(bool replay) const { return replay ? replay_work_ : exact_work_; }
  int64_t calls() const { return (options_.tokens + options_.rows - 1) / options_.rows; }

  // One prompt in a sequence of its own.
  Status Run(PrefillBenchCase& result, const std::function<void()>& called) {
    const auto state =
        TRY(MakeSyntheticContext(model_, block_pool_, options_.context, options_.seed));
    std::vector<double> layers(static_cast<size_t>(model_.config().num_hidden_layers));
    double seconds = 0;
    double head_seconds = 0;
    const int64_t skipped = options_.tokens - DecoderRows(result.replay);
    for (int64_t begin = 0; begin < options_.tokens; begin += options_.rows) {
      const int64_t count = std::min(options_.rows, options_.tokens - begin);
      const bool last = begin + count == options_.tokens;
      const std::span<const int32_t> ids(tokens_);
      const ForwardRows rows{
          state.get(), ids.subspan(static_cast<size_t>(begin), static_cast<size_t>(count)),
          last ? count - 1 : count, std::clamp<int64_t>(skipped - begin, 0, count)};
      clock_.Start();
      TRY_STATUS(model_.Forward({&rows, 1}, last ? logits_.view() : View<float>(), pool_, arena_,
                                clock_.diagnostics()));
      clock_.Stop();
      state->Commit(count);
      called();
      seconds += clock_.seconds();
      for (size_t layer = 0; layer < layers.size(); ++layer) {
        layers[layer] += clock_.layer_seconds(static_cast<int64_t>(layer));
      }
      // What follows the last layer is the head's, or where no row goes on, the split layer's.
      if (last) head_seconds = clock_.head_seconds();
      if (rows.decoder_from == count) {
        layers[static_cast<size_t>(layout_.split_layer)] += clock_.head_seconds();
      }
    }
    result.prompts_per_second.Add(1 / seconds);
    result.times.Add(layers, head_seconds);
    return {};
  }

 private:
  int64_t DecoderRows(bool replay) const {
    return replay ? std::min(options_.tokens, layout_.window_slots) : options_.tokens;
  }

  const Model& model_;
  const PrefillBenchOptions& options_;
  ThreadPool& pool_;
  StateLayout layout_;
  LayerClock clock_;
  Matrix<float> logits_;
  std::vector<int32_t> tokens_;
  double exact_work_ = 0;
  double replay_work_ = 0;
  BlockPool block_pool_;
  Arena arena_;
};

Status CheckPrefill(const Model& model, const PrefillBenchOptions& options) {
  CHECK(options.exact || options.replay);
  if (options.replay && !model.replay_obstacle().empty()) {
    return Fail(fmt::format("This model has no replay: {}; measure it with --prefill exact.",
                            model.replay_obstacle()));
  }
  const int64_t needed = options.context + options.tokens;
  if (needed <= model.config().max_position_embeddings) return {};
  return Fail(
      ErrorCode::kLimit,
      fmt::format("A context of {} tokens and a prompt of {} make {}, but this model holds "
                  "{} (max_position_embeddings).",
                  options.context, options.tokens, needed, model.config().max_position_embeddings));
}

}  // namespace

double PrefillBenchReport::TokensPerSecond(const PrefillBenchCase& one) const {
  return static_cast<double>(tokens) * one.prompts_per_second.Median();
}

double PrefillBenchReport::Ratio(const PrefillBenchCase& one) const {
  return one.multiply_adds / multiply_adds_per_second * one.prompts_per_second.Median();
}

double PrefillBenchReport::ReplayShare() const {
  if (cases.size() != 2) return 0;
  return cases[1].times.WeightedSeconds() / cases[0].times.WeightedSeconds();
}

Json PrefillBenchReport::ToJson() const {
  JsonArray list;
  for (const PrefillBenchCase& one : cases) {
    Json json;
    json.Set("prefill", one.replay ? "replay" : "exact");
    json.Set("tokens_per_second", TokensPerSecond(one));
    json.Set("seconds", 1 / one.prompts_per_second.Median());
    json.Set("multiply_adds", one.multiply_adds);
    json.Set("multiply_adds_per_second", one.multiply_adds * one.prompts_per_second.Median());
    json.Set("ratio", Ratio(one));
    json.Set("prompts_per_second", SamplesJson(one.prompts_per_second));
    json.Set("layers", one.times.ToJson());
    list.push_back(std::move(json));
  }
  Json json;
  json.Set("kernels", kernels);
  json.Set("machine", machine);
  json.Set("tokens", tokens);
  json.Set("rows", rows);
  json.Set("context", context);
  json.Set("cases", std::move(list));
  json.Set("replay_share", cases.size() == 2 ? Json(ReplayShare()) : Json());
  return json;
}

std::string PrefillBenchReport::ToText() const {
  std::string text = machine_text;
  text += fmt::format("kernels: {}; {} tokens behind a context of {}, {} rows a call\n", kernels,
                      tokens, context, rows);
  for (const PrefillBenchCase& one : cases) {
    text += fmt::format(
        "{}: {:.2f} tokens/s, {:.2f} s; {:.1f} G multiply-adds, {} of a peak of {}, ratio {:.0f} "
        "%\n",
        one.replay ? "replay" : "exact", TokensPerSecond(one), 1 / one.prompts_per_second.Median(),
        one.multiply_adds / 1e9,
        RateText(one.multiply_adds * one.prompts_per_second.Median(), "/s"),
        RateText(multiply_adds_per_second, "/s"), 100 * Ratio(one));
  }
  text += fmt::format("{:<24}  {:>8}", "kind of layer", "layers");
  for (const PrefillBenchCase& one : cases) {
    text += fmt::format("  {:>9}", one.replay ? "replay" : "exact");
  }
  text += '\n';
  const KindTimes& first = cases.front().times;
  for (const auto& [kind, count] : first.weights()) {
    if (first.Seconds(kind) == 0) continue;
    text += fmt::format("{:<24}  {:>8}", kind, count);
    for (const PrefillBenchCase& one : cases) {
      text += fmt::format("  {:>7.3f} s", one.times.Seconds(kind));
    }
    text += '\n';
  }
  text += fmt::format("{:<24}  {:>8}", "all layers and head", "");
  for (const PrefillBenchCase& one : cases) {
    text += fmt::format("  {:>7.3f} s", one.times.WeightedSeconds());
  }
  text += '\n';
  const std::vector<std::string> missing = first.MissingKinds();
  if (!missing.empty()) {
    text +=
        fmt::format("not in this model, and missing in the sum: {}\n", fmt::join(missing, "; "));
  }
  if (cases.size() == 2) text += fmt::format("replay over exact: {:.3f}\n", ReplayShare());
  return text;
}

Result<PrefillBenchReport> MeasurePrefill(const Model& model, const PrefillBenchOptions& options,
                                          ThreadPool& pool) {
  TRY_STATUS(CheckPrefill(model, options));
  PrefillBenchReport report;
  report.kernels = &model.kernels() == &ReferenceKernels() ? "reference" : FastTargetName();
  report.tokens = options.tokens;
  report.rows = options.rows;
  report.context = options.context;
  PrefillRun run(model, options, pool);
  for (const bool replay : {false, true}) {
    if (!(replay ? options.replay : options.exact)) continue;
    report.cases.push_back(
        {replay, run.work(replay), {}, KindTimes(model.config(), options.layer_kinds)});
  }
  if (model.stream() == nullptr) TouchWeights(model.checkpoint());
  Ceilings ceilings = TRY(Ceilings::Create(WorkingSetBytes(kPrefillCeilingBytes), pool));
  const int64_t total = run.calls() * static_cast<int64_t>(report.cases.size()) * options.rounds;
  int64_t done = 0;
  const auto called = [&] {
    ++done;
    if (options.progress) options.progress(done, total);
  };
  for (int64_t round = 0; round < options.rounds; ++round) {
    ceilings.Measure();
    for (PrefillBenchCase& one : report.cases) TRY_STATUS(run.Run(one, called));
  }
  report.machine = ceilings.ToJson();
  report.machine_text = ceilings.ToText();
  report.multiply_adds_per_second = ceilings.multiply_adds_per_second();
  report.foreign_cpu_share = ceilings.foreign_cpu_share();
  return report;
}

}  // namespace minke

#include "bench/decode_bench.h"

#include <algorithm>
#include <memory>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "bench/synthetic_context.h"
#include "core/available_memory.h"
#include "core/block_pool.h"
#include "engine/model_loader.h"
#include "kernels/kernels.h"
#include "recall/random.h"

namespace minke {
namespace {

constexpr int64_t kMappedPageBytes = 4096;

// One context as it grows.
struct RunningDecode {
  DecodeBenchCase* result;
  std::vector<std::unique_ptr<SequenceState>> states;
};

class DecodeRun {
 public:
  DecodeRun(const Model& model, const DecodeBenchOptions& options, ThreadPool& pool)
      : model_(model),
        options_(options),
        pool_(pool),
        layout_(model.config(), model.numerics()),
        work_(model.config(), layout_),
        clock_(model.config()),
        random_({options.seed}),
        logits_(options.sequences, model.config().vocab_size),
        tokens_(static_cast<size_t>(options.sequences)),
        block_pool_(std::max<int64_t>(1, layout_.block_bytes), kBenchPoolBytes) {}

  Status Add(DecodeBenchCase* result) {
    RunningDecode running{result, {}};
    for (int64_t i = 0; i < options_.sequences; ++i) {
      running.states.push_back(TRY(MakeSyntheticContext(model_, block_pool_, result->context,
                                                        options_.seed + static_cast<uint64_t>(i))));
    }
    if (result->context > 0) {
      result->cache_bytes_per_token = static_cast<double>(running.states.front()->used_bytes()) /
                                      static_cast<double>(result->context);
    }
    running_.push_back(std::move(running));
    return {};
  }

  Status Run(Ceilings& ceilings, StreamReport& stream) {
    const auto total = options_.tokens * static_cast<int64_t>(running_.size());
    int64_t done = 0;
    // The first step of each is not measured: it allocates scratch memory.
    for (RunningDecode& running : running_) TRY_STATUS(Step(running));
    const WeightsUse before = WeightsUseOf(model_);
    for (int64_t token = 0; token < options_.tokens; ++token) {
      ceilings.Measure();
      if (options_.disk != nullptr) {
        pool_.ReleaseCaller();  // the readers are not to share its processor
        stream.disk_rates.Add(TRY(options_.disk->MeasureReadRate(kWeightReaders)));
      }
      for (RunningDecode& running : running_) {
        TRY_STATUS(Step(running));
        Record(running, ceilings.last_bytes_per_second());
        stream.step_seconds += clock_.seconds();
        if (options_.progress) options_.progress(++done, total);
      }
    }
    stream.use = WeightsUseSince(model_, before);
    return {};
  }

 private:
  // Random tokens: drawn ones would soon repeat themselves, and with them their experts.
  Status Step(RunningDecode& running) {
    std::vector<ForwardRows> rows;
    for (size_t i = 0; i < running.states.size(); ++i) {
      tokens_[i] = static_cast<int32_t>(random_.Below(model_.config().vocab_size));
      rows.push_back({running.states[i].get(), {&tokens_[i], 1}, 0, 0});
    }
    clock_.Start();
    TRY_STATUS(model_.Forward(rows, logits_.view(), pool_, arena_, clock_.diagnostics()));
    clock_.Stop();
    for (const auto& state : running.states) state->Commit(1);
    return {};
  }

  void Record(RunningDecode& running, double bytes_per_second) {
    DecodeBenchCase& result = *running.result;
    result.steps_per_second.Add(1 / clock_.seconds());
    result.times.Add(clock_);
    result.bytes = work_.DecodeBytes(running.states.front()->length(), options_.sequences,
                                     clock_.chosen_experts());
    result.multiply_adds = static_cast<double>(options_.sequences) *
                           work_.MultiplyAdds(running.states.front()->length() - 1, 1, 1, 1);
    result.bound_share.Add(static_cast<double>(result.bytes.total()) / bytes_per_second /
                           clock_.seconds());
  }

  const Model& model_;
  const DecodeBenchOptions& options_;
  ThreadPool& pool_;
  StateLayout layout_;
  ModelWork work_;
  LayerClock clock_;
  Random random_;
  Matrix<float> logits_;
  std::vector<int32_t> tokens_;
  BlockPool block_pool_;
  std::vector<RunningDecode> running_;
  Arena arena_;
};

std::string MissingText(const KindTimes& times) {
  const std::vector<std::string> missing = times.MissingKinds();
  if (missing.empty()) return {};
  return fmt::format("not in this model, and missing in the sum: {}\n", fmt::join(missing, "; "));
}

}  // namespace

bool TouchWeights(const Checkpoint& checkpoint) {
  if (static_cast<int64_t>(checkpoint.file_bytes()) > AvailableMemoryBytes()) return false;
  std::byte sum{0};
  for (const auto& [name, tensor] : checkpoint.tensors()) {
    for (size_t at = 0; at < tensor.bytes.size(); at += kMappedPageBytes) sum ^= tensor.bytes[at];
  }
  asm volatile("" : : "r"(sum));
  return true;
}

double DecodeBenchReport::Ratio(const DecodeBenchCase& one) const {
  return static_cast<double>(one.bytes.total()) / bytes_per_second * one.steps_per_second.Median();
}

Json DecodeBenchReport::ToJson() const {
  JsonArray list;
  for (const DecodeBenchCase& one : cases) {
    Json json;
    json.Set("context", one.context);
    json.Set("sequences", one.sequences);
    json.Set("tokens_per_second", one.tokens_per_second());
    json.Set("seconds_per_step", 1 / one.steps_per_second.Median());
    json.Set("steps_per_second", SamplesJson(one.steps_per_second));
    json.Set("bytes_per_step", one.bytes.ToJson());
    json.Set("bound_tokens_per_second", static_cast<double>(one.sequences) * bytes_per_second /
                                            static_cast<double>(one.bytes.total()));
    json.Set("ratio", Ratio(one));
    json.Set("ratio_by_round", SamplesJson(one.bound_share));
    json.Set("multiply_adds_per_step", one.multiply_adds);
    json.Set("multiply_adds_per_second", one.multiply_adds * one.steps_per_second.Median());
    json.Set("cache_bytes_per_token", one.cache_bytes_per_token);
    json.Set("layers", one.times.ToJson());
    list.push_back(std::move(json));
  }
  Json json;
  json.Set("kernels", kernels);
  json.Set("machine", machine);
  if (stream.use.streamed) json.Set("stream", stream.ToJson());
  json.Set("cases", std::move(list));
  return json;
}

std::string DecodeBenchReport::ToText() const {
  std::string text = machine_text;
  for (const DecodeBenchCase& one : cases) {
    text += fmt::format(
        "kernels: {}; context {} tokens, {} at once, {} steps\n"
        "{:.3f} tokens/s, bound {:.3f}, ratio {:.0f} %\n"
        "a step: {:.1f} ms, {:.3f} GB (dense {:.3f}, experts {:.3f}, head {:.3f}, cache {:.4f})\n",
        kernels, one.context, one.sequences, one.steps_per_second.count(), one.tokens_per_second(),
        one.tokens_per_second() / Ratio(one), 100 * Ratio(one),
        1000 / one.steps_per_second.Median(), static_cast<double>(one.bytes.total()) / 1e9,
        static_cast<double>(one.bytes.dense) / 1e9, static_cast<double>(one.bytes.experts) / 1e9,
        static_cast<double>(one.bytes.head) / 1e9,
        static_cast<double>(one.bytes.cache + one.bytes.engram) / 1e9);
    const double rate = one.multiply_adds * one.steps_per_second.Median();
    text += fmt::format("{:.1f} G multiply-adds, {} of a peak of {}, ratio {:.0f} %\n",
                        one.multiply_adds / 1e9, RateText(rate, "/s"),
                        RateText(multiply_adds_per_second, "/s"),
                        100 * rate / multiply_adds_per_second);
    text += fmt::format("{:<24}  {:>10}  {:>8}\n", "kind of layer", "time", "layers");
    for (const auto& [kind, count] : one.times.weights()) {
      const double seconds = one.times.Seconds(kind);
      if (seconds == 0) continue;
      text += fmt::format("{:<24}  {:>7.2f} ms  {:>8}\n", kind, 1000 * seconds, count);
    }
    text += fmt::format("{:<24}  {:>7.2f} ms\n{:<24}  {:>7.1f} ms\n", "head",
                        1000 * one.times.HeadSeconds(), "all layers and head",
                        1000 * one.times.WeightedSeconds());
    text += MissingText(one.times);
  }
  return stream.use.streamed ? text + stream.ToText() : text;
}

std::string DecodeBenchReport::ToContextText() const {
  std::string text = machine_text;
  text += fmt::format("kernels: {}; time of a layer in ms, by context\n{:<24}", kernels, "tokens");
  for (const DecodeBenchCase& one : cases) text += fmt::format("  {:>9}", one.context);
  text += '\n';
  for (const auto& [kind, count] : cases.front().times.weights()) {
    if (cases.front().times.Seconds(kind) == 0) continue;
    text += fmt::format("{:<24}", fmt::format("{} ({})", kind, count));
    for (const DecodeBenchCase& one : cases) {
      text += fmt::format("  {:>9.2f}", 1000 * one.times.Seconds(kind));
    }
    text += '\n';
  }
  const auto row = [&](const char* name, const auto& value) {
    text += fmt::format("{:<24}", name);
    for (const DecodeBenchCase& one : cases) text += fmt::format("  {:>9.2f}", value(one));
    text += '\n';
  };
  row("head", [](const DecodeBenchCase& one) { return 1000 * one.times.HeadSeconds(); });
  row("all layers and head",
      [](const DecodeBenchCase& one) { return 1000 * one.times.WeightedSeconds(); });
  row("of the first context", [this](const DecodeBenchCase& one) {
    return one.times.WeightedSeconds() / cases.front().times.WeightedSeconds();
  });
  row("ratio to the bound", [this](const DecodeBenchCase& one) { return Ratio(one); });
  row("cache MB read",
      [](const DecodeBenchCase& one) { return static_cast<double>(one.bytes.cache) / 1e6; });
  row("cache bytes a token", [](const DecodeBenchCase& one) { return one.cache_bytes_per_token; });
  return text + MissingText(cases.front().times);
}

Result<DecodeBenchReport> MeasureDecode(const Model& model, const DecodeBenchOptions& options,
                                        ThreadPool& pool) {
  DecodeBenchReport report;
  report.kernels = &model.kernels() == &ReferenceKernels() ? "reference" : FastTargetName();
  for (const int64_t context : options.contexts) {
    // The first step, which is not measured, counts too.
    const int64_t needed = context + options.tokens + 1;
    if (needed > model.config().max_position_embeddings) {
      return Fail(
          ErrorCode::kLimit,
          fmt::format("A context of {} tokens and {} more make {}, but this model holds {} "
                      "(max_position_embeddings); name shorter ones with --context or --contexts.",
                      context, options.tokens + 1, needed, model.config().max_position_embeddings));
    }
    report.cases.push_back({context,
                            options.sequences,
                            {},
                            {},
                            KindTimes(model.config(), options.layer_kinds),
                            {},
                            0});
  }
  DecodeRun run(model, options, pool);
  for (DecodeBenchCase& one : report.cases) TRY_STATUS(run.Add(&one));
  if (model.stream() == nullptr) TouchWeights(model.checkpoint());
  Ceilings ceilings = TRY(Ceilings::Create(WorkingSetBytes(kBandwidthBytes), pool));
  TRY_STATUS(run.Run(ceilings, report.stream));
  report.machine = ceilings.ToJson();
  report.machine_text = ceilings.ToText();
  report.multiply_adds_per_second = ceilings.multiply_adds_per_second();
  report.bytes_per_second = ceilings.bytes_per_second();
  report.foreign_cpu_share = ceilings.foreign_cpu_share();
  return report;
}

}  // namespace minke

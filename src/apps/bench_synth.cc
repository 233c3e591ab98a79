// minke bench synth: a model to measure with, where the real one is not at hand.
#include <iostream>

#include <fmt/format.h>

#include "apps/bench_command.h"
#include "apps/common.h"
#include "apps/progress_bar.h"
#include "bench/layer_cut.h"
#include "bench/synthetic_checkpoint.h"
#include "engine/model_loader.h"

namespace minke {
namespace {

Status BenchSynth(const BenchSynthFlags& flags) {
  SyntheticOptions options;
  options.config_path = flags.config;
  options.layers = TRY(ParseLayerList(flags.layers));
  options.experts = flags.experts;
  options.vocab_size = flags.vocab;
  options.tokenizer_dir = TRY(FindModelDir(flags.tokenizer));
  options.directory = flags.out;
  options.seed = flags.seed;
  EngineOptions engine_options;
  engine_options.threads = flags.threads;
  ThreadPool pool(TRY(ThreadCount(engine_options)));
  SyntheticReport report;
  {
    ProgressBar bar;
    options.progress = [&bar](int64_t done, int64_t total) {
      bar.Show(fmt::format("{:.1f} of {:.1f} GB", static_cast<double>(done) / 1e9,
                           static_cast<double>(total) / 1e9),
               done, total);
    };
    report = TRY(WriteSyntheticCheckpoint(options, pool));
  }
  if (flags.json) {
    std::cout << DumpJson(report.ToJson(options), JsonStyle::kPretty) << '\n';
    return {};
  }
  std::cout << fmt::format(
      "{}: {} tensors, {:.2f} GB in {} shards, random weights of seed {}\n", options.directory,
      report.tensors, static_cast<double>(report.tensor_bytes) / 1e9, report.shards, options.seed);
  return {};
}

}  // namespace

int RunBenchSynth(const BenchSynthFlags& flags) {
  const Status status = BenchSynth(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

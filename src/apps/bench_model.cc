// minke bench decode, prefill and context: the engine's model against the machine's ceilings.
#include <memory>
#include <string>
#include <utility>

#include "apps/bench_command.h"
#include "apps/bench_plots.h"
#include "apps/common.h"
#include "apps/progress_bar.h"
#include "bench/decode_bench.h"
#include "bench/disk_rate.h"
#include "bench/prefill_bench.h"
#include "engine/model_loader.h"

namespace minke {
namespace {

struct BenchModel {
  LoadedModel loaded;
  std::unique_ptr<ThreadPool> pool;
  std::map<std::string, int64_t> layer_kinds;
};

Result<BenchModel> OpenModel(const ModelFlags& flags) {
  const EngineOptions options = TRY(MakeEngineOptions(flags, {}));
  const int threads = TRY(ThreadCount(options));
  LoadedModel loaded = TRY(LoadModel(options));
  auto layer_kinds = TRY(ReadLayerKinds(options.model_dir, loaded.model->config()));
  auto pool = std::make_unique<ThreadPool>(threads, kShareCostMin, PinningOf(options));
  TRY_STATUS(PrepareModel(flags, *loaded.model, *pool));
  return BenchModel{std::move(loaded), std::move(pool), std::move(layer_kinds)};
}

std::function<void(int64_t, int64_t)> Progress(ProgressBar& bar) {
  return [&bar](int64_t done, int64_t total) { bar.Show("measuring", done, total); };
}

Result<DecodeBenchReport> MeasureContexts(const ModelFlags& flags, DecodeBenchOptions options) {
  BenchModel model = TRY(OpenModel(flags));
  options.layer_kinds = std::move(model.layer_kinds);
  ProgressBar bar;
  options.progress = Progress(bar);
  return MeasureDecode(*model.loaded.model, options, *model.pool);
}

Status BenchDecode(const BenchDecodeFlags& flags) {
  DecodeBenchOptions options;
  options.contexts = {flags.context};
  options.tokens = flags.tokens;
  options.sequences = flags.sequences;
  options.seed = flags.seed;
  std::unique_ptr<DiskFile> disk;
  if (!flags.model.weights_ram.empty()) {
    const std::string model_dir = TRY(FindModelDir(flags.model.model_dir));
    if (flags.disk_dir.empty()) disk = TRY(DiskFile::OpenLargest(model_dir));
    if (disk == nullptr) {
      disk = TRY(DiskFile::Create(flags.disk_dir.empty() ? model_dir : flags.disk_dir));
    }
    options.disk = disk.get();
  }
  const DecodeBenchReport report = TRY(MeasureContexts(flags.model, std::move(options)));
  PrintBenchReport(report.ToJson(), report.ToText(), flags.json, report.foreign_cpu_share);
  return {};
}

Status BenchContext(const BenchContextFlags& flags) {
  DecodeBenchOptions options;
  options.contexts = flags.contexts;
  options.tokens = flags.tokens;
  options.seed = flags.seed;
  const DecodeBenchReport report = TRY(MeasureContexts(flags.model, std::move(options)));
  PrintBenchReport(report.ToJson(), report.ToContextText(), flags.json, report.foreign_cpu_share);
  if (!flags.plot.empty()) TRY_STATUS(WriteBenchPlot(flags.plot, ContextPlot(report)));
  return {};
}

Status BenchPrefill(const BenchPrefillFlags& flags) {
  BenchModel model = TRY(OpenModel(flags.model));
  PrefillBenchOptions options;
  options.rows = flags.rows;
  options.tokens = flags.tokens > 0 ? flags.tokens : flags.rows;
  options.context = flags.context;
  options.exact = flags.prefill != "replay";
  options.replay = flags.prefill != "exact";
  options.rounds = flags.rounds;
  options.seed = flags.seed;
  options.layer_kinds = std::move(model.layer_kinds);
  PrefillBenchReport report;
  {
    ProgressBar bar;
    options.progress = Progress(bar);
    report = TRY(MeasurePrefill(*model.loaded.model, options, *model.pool));
  }
  PrintBenchReport(report.ToJson(), report.ToText(), flags.json, report.foreign_cpu_share);
  return {};
}

int ExitCode(const Status& status) {
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace

int RunBenchDecode(const BenchDecodeFlags& flags) {
  return ExitCode(BenchDecode(flags));
}

int RunBenchContext(const BenchContextFlags& flags) {
  return ExitCode(BenchContext(flags));
}

int RunBenchPrefill(const BenchPrefillFlags& flags) {
  return ExitCode(BenchPrefill(flags));
}

}  // namespace minke

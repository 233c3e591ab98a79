// minke bench machine and minke bench kernels.
#include "apps/bench_command.h"

#include <iostream>
#include <string>

#include <fmt/format.h>

#include "apps/bench_plots.h"
#include "apps/cache_report.h"
#include "apps/common.h"
#include "apps/progress_bar.h"
#include "bench/kernel_bench.h"
#include "bench/machine.h"
#include "engine/model_loader.h"

namespace minke {
namespace {

Result<int> Threads(int flag) {
  EngineOptions options;
  options.threads = flag;
  return ThreadCount(options);
}

Status BenchMachine(const BenchMachineFlags& flags) {
  MachineReport report;
  {
    ProgressBar bar;
    MachineOptions options;
    options.threads = TRY(Threads(flags.threads));
    options.seconds = flags.seconds;
    options.directory = flags.dir;
    options.progress = [&bar](int64_t done, int64_t total) { bar.Show("measuring", done, total); };
    report = TRY(MeasureMachine(options));
  }
  PrintBenchReport(report.ToJson(), report.ToText(), flags.json, report.foreign_cpu_share);
  return {};
}

WeightFormat FormatOf(const std::string& name) {
  if (name == "fp4") return WeightFormat::kFp4Group32;
  return name == "fp8" ? WeightFormat::kFp8Tile32 : WeightFormat::kBf16;
}

Status BenchKernels(const BenchKernelsFlags& flags) {
  KernelBenchOptions options;
  for (const std::string& name : flags.formats) options.formats.push_back(FormatOf(name));
  for (const std::string& text : flags.shapes) {
    options.shapes.push_back(TRY(ParseMatrixShape(text)));
  }
  options.rows = flags.rows;
  options.rounds = flags.rounds;
  options.memory_bytes = TRY(ParseByteSize(flags.memory, "--memory"));
  options.threads = TRY(Threads(flags.threads));
  options.seed = flags.seed;
  if (options.memory_bytes < kBenchMemoryMin) {
    return Fail(
        fmt::format("--memory must be at least {} bytes, or the weights stay in the "
                    "caches; found {}.",
                    kBenchMemoryMin, flags.memory));
  }
  KernelBenchReport report;
  {
    ProgressBar bar;
    options.progress = [&bar](int64_t done, int64_t total) { bar.Show("measuring", done, total); };
    const bool reference = flags.kernels == "reference";
    report = TRY(MeasureKernels(reference ? ReferenceKernels() : FastKernels(), options));
  }
  PrintBenchReport(report.ToJson(), report.ToText(), flags.json, report.foreign_cpu_share);
  if (!flags.plot.empty()) TRY_STATUS(WriteBenchPlot(flags.plot, KernelPlot(report)));
  return {};
}

}  // namespace

void PrintBenchReport(const Json& report, const std::string& text, bool json,
                      double foreign_cpu_share) {
  std::cout << (json ? DumpJson(report, JsonStyle::kPretty) + '\n' : text);
  const std::string warning = ForeignCpuWarning(foreign_cpu_share);
  if (!warning.empty()) PrintNote(warning);
}

int RunBenchMachine(const BenchMachineFlags& flags) {
  const Status status = BenchMachine(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

int RunBenchKernels(const BenchKernelsFlags& flags) {
  const Status status = BenchKernels(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

#include "bench/machine.h"

#include <algorithm>
#include <fstream>
#include <utility>

#include <fmt/format.h>

#include "bench/disk_rate.h"
#include "bench/peaks.h"

namespace minke {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kWorkingSetBytes = size_t{1} << 30;
constexpr double kPeakSampleSeconds = 0.03;

std::string ProcessorName() {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with("model name")) continue;
    const size_t colon = line.find(": ");
    if (colon != std::string::npos) return line.substr(colon + 2);
  }
  return "unknown";
}

// What a round of MeasureMachine() goes through.
struct MachineProbe {
  std::string name;
  std::string text;
  std::string unit;
  std::function<Result<double>()> measure;
};

void AddMemoryProbes(const PageMemory& huge, const PageMemory& small,
                     const std::vector<ThreadPool*>& pools, std::vector<MachineProbe>* probes) {
  for (ThreadPool* pool : pools) {
    const bool all = pool == pools.back();
    const std::string suffix = all ? "" : "_one_thread";
    const std::string who = all ? fmt::format("{} threads", pool->threads()) : "1 thread";
    const std::span<const std::byte> huge_bytes = huge.bytes();
    const std::span<const std::byte> small_bytes = small.bytes();
    probes->push_back({"read_bytes_per_second" + suffix, "read, 2 MiB pages, " + who, "B/s",
                       [=] { return MeasureReadRate(huge_bytes, *pool); }});
    probes->push_back({"read_small_pages_bytes_per_second" + suffix, "read, 4 KiB pages, " + who,
                       "B/s", [=] { return MeasureReadRate(small_bytes, *pool); }});
    probes->push_back({"multiply_adds_per_second" + suffix, "float32 multiply-adds, " + who, "/s",
                       [=] { return MeasureFmaRate(kPeakSampleSeconds, *pool); }});
    probes->push_back({"integer_multiply_adds_per_second" + suffix, "8-bit multiply-adds, " + who,
                       "/s", [=] { return MeasureIntegerRate(kPeakSampleSeconds, *pool); }});
  }
}

void AddDiskProbes(DiskFile* disk, std::vector<MachineProbe>* probes) {
  for (const int readers : {1, kDiskReadersMax}) {
    probes->push_back({fmt::format("disk_bytes_per_second_{}_reads", readers),
                       fmt::format("disk, 1 MiB reads, {} in flight", readers), "B/s",
                       [disk, readers] { return disk->MeasureReadRate(readers); }});
  }
}

Status RunRounds(const MachineOptions& options, const std::vector<MachineProbe>& probes,
                 MachineReport* report) {
  const Clock::time_point start = Clock::now();
  for (const MachineProbe& probe : probes) {
    report->lines.push_back({probe.name, probe.text, probe.unit, {}});
  }
  for (int64_t round = 0; round < kRoundsMax; ++round) {
    const double passed = std::chrono::duration<double>(Clock::now() - start).count();
    if (round >= kRoundsMin && passed >= options.seconds) break;
    for (size_t i = 0; i < probes.size(); ++i) {
      report->lines[i].samples.Add(TRY(probes[i].measure()));
    }
    if (!options.progress) continue;
    const double by_time = std::min(passed / options.seconds, 1.0);
    const double by_rounds = static_cast<double>(round + 1) / static_cast<double>(kRoundsMin);
    options.progress(static_cast<int64_t>(1000 * std::min(by_time, by_rounds)), 1000);
  }
  return {};
}

}  // namespace

std::string ForeignCpuWarning(double share) {
  if (share <= kForeignCpuShareMax) return {};
  return fmt::format(
      "Others used {:.1f} % of the processors during the run; figures are comparable where that is "
      "below {:.0f} %, so end what else runs and measure again.",
      100 * share, 100 * kForeignCpuShareMax);
}

Result<Ceilings> Ceilings::Create(size_t working_set_bytes, ThreadPool& pool) {
  Ceilings ceilings(pool);
  ceilings.memory_ = TRY(MapMeasuredMemory(working_set_bytes, PageSize::kHuge));
  ceilings.foreign_ = ForeignCpu();
  return ceilings;
}

void Ceilings::Measure() {
  read_.Add(MeasureReadRate(memory_.bytes(), *pool_));
  fma_.Add(MeasureFmaRate(kPeakSampleSeconds, *pool_));
}

Json Ceilings::ToJson() const {
  Json json;
  json.Set("processor", ProcessorName());
  json.Set("threads", pool_->threads());
  json.Set("read_bytes_per_second", bytes_per_second());
  json.Set("read_best_bytes_per_second", read_.Best());
  json.Set("multiply_adds_per_second", multiply_adds_per_second());
  json.Set("foreign_cpu_share", foreign_cpu_share());
  return json;
}

std::string Ceilings::ToText() const {
  return fmt::format(
      "machine: {}, {} threads; read {} (2 MiB pages), {} float32 multiply-adds\n"
      "processor time of others during the run: {:.1f} %\n",
      ProcessorName(), pool_->threads(), RateText(bytes_per_second(), "B/s"),
      RateText(multiply_adds_per_second(), "/s"), 100 * std::max(0.0, foreign_cpu_share()));
}

Json MachineReport::ToJson() const {
  Json json;
  json.Set("processor", processor);
  json.Set("threads", threads);
  json.Set("working_set_bytes", working_set_bytes);
  json.Set("huge_page_bytes", huge_page_bytes);
  for (const Line& line : lines) json.Set(line.name, SamplesJson(line.samples));
  json.Set("foreign_cpu_share", foreign_cpu_share);
  return json;
}

std::string MachineReport::ToText() const {
  std::string text = fmt::format("{}, {} threads, working set {:.2f} GB", processor, threads,
                                 static_cast<double>(working_set_bytes) / 1e9);
  if (huge_page_bytes >= 0) {
    text += fmt::format(", {:.0f} % of it in huge pages",
                        100 * static_cast<double>(std::min(huge_page_bytes, working_set_bytes)) /
                            static_cast<double>(working_set_bytes));
  }
  text += fmt::format("\n{:<36}  {:>12}  {:>12}  {:>7}\n", "", "median", "best", "samples");
  for (const Line& line : lines) {
    text += fmt::format("{:<36}  {:>12}  {:>12}  {:>7}\n", line.text,
                        RateText(line.samples.Median(), line.unit),
                        RateText(line.samples.Best(), line.unit), line.samples.count());
  }
  text += fmt::format("processor time of others during the run: {:.1f} %\n",
                      100 * std::max(0.0, foreign_cpu_share));
  return text;
}

Result<MachineReport> MeasureMachine(const MachineOptions& options) {
  MachineReport report;
  report.processor = ProcessorName();
  report.threads = options.threads;
  // First, because a folder that does not do should be told at once.
  std::unique_ptr<DiskFile> disk;
  if (!options.directory.empty()) disk = TRY(DiskFile::Create(options.directory));
  const size_t bytes = WorkingSetBytes(kWorkingSetBytes);
  report.working_set_bytes = static_cast<int64_t>(bytes);
  const int64_t huge_before = HugePageBytesInUse();
  const PageMemory huge = TRY(MapMeasuredMemory(bytes, PageSize::kHuge));
  if (huge_before >= 0) report.huge_page_bytes = HugePageBytesInUse() - huge_before;
  const PageMemory small = TRY(MapMeasuredMemory(bytes, PageSize::kSmall));

  ThreadPool one(1);
  ThreadPool all(options.threads);
  std::vector<ThreadPool*> pools = {&one};
  if (options.threads > 1) pools.push_back(&all);
  std::vector<MachineProbe> probes;
  AddMemoryProbes(huge, small, pools, &probes);
  if (disk != nullptr) AddDiskProbes(disk.get(), &probes);
  const ForeignCpu foreign;
  TRY_STATUS(RunRounds(options, probes, &report));
  report.foreign_cpu_share = foreign.Share();
  return report;
}

}  // namespace minke

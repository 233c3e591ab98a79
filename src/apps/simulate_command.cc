// minke simulate: what a prefix cache would have saved in a trace, by policy and size.
#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/common.h"
#include "apps/progress_bar.h"
#include "apps/terminal.h"
#include "core/file.h"
#include "simulator/report.h"

namespace minke {
namespace {

Result<Trace> ReadTraces(const SimulateFlags& flags, ProgressBar* bar) {
  if (flags.traces.size() > kTraceFilesMax) {
    return Fail(ErrorCode::kLimit,
                fmt::format("--trace names {} files, but {} at most are simulated together.",
                            flags.traces.size(), kTraceFilesMax));
  }
  TraceReader reader;
  for (size_t i = 0; i < flags.traces.size(); ++i) {
    bar->Show(fmt::format("reading {}", EscapeForTerminal(flags.traces[i])),
              static_cast<int64_t>(i), static_cast<int64_t>(flags.traces.size()));
    const double offset_us =
        static_cast<double>(i) * flags.stagger_seconds * kMicrosecondsPerSecond;
    TRY_STATUS(reader.AddFile(flags.traces[i], std::llround(offset_us)));
  }
  return reader.Finish();
}

// One line of the table, before it is run.
struct Job {
  std::string policy;
  Capacity capacity;
  int64_t bytes_per_token = 0;
};

Result<std::vector<Job>> MakeJobs(const SimulateFlags& flags) {
  std::vector<Job> jobs;
  for (const std::string& policy : flags.policies) {
    for (const int64_t bytes : flags.bytes_per_token) {
      for (const std::string& text : flags.capacities) {
        const Capacity capacity = TRY(ParseCapacity(text));
        if (flags.bytes_per_token.size() > 1 && capacity.unit != CapacityUnit::kBytes) {
          return Fail(
              fmt::format("Several --bytes-per-token make a difference only where "
                          "--capacity is in bytes, such as 8GiB; it is {}.",
                          capacity.text));
        }
        jobs.push_back({policy, capacity, bytes});
      }
    }
  }
  const bool curve = std::any_of(jobs.begin(), jobs.end(), [](const Job& job) {
    return job.capacity.unit != CapacityUnit::kUnlimited;
  });
  if (!flags.svg.empty() && !curve) {
    return Fail(
        "--svg draws hit rates over sizes; give at least one --capacity that is not "
        "unlimited.");
  }
  return jobs;
}

std::string TraceName(const SimulateFlags& flags) {
  std::string name = std::filesystem::path(flags.traces.front()).filename().string();
  if (flags.traces.size() > 1) name += fmt::format(" and {} more", flags.traces.size() - 1);
  return EscapeForTerminal(name);
}

Result<SimulationReport> RunJobs(const SimulateFlags& flags, const std::vector<Job>& jobs) {
  ProgressBar bar;
  const Trace trace = TRY(ReadTraces(flags, &bar));
  SimulationReport report;
  report.trace = Summarize(trace, TraceName(flags), static_cast<int64_t>(flags.traces.size()));
  report.prefill_tokens_per_second = flags.prefill_tokens_per_second;
  const auto runs = static_cast<int64_t>(jobs.size()) + 1;
  int64_t run = 0;
  std::string step = "lru, unlimited";
  const SimulationProgress progress = [&](int64_t done, int64_t total) {
    bar.Show(step, run * total + done, runs * total);
  };
  report.unlimited = TRY(Simulate(trace, "lru", kUnlimitedBlocks, progress));
  for (const Job& job : jobs) {
    ++run;
    step = fmt::format("{}, {}", job.policy, job.capacity.text);
    const int64_t blocks = TRY(job.capacity.Blocks(trace.block_tokens, job.bytes_per_token));
    SimulationRun done;
    done.result = TRY(Simulate(trace, job.policy, blocks, progress));
    done.capacity = job.capacity;
    done.bytes_per_token = job.bytes_per_token;
    report.runs.push_back(std::move(done));
  }
  return report;
}

Status PrintReport(const SimulateFlags& flags, const std::vector<Job>& jobs) {
  const SimulationReport report = TRY(RunJobs(flags, jobs));
  if (!flags.svg.empty()) {
    const std::string svg = report.ToSvg();
    TRY_STATUS(WriteFile(flags.svg, std::as_bytes(std::span(svg))));
  }
  if (flags.json) {
    std::cout << DumpJson(report.ToJson(), JsonStyle::kPretty) << '\n';
  } else {
    std::cout << report.ToText();
  }
  return {};
}

}  // namespace

int RunSimulate(const SimulateFlags& flags) {
  const Result<std::vector<Job>> jobs = MakeJobs(flags);
  if (!jobs) {
    PrintError(jobs.error());
    return kExitUsage;
  }
  const Status status = PrintReport(flags, *jobs);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

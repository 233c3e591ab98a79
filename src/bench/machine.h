// minke bench machine: the ceilings of this machine, and the part of them that every other
// measurement takes along.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "bench/foreign_cpu.h"
#include "bench/measured_memory.h"
#include "bench/samples.h"
#include "core/json.h"
#include "core/result.h"
#include "core/thread_pool.h"

namespace minke {

// The working set that the read bandwidth beside another figure is measured on.
inline constexpr size_t kBandwidthBytes = size_t{1} << 30;

// Read bandwidth beyond the caches with huge pages and multiply-adds per second, all threads of a
// pool, measured again and again between the samples of something else.
class Ceilings {
 public:
  // working_set_bytes: what a pass reads, see WorkingSetBytes(). `pool` outlives it.
  static Result<Ceilings> Create(size_t working_set_bytes, ThreadPool& pool);

  // One sample of each, about 0.1 s.
  void Measure();

  double bytes_per_second() const { return read_.Median(); }
  double multiply_adds_per_second() const { return fma_.Median(); }
  // Of the last sample.
  double last_bytes_per_second() const { return read_.Last(); }
  double last_multiply_adds_per_second() const { return fma_.Last(); }
  // Of the whole run since Create().
  double foreign_cpu_share() const { return foreign_.Share(); }
  int threads() const { return pool_->threads(); }
  // machine: {threads, read_bytes_per_second, multiply_adds_per_second, foreign_cpu_share ...}
  Json ToJson() const;
  // Two lines for a person: the ceilings, and what others took of the processors.
  std::string ToText() const;

 private:
  explicit Ceilings(ThreadPool& pool) : pool_(&pool) {}

  ThreadPool* pool_;
  PageMemory memory_;
  Samples read_;
  Samples fma_;
  ForeignCpu foreign_;
};

// The sentence of a report whose foreign share is above kForeignCpuShareMax, otherwise nothing.
std::string ForeignCpuWarning(double share);

struct MachineOptions {
  int threads = 1;
  double seconds = 10;    // for the whole measurement, the disk's file not counted
  std::string directory;  // where the disk is measured; empty: not at all
  std::function<void(int64_t done, int64_t total)> progress;  // may be empty
};

struct MachineReport {
  std::string processor;
  int threads = 1;
  int64_t working_set_bytes = 0;
  int64_t huge_page_bytes = -1;  // of the working set with huge pages; -1: unknown
  struct Line {
    std::string name;  // of the JSON member
    std::string text;  // for a person
    std::string unit;  // "B/s" or "/s"
    Samples samples;
  };
  std::vector<Line> lines;
  double foreign_cpu_share = 0;

  Json ToJson() const;
  std::string ToText() const;
};

// Rounds over everything until the time is over, at least kRoundsMin of them. Errors: no memory; a
// disk that cannot be measured (DiskFile::Create).
Result<MachineReport> MeasureMachine(const MachineOptions& options);

}  // namespace minke

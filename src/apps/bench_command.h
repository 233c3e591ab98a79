// minke bench: how fast this machine is, how fast the engine is on it, and how far that is from the
// machine's bounds.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/commands.h"
#include "core/json.h"

namespace minke {

inline constexpr double kBenchSecondsMin = 1;
inline constexpr double kBenchSecondsMax = 3600;

struct BenchMachineFlags {
  int threads = 0;
  double seconds = 10;
  std::string dir;  // empty: the disk is not measured
  bool json = false;
};

struct BenchKernelsFlags {
  int threads = 0;
  std::vector<std::string> formats = {"fp4", "fp8", "bf16"};
  std::vector<int64_t> rows = {1, 2, 4, 8, 64, 512};
  std::vector<std::string> shapes;
  int64_t rounds = 5;
  std::string memory = "1536MiB";
  std::string kernels = "fast";
  std::string plot;  // empty: none
  uint64_t seed = 1;
  bool json = false;
};

struct BenchSynthFlags {
  int threads = 0;
  std::string config;
  std::string layers;
  int64_t experts = 32;
  int64_t vocab = 0;      // 0: the config's
  std::string tokenizer;  // a model folder; empty: as FindModelDir() finds one
  std::string out;
  uint64_t seed = 1;
  bool json = false;
};

// Of a command that runs a model.
struct BenchModelFlags {
  ModelFlags model;
  uint64_t seed = 1;
  bool json = false;
};

struct BenchDecodeFlags : BenchModelFlags {
  std::string disk_dir;  // empty: the model's
  int64_t tokens = 16;
  int64_t context = 1024;
  int64_t sequences = 1;
};

struct BenchContextFlags : BenchModelFlags {
  int64_t tokens = 8;
  std::vector<int64_t> contexts = {1024, 16384, 131072, 1048000};
  std::string plot;  // empty: none
};

struct BenchPrefillFlags : BenchModelFlags {
  int64_t tokens = 0;  // 0: rows
  int64_t rows = 512;
  int64_t context = 0;
  std::string prefill = "exact";
  int64_t rounds = 5;
};

struct BenchFlags {
  BenchDecodeFlags decode;
  BenchContextFlags context;
  BenchPrefillFlags prefill;
  BenchSynthFlags synth;
  BenchMachineFlags machine;
  BenchKernelsFlags kernels;
};

int RunBenchMachine(const BenchMachineFlags& flags);
int RunBenchKernels(const BenchKernelsFlags& flags);
int RunBenchSynth(const BenchSynthFlags& flags);
int RunBenchDecode(const BenchDecodeFlags& flags);
int RunBenchContext(const BenchContextFlags& flags);
int RunBenchPrefill(const BenchPrefillFlags& flags);
// The report on stdout, as JSON or as text; a note on stderr where others took more than
// kForeignCpuShareMax of the processors.
void PrintBenchReport(const Json& report, const std::string& text, bool json,
                      double foreign_cpu_share);
// Runs the command of minke bench that the command line named.
int RunBench(const CLI::App& bench, const BenchFlags& flags);
// Adds the command with its own commands. `flags` outlives the app.
CLI::App* AddBench(CLI::App& app, BenchFlags* flags);

}  // namespace minke

// How soon the first token of a long conversation comes after a restart, against a cold start:
// restart_bench MODEL_DIR [TOKENS [ROUNDS]]. Cold and restarted runs alternate; each opens the
// engine anew, and the restarted one finds a directory that an earlier engine left. The times are
// from the request to the first token, medians of ROUNDS.
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace minke {
namespace {

constexpr int kRoundsDefault = 5;
constexpr size_t kTokensDefault = 8000;

[[noreturn]] void Stop(const std::string& message) {
  std::fprintf(stderr, "restart_bench: %s\n", message.c_str());
  std::exit(1);
}

std::vector<int32_t> Prompt(size_t count) {
  std::vector<int32_t> ids = {0};
  while (ids.size() < count) ids.push_back(static_cast<int32_t>(3 + ids.size() * 7919 % 470));
  return ids;
}

struct Run {
  double first_token_seconds = 0;
  int64_t cached_tokens = 0;
  std::vector<float> logits;
};

Run FirstToken(const std::string& model_dir, const std::string& disk_dir, PrefillMode mode,
               const std::vector<int32_t>& prompt) {
  EngineOptions options;
  options.model_dir = model_dir;
  options.prefill = mode;
  options.cache.disk_dir = disk_dir;
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  if (!engine) Stop(engine.error().message);
  Run run;
  GenerationOptions generation;
  generation.max_tokens = 1;
  const auto start = std::chrono::steady_clock::now();
  generation.on_token = [&](const TokenEvent& event) {
    if (!run.logits.empty()) return;
    run.first_token_seconds =
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    run.logits.assign(event.logits.begin(), event.logits.end());
  };
  const auto session = (*engine)->NewSession();
  const Result<GenerationResult> result = (*engine)->Generate(*session, prompt, generation);
  if (!result) Stop(result.error().message);
  run.cached_tokens = result->cache.cached_tokens;
  return run;
}

double Median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values[values.size() / 2];
}

int Main(int argc, char** argv) {
  if (argc < 2) Stop("name a model directory");
  const size_t tokens = argc > 2 ? static_cast<size_t>(std::atoll(argv[2])) : kTokensDefault;
  const int rounds = argc > 3 ? std::atoi(argv[3]) : kRoundsDefault;
  const std::string disk_dir =
      (std::filesystem::temp_directory_path() / ("restart_bench_" + std::to_string(::getpid())))
          .string();
  const std::vector<int32_t> prompt = Prompt(tokens);
  for (const PrefillMode mode : {PrefillMode::kExact, PrefillMode::kReplay}) {
    std::filesystem::remove_all(disk_dir);
    FirstToken(argv[1], disk_dir, mode, prompt);
    std::vector<double> cold;
    std::vector<double> warm;
    bool same = true;
    int64_t cached = 0;
    for (int round = 0; round < rounds; ++round) {
      const Run a = FirstToken(argv[1], "", mode, prompt);
      const Run b = FirstToken(argv[1], disk_dir, mode, prompt);
      cold.push_back(a.first_token_seconds);
      warm.push_back(b.first_token_seconds);
      cached = b.cached_tokens;
      same = same && a.logits == b.logits;
    }
    std::printf(
        "%-6s %zu tokens: cold %.3f s, restarted %.4f s, ratio %.1f; %lld tokens cached, "
        "logits %s\n",
        PrefillModeName(mode), tokens, Median(cold), Median(warm), Median(cold) / Median(warm),
        static_cast<long long>(cached), same ? "equal" : "DIFFER");
    if (!same) return 1;
  }
  std::filesystem::remove_all(disk_dir);
  return 0;
}

}  // namespace
}  // namespace minke

int main(int argc, char** argv) {
  return minke::Main(argc, argv);
}

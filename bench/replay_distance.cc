// How far replay prefill is from exact prefill: replay_distance MODEL_DIR [PROMPTS].
// For prompts of growing length, the KL divergence (exact || replay, natural logarithm) of the next
// token and whether the greedy token and the following greedy text agree; once for a prompt read
// cold in replay mode, and once for one that continues a cached beginning by replay.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace minke {
namespace {

constexpr int kPromptsDefault = 24;
constexpr int64_t kGreedyTokens = 16;
constexpr size_t kFirstLength = 150;
constexpr size_t kLengthStep = 37;

[[noreturn]] void Stop(const std::string& message) {
  std::fprintf(stderr, "replay_distance: %s\n", message.c_str());
  std::exit(1);
}

std::unique_ptr<Engine> Open(const std::string& model_dir, PrefillMode mode) {
  EngineOptions options;
  options.model_dir = model_dir;
  options.prefill = mode;
  Result<std::unique_ptr<Engine>> engine = Engine::Open(options);
  if (!engine) Stop(engine.error().message);
  return std::move(engine).value();
}

std::vector<int32_t> Prompt(size_t count, uint64_t seed) {
  std::vector<int32_t> ids = {0};
  uint64_t state = seed * 2654435761U + 1;
  while (ids.size() < count) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    ids.push_back(static_cast<int32_t>(3 + (state >> 33) % 470));
  }
  return ids;
}

struct Answer {
  std::vector<float> logits;  // of the first token
  std::vector<int32_t> ids;
  int64_t replayed = 0;
};

Answer Ask(const Engine& engine, const std::vector<int32_t>& prompt) {
  Answer answer;
  GenerationOptions options;
  options.max_tokens = kGreedyTokens;
  options.ignore_eos = true;
  options.on_token = [&](const TokenEvent& event) {
    if (answer.logits.empty()) answer.logits.assign(event.logits.begin(), event.logits.end());
  };
  const auto session = engine.NewSession();
  Result<GenerationResult> result = engine.Generate(*session, prompt, options);
  if (!result) Stop(result.error().message);
  answer.ids = result->ids;
  answer.replayed = result->cache.replayed_tokens;
  return answer;
}

std::vector<double> LogProbabilities(const std::vector<float>& logits) {
  const double top = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(logit - top);
  std::vector<double> result;
  for (const float logit : logits) result.push_back(logit - top - std::log(sum));
  return result;
}

double Divergence(const Answer& exact, const Answer& other) {
  const std::vector<double> p = LogProbabilities(exact.logits);
  const std::vector<double> q = LogProbabilities(other.logits);
  double sum = 0;
  for (size_t i = 0; i < p.size(); ++i) sum += std::exp(p[i]) * (p[i] - q[i]);
  return sum;
}

struct Tally {
  std::vector<double> divergence;
  int first_equal = 0;
  double text_equal = 0;  // share of the greedy tokens before the first difference

  void Add(const Answer& exact, const Answer& other) {
    divergence.push_back(Divergence(exact, other));
    first_equal += exact.ids.front() == other.ids.front() ? 1 : 0;
    const auto parted =
        std::mismatch(exact.ids.begin(), exact.ids.end(), other.ids.begin(), other.ids.end());
    text_equal += static_cast<double>(parted.first - exact.ids.begin()) /
                  static_cast<double>(exact.ids.size());
  }
  void Print(const char* name) {
    std::sort(divergence.begin(), divergence.end());
    const auto count = static_cast<double>(divergence.size());
    double mean = 0;
    for (const double value : divergence) mean += value / count;
    std::printf(
        "%-8s KL mean %.6f, median %.6f, max %.6f; next token equal %d of %zu; greedy text "
        "equal for %.1f %% of %lld tokens\n",
        name, mean, divergence[divergence.size() / 2], divergence.back(), first_equal,
        divergence.size(), 100 * text_equal / count, static_cast<long long>(kGreedyTokens));
  }
};

int Main(int argc, char** argv) {
  if (argc < 2) Stop("name a model directory");
  const int prompts = argc > 2 ? std::atoi(argv[2]) : kPromptsDefault;
  const auto exact = Open(argv[1], PrefillMode::kExact);
  const auto replay = Open(argv[1], PrefillMode::kReplay);
  Tally cold;
  Tally resumed;
  for (int i = 0; i < prompts; ++i) {
    const size_t length = kFirstLength + kLengthStep * static_cast<size_t>(i);
    std::vector<int32_t> prompt = Prompt(length, static_cast<uint64_t>(i));
    const Answer truth = Ask(*exact, prompt);
    cold.Add(truth, Ask(*replay, prompt));
    // Another ending first, so that this prompt diverges from a known one and replays.
    std::vector<int32_t> other(prompt.begin(), prompt.end() - 20);
    replay->DropCacheMemory();
    other.insert(other.end(), 20, 5);
    Ask(*replay, other);
    const Answer again = Ask(*replay, prompt);
    if (again.replayed > 0) resumed.Add(truth, again);
  }
  cold.Print("cold");
  if (!resumed.divergence.empty()) resumed.Print("resumed");
  return 0;
}

}  // namespace
}  // namespace minke

int main(int argc, char** argv) {
  return minke::Main(argc, argv);
}

// Flags of the commands about the cache: their limits and their help.
#include <string>

#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "prefix_cache/eviction.h"
#include "simulator/capacity.h"

namespace minke {
namespace {

constexpr int64_t kBytesPerTokenMax = int64_t{1} << 30;
constexpr double kStaggerSecondsMax = 1e6;
constexpr double kPrefillTokensPerSecondMax = 1e12;

std::string CheckCapacity(const std::string& text) {
  const Result<Capacity> capacity = ParseCapacity(text);
  return capacity ? std::string() : capacity.error().message;
}

}  // namespace

CLI::App* AddSimulate(CLI::App& app, SimulateFlags* flags) {
  CLI::App* command = app.add_subcommand(
      "simulate", "What a prefix cache of some size would save in a published trace");
  command
      ->add_option("--trace", flags->traces,
                   "Mooncake traces (JSON lines) or agent sessions (JSON), recognised by their "
                   "content; several files run side by side and share nothing")
      ->type_name("FILE...")
      ->required();
  command
      ->add_option("--capacity", flags->capacities,
                   "Sizes of the cache: 10000blk, 512MiB, 8GiB, unlimited; several, separated by "
                   "commas, give a curve (default: unlimited)")
      ->type_name("SIZE,...")
      ->delimiter(',')
      ->check(CheckCapacity);
  command
      ->add_option("--policy", flags->policies,
                   "What is evicted first: lru, fifo, lfu, lru-2 (over leaves), lru-flat, or "
                   "belady, which knows the future and bounds the others (default: lru)")
      ->type_name("NAME,...")
      ->delimiter(',')
      ->check(CLI::IsMember(EvictionPolicyNames()));
  command
      ->add_option("--bytes-per-token", flags->bytes_per_token,
                   "What a token takes, for sizes in bytes; several, separated by commas, are "
                   "compared (default: 890, of the released model)")
      ->type_name("N,...")
      ->delimiter(',')
      ->check(CLI::Range(int64_t{1}, kBytesPerTokenMax));
  command
      ->add_option("--stagger", flags->stagger_seconds,
                   "Each file begins this long after the one before (default: all at once)")
      ->type_name("SECONDS")
      ->check(CLI::Range(0.0, kStaggerSecondsMax));
  command
      ->add_option("--prefill-tokens-per-second", flags->prefill_tokens_per_second,
                   "Tell the cost of misses in seconds, too")
      ->type_name("N")
      ->check(CLI::Range(1e-3, kPrefillTokensPerSecondMax));
  command->add_flag("--json", flags->json,
                    "For programs: trace, runs with policy, capacity, block_hit_rate, "
                    "token_hit_rate, recomputed_tokens, gaps and more");
  command
      ->add_option("--svg", flags->svg, "Write a plot: hit rate over capacity, a line per policy")
      ->type_name("FILE");
  command->footer(
      "Docs: docs/simulator.md.\n"
      "Examples:\n"
      "  minke simulate --trace mooncake_conversation.jsonl --capacity 10000blk\n"
      "  minke simulate --trace t.jsonl --capacity 1000blk,10000blk,100000blk \\\n"
      "      --policy lru,lfu,belady --svg curve.svg\n"
      "  minke simulate --trace agent/*.json --capacity 64MiB,256MiB,1GiB \\\n"
      "      --bytes-per-token 890,3514 --json");
  return command;
}

}  // namespace minke

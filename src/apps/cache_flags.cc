// Flags of the commands about the cache: their limits and their help.
#include <string>

#include <CLI/CLI.hpp>

#include "apps/commands.h"
#include "apps/flag_checks.h"
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

void AddCacheIdentityFlags(CLI::App& command, CacheFlags* flags) {
  command
      .add_option(
          "--kv-disk", flags->kv_disk,
          "Keep what was read in this directory too, so that it outlives the process; none: in "
          "memory alone")
      ->type_name("DIR")
      ->check(NotEmpty("a directory"))
      ->group("Cache");
  command
      .add_option("--prefill", flags->prefill,
                  "exact: every layer reads every token, all ways to an answer give the same bits; "
                  "replay: upper layers read the last window only, about half the work")
      ->check(CLI::IsMember({"exact", "replay"}))
      ->type_name("MODE")
      ->capture_default_str()
      ->group("Cache");
  command.add_option("--tenant", flags->tenant, "Whose cache it is; tenants share nothing")
      ->type_name("NAME")
      ->group("Cache");
}

void AddCacheFlags(CLI::App& command, CacheFlags* flags) {
  const auto size = [&](const char* name, std::string* value, const char* help) {
    command.add_option(name, *value, help)->type_name("SIZE")->check(CheckByteSize)->group("Cache");
  };
  AddCacheIdentityFlags(command, flags);
  size("--kv-ram", &flags->kv_ram,
       "Memory for the rows of all tokens, such as 8GiB; never exceeded (default: a quarter of the "
       "machine's, at most 8GiB)");
  size("--snapshot-budget", &flags->snapshot_budget,
       "Memory for snapshots, from which exact prefill continues (default: an eighth of --kv-ram)");
  size("--kv-disk-budget", &flags->kv_disk_budget,
       "Most that the directory may take on disk (default: 64GiB)");
  size("--kv-disk-write-limit", &flags->kv_disk_write_limit,
       "Most that this process writes there in an hour (default: 64GiB)");
}

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
      ->check(NumberIn(0, kStaggerSecondsMax));
  command
      ->add_option("--prefill-tokens-per-second", flags->prefill_tokens_per_second,
                   "Tell the cost of misses in seconds, too")
      ->type_name("N")
      ->check(NumberIn(1e-3, kPrefillTokensPerSecondMax));
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

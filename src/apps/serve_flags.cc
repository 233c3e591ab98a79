// Flags of minke serve: their limits and their help.
#include <CLI/CLI.hpp>

#include "apps/flag_checks.h"
#include "apps/serve_command.h"
#include "engine/service.h"

namespace minke {
namespace {

constexpr double kSecondsMax = 86'400;
constexpr int64_t kQueuedMax = 1'000'000;

void AddAccessFlags(CLI::App& command, ServeFlags* flags) {
  command
      .add_option("--host", flags->host,
                  "Address to listen on; others than loopback need --api-key-file")
      ->type_name("ADDRESS")
      ->capture_default_str()
      ->group("Access");
  command.add_option("--port", flags->port, "Port to listen on; 0: any free one")
      ->capture_default_str()
      ->group("Access");
  command
      .add_option("--api-key-file", flags->api_key_file,
                  "Lines of a name and a key; clients send one of the keys as Bearer or x-api-key")
      ->type_name("FILE")
      ->group("Access");
  command
      .add_flag("--allow-remote-without-key", flags->allow_remote_without_key,
                "Let other machines in without a key")
      ->group("Access");
  command
      .add_option("--cors", flags->cors,
                  "Origins whose pages may call from a browser, such as http://localhost:3000")
      ->type_name("ORIGIN,...")
      ->delimiter(',')
      ->group("Access");
}

void AddTableFlags(CLI::App& command, ServeFlags* flags) {
  command
      .add_option("--models", flags->models,
                  "Names and aliases of the model (docs/formats/model_table.md)")
      ->type_name("FILE")
      ->group("Tables");
  command.add_option("--prices", flags->prices, "Prices of tokens (docs/formats/prices.md)")
      ->type_name("FILE")
      ->group("Tables");
  command
      .add_option("--ledger", flags->ledger,
                  "Where sums by key and day are kept, for minke cost; \"none\": nowhere (default: "
                  "minke/ledger.sqlite in $XDG_STATE_HOME, else in ~/.local/state)")
      ->type_name("FILE")
      ->group("Tables");
}

void AddBehaviourFlags(CLI::App& command, ServeFlags* flags) {
  command
      .add_flag("--prewarm", flags->model.prewarm,
                "Read the whole checkpoint into memory first, with a progress bar")
      ->excludes("--weights-ram")
      ->excludes("--weights-memory");
  command.add_option("--running", flags->running, "Requests that are read or written side by side")
      ->type_name("N")
      ->check(CLI::Range(int64_t{1}, kRunningMax))
      ->capture_default_str()
      ->group("Requests");
  command.add_option("--queued", flags->queued, "Requests that may wait; more get a 503")
      ->type_name("N")
      ->check(CLI::Range(int64_t{0}, kQueuedMax))
      ->capture_default_str()
      ->group("Requests");
  const auto seconds = [&](const char* name, double* value, const char* help) {
    command.add_option(name, *value, help)
        ->type_name("SECONDS")
        ->check(NumberIn(0, kSecondsMax))
        ->capture_default_str()
        ->group("Requests");
  };
  seconds("--queue-seconds", &flags->queue_seconds, "Longest wait before the start; 0: no limit");
  seconds("--stall-seconds", &flags->stall_seconds,
          "A step that hangs for so long ends its requests with an error; 0: never");
  seconds("--drain-seconds", &flags->drain_seconds,
          "How long running requests may go on after SIGTERM or Ctrl-C");
  seconds("--keep-alive-seconds", &flags->keep_alive_seconds,
          "A waiting client hears something as often as this; 0: nothing");
  command
      .add_flag("--no-comments", flags->no_comments,
                "Send no comments in streams, for clients that fail on them")
      ->group("Requests");
  command
      .add_flag("--strict-reasoning", flags->strict_reasoning,
                "Refuse histories with tool calls whose reasoning was not passed back, as the "
                "hosted service does")
      ->group("Requests");
}

}  // namespace

CLI::App* AddServe(CLI::App& app, ServeFlags* flags) {
  CLI::App* command =
      app.add_subcommand("serve", "Serve the OpenAI, Responses and Anthropic APIs and a web page");
  AddModelFlags(*command, &flags->model);
  AddCacheFlags(*command, &flags->cache);
  AddAccessFlags(*command, flags);
  AddTableFlags(*command, flags);
  AddBehaviourFlags(*command, flags);
  command
      ->add_flag("--vllm-metrics", flags->vllm_metrics,
                 "Print the names that vLLM's dashboards know, too")
      ->group("Log");
  command->add_flag("--log", flags->log, "A line of JSON on standard error for each request")
      ->group("Log");
  command
      ->add_flag("--log-prompts", flags->log_prompts,
                 "The same with the bodies of requests; they may hold secrets")
      ->group("Log");
  command->footer(
      "Without --kv-disk, what was read is kept in minke/kv/MODEL in $XDG_CACHE_HOME, else in\n"
      "~/.cache; --kv-disk none keeps it in memory alone.\n"
      "Docs: docs/server.md.\n"
      "Examples:\n"
      "  minke serve\n"
      "  minke serve --model DIR --kv-ram 32GiB --kv-disk /var/lib/minke/kv\n"
      "  minke serve --host 0.0.0.0 --api-key-file keys.txt");
  return command;
}

}  // namespace minke

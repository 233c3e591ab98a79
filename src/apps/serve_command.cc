// minke serve: opens the model, serves until it is told to end, and ends in order.
#include "apps/serve_command.h"

#include <sys/resource.h>

#include <filesystem>
#include <iostream>
#include <mutex>
#include <utility>

#include <fmt/format.h>

#include "apps/client_settings.h"
#include "apps/common.h"
#include "apps/cost_command.h"
#include "apps/interrupts.h"
#include "apps/terminal.h"
#include "core/file.h"
#include "server/server.h"

namespace minke {
namespace {

Result<ServerOptions> MakeServerOptions(const ServeFlags& flags) {
  ServerOptions options;
  options.http.address = flags.host;
  options.http.port = flags.port;
  options.allow_remote_without_key = flags.allow_remote_without_key;
  options.api_key_file = flags.api_key_file;
  options.model_table_file = flags.models;
  options.price_file = flags.prices;
  if (flags.ledger != "none") options.ledger_file = TRY(FindLedger(flags.ledger));
  options.cors_origins = flags.cors;
  options.strict_reasoning = flags.strict_reasoning;
  options.keep_alive_comments = !flags.no_comments;
  options.keep_alive_seconds = flags.keep_alive_seconds;
  options.vllm_metrics = flags.vllm_metrics;
  options.log_prompts = flags.log_prompts;
  options.version = MINKE_VERSION;
  if (flags.log || flags.log_prompts) {
    options.log = [mutex = std::make_shared<std::mutex>()](std::string_view line) {
      const std::scoped_lock lock(*mutex);
      std::cerr << line << '\n';
    };
  }
  return options;
}

// Where conversations are kept if nothing is said: they are to outlive the server. Each model has a
// directory of its own, because a directory belongs to one model.
Result<std::string> FindCacheDir(const CacheFlags& flags, const std::string& model_dir) {
  if (!flags.kv_disk.empty()) return DiskDirectory(flags);
  const std::string cache = TRY(FindUserDir("XDG_CACHE_HOME", ".cache", "--kv-disk DIR"));
  const std::filesystem::path model = std::filesystem::absolute(model_dir).lexically_normal();
  const std::string name =
      model.has_filename() ? model.filename().string() : model.parent_path().filename().string();
  return JoinPath(cache, "minke/kv/" + name);
}

std::string TurnsFileOf(std::string cache_dir) {
  while (cache_dir.size() > 1 && cache_dir.back() == '/') cache_dir.pop_back();
  return cache_dir + ".turns";
}

// Every client is an open file; systems begin with few and allow more.
void AllowManyFiles() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  static_cast<void>(setrlimit(RLIMIT_NOFILE, &limit));  // with fewer, connections wait
}

Status Serve(const ServeFlags& flags) {
  // Before any other thread, so that all of them leave the signals alone.
  Interrupts interrupts = TRY(Interrupts::Create());
  AllowManyFiles();
  ServerOptions options = TRY(MakeServerOptions(flags));
  CacheFlags cache = flags.cache;
  const std::string model_dir = TRY(FindModelDir(flags.model.model_dir));
  cache.kv_disk = TRY(FindCacheDir(cache, model_dir));
  // Beside the directory, which is the cache's alone.
  if (!cache.kv_disk.empty()) options.turns_file = TurnsFileOf(cache.kv_disk);
  std::unique_ptr<Engine> engine = TRY(OpenEngine(flags.model, cache));
  const int64_t context_tokens_max = engine->info().context_tokens_max;
  ServiceOptions service_options;
  service_options.running_max = flags.running;
  service_options.queued_max = flags.queued;
  service_options.step_rows_max = flags.model.prefill_chunk;
  service_options.queue_seconds_max = flags.queue_seconds;
  service_options.stall_seconds_max = flags.stall_seconds;
  std::unique_ptr<Service> service = TRY(Service::Start(std::move(engine), service_options));
  std::unique_ptr<Server> server = TRY(Server::Start(options, std::move(service)));
  for (const std::string& warning : server->warnings()) PrintNote(warning);
  std::cout << fmt::format(
      "Serving at {0} (Ctrl-C ends it)\n\n{1}\n"
      "Model name: deepseek-flash. Limits, prices and metrics: docs/server.md\n",
      server->url(),
      ClientSettings(server->url(), context_tokens_max, !flags.api_key_file.empty()));
  std::cout.flush();

  constexpr int kNoFile = -1;  // poll() overlooks it
  interrupts.Wait(kNoFile);
  PrintNote(fmt::format("{}: running requests have {:g} s to end; once more ends at once.",
                        interrupts.Name(), flags.drain_seconds));
  std::atomic<bool> interrupted = true;  // so the next one is the second
  const Result<std::unique_ptr<InterruptWatch>> watch =
      InterruptWatch::Start(interrupts, interrupted, /*second_exits=*/true);
  // What runs may still end in order.
  if (!watch) PrintNote(fmt::format("once more is not heard. {}", watch.error().message));
  if (!server->Drain(flags.drain_seconds)) {
    PrintNote("not every answer was complete by then; what was read is cached.");
  }
  server.reset();  // while a second signal is heard: a step may take its time
  return {};
}

}  // namespace

int RunServe(const ServeFlags& flags) {
  const Status status = Serve(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

// The real server, service, engine, cache, tokenizer and parser, with a script in place of the
// model's arithmetic: what clients of other people are tried against (tests/clients), and what
// tests stop and start as a process of its own.
//
//   scripted_server --model DIR --script FILE [--port N] [--cache-dir DIR] [--step-delay-us N]
//                   [--context N] [--api-key-file FILE]
//
// FILE is a JSON list of {"pattern", "answer"} (tests/support/scripted_model.h); the first that
// fits is said. The first line of standard output is "Serving at URL", then comes what minke serve
// prints for each client; standard error gets one line of JSON for each request. SIGTERM ends the
// server in order.
#include <atomic>
#include <charconv>
#include <cstdint>
#include <iostream>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>

#include "apps/client_settings.h"
#include "apps/interrupts.h"
#include "core/file.h"
#include "core/json.h"
#include "server/server.h"
#include "tests/support/scripted_model.h"

namespace minke::testing {
namespace {

constexpr uint64_t kScriptBytesMax = uint64_t{16} << 20;
constexpr double kDrainSecondsMax = 20;

using FlagMap = std::map<std::string, std::string, std::less<>>;

Result<FlagMap> ReadScriptedFlags(int argc, char** argv) {
  FlagMap flags = {{"--model", ""},         {"--script", ""},   {"--port", "0"},
                   {"--cache-dir", ""},     {"--context", "0"}, {"--api-key-file", ""},
                   {"--step-delay-us", "0"}};
  for (int i = 1; i < argc; i += 2) {
    const auto flag = flags.find(argv[i]);
    if (flag == flags.end() || i + 1 == argc) {
      return Fail(std::string(argv[i]) + " is no flag of scripted_server, or has no value.");
    }
    flag->second = argv[i + 1];
  }
  return flags;
}

Result<int64_t> NumberOf(const FlagMap& flags, std::string_view name, int64_t max) {
  const std::string& text = flags.find(name)->second;
  int64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0 || number > max) {
    return Fail(std::string(name) + " is " + text + ", expected a number of at most " +
                std::to_string(max) + ".");
  }
  return number;
}

Result<std::string> TextOf(const Json& entry, const char* name, const std::string& path) {
  const Json* text = entry.Find(name);
  if (text == nullptr || !text->is_string()) {
    return Fail("an entry of " + path + " has no text named " + name + ".");
  }
  return text->as_string();
}

Result<ScriptedModelOptions> ReadScript(const std::string& path) {
  const std::string text = TRY(ReadFile(path, kScriptBytesMax));
  const Json json = TRY(ParseJson(text, path));
  if (!json.is_array()) return Fail(path + " is no list of scripts.");
  ScriptedModelOptions options;
  for (const Json& entry : json.as_array()) {
    std::string pattern = TRY(TextOf(entry, "pattern", path));
    std::string answer = TRY(TextOf(entry, "answer", path));
    options.scripts.push_back({std::move(pattern), std::move(answer)});
  }
  return options;
}

Result<std::unique_ptr<Server>> StartScripted(const FlagMap& flags, ScriptedModel* model,
                                              int64_t* context_tokens_max) {
  EngineOptions engine_options;
  engine_options.model_dir = flags.find("--model")->second;
  engine_options.threads = 1;
  engine_options.context_tokens_max = TRY(NumberOf(flags, "--context", INT32_MAX));
  engine_options.cache.disk_dir = flags.find("--cache-dir")->second;
  engine_options.forward = model->function();
  std::unique_ptr<Engine> engine = TRY(Engine::Open(engine_options));
  *context_tokens_max = engine->info().context_tokens_max;
  std::unique_ptr<Service> service = TRY(Service::Start(std::move(engine), {}));
  ServerOptions options;
  options.http.port = static_cast<uint16_t>(TRY(NumberOf(flags, "--port", UINT16_MAX)));
  options.api_key_file = flags.find("--api-key-file")->second;
  if (!engine_options.cache.disk_dir.empty()) {
    options.turns_file = engine_options.cache.disk_dir + ".turns";
  }
  options.version = "0";
  options.log = [mutex = std::make_shared<std::mutex>()](std::string_view line) {
    const std::scoped_lock lock(*mutex);
    std::cerr << line << '\n';
  };
  return Server::Start(options, std::move(service));
}

Status ServeScript(int argc, char** argv) {
  // Before any other thread, so that all of them leave the signals alone.
  Interrupts interrupts = TRY(Interrupts::Create());
  const FlagMap flags = TRY(ReadScriptedFlags(argc, argv));
  ScriptedModelOptions script = TRY(ReadScript(flags.find("--script")->second));
  constexpr int64_t kStepDelayMax = 10'000'000;  // microseconds
  script.step_delay =
      std::chrono::microseconds(TRY(NumberOf(flags, "--step-delay-us", kStepDelayMax)));
  const std::unique_ptr<ScriptedModel> model =
      TRY(ScriptedModel::Create(flags.find("--model")->second, std::move(script)));
  int64_t context_tokens_max = 0;
  const std::unique_ptr<Server> server =
      TRY(StartScripted(flags, model.get(), &context_tokens_max));
  const bool keys = !flags.find("--api-key-file")->second.empty();
  std::cout << "Serving at " << server->url() << "\n\n"
            << ClientSettings(server->url(), context_tokens_max, keys) << std::flush;
  constexpr int kNoFile = -1;  // poll() overlooks it
  interrupts.Wait(kNoFile);
  std::atomic<bool> interrupted = true;  // so the next one is the second
  const std::unique_ptr<InterruptWatch> watch =
      TRY(InterruptWatch::Start(interrupts, interrupted, /*second_exits=*/true));
  if (!server->Drain(kDrainSecondsMax)) return Fail("requests that still ran were cut off.");
  return {};
}

}  // namespace
}  // namespace minke::testing

// What can be thrown is that memory ran out, and then there is nothing to say.
// NOLINTNEXTLINE(bugprone-exception-escape)
int main(int argc, char** argv) {
  const minke::Status status = minke::testing::ServeScript(argc, argv);
  if (status) return 0;
  std::cerr << "scripted_server: error: " << status.error().message << '\n';
  return 1;
}

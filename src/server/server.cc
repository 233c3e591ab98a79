#include "server/server.h"

#include <malloc.h>

#include <algorithm>
#include <ctime>
#include <exception>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "core/thread_start.h"
#include "server/request_guard.h"
#include "server/server_impl.h"
#include "text/control_tokens.h"

namespace minke {
namespace {

constexpr int kRequestThreads = 2;                             // that read and encode
constexpr size_t kRequestsWaitingMax = 1024;                   // for one of them
constexpr size_t kRequestBytesWaitingMax = size_t{256} << 20;  // of their bodies
constexpr uint64_t kTableFileBytesMax = uint64_t{1} << 20;

Result<ModelTable> ReadModelTable(const std::string& path) {
  const std::string text = TRY(ReadFile(path, kTableFileBytesMax));
  return ModelTable::Parse(TRY(ParseJson(text, path)), path);
}

Status CheckAddress(const ServerOptions& options) {
  if (IsLoopbackAddress(options.http.address) || options.allow_remote_without_key ||
      !options.api_key_file.empty()) {
    return {};
  }
  return Fail(fmt::format(
      "--host {} lets other machines in, and there are no API keys: anybody who reaches this "
      "machine could use the model and read cached prompts' timing. Give --api-key-file, or "
      "--allow-remote-without-key if the network is yours alone.",
      options.http.address));
}

}  // namespace

Server::Impl::~Impl() {
  // Sockets end first, so that nothing new comes; then whatever runs is cancelled and told.
  http.reset();
  ticker = {};
  workers.reset();
  service.reset();
  try {
    SaveTurns();
  } catch (const std::exception&) {
    // Memory or a formatter failed at the very end: a destructor has nobody left to tell.
  }
}

Status Server::Impl::Open(std::unique_ptr<Service> service_in) {
  service = std::move(service_in);
  TRY_STATUS(CheckAddress(options));
  if (!options.model_table_file.empty()) models = TRY(ReadModelTable(options.model_table_file));
  if (!options.price_file.empty()) prices = TRY(PriceTable::Read(options.price_file));
  if (!options.api_key_file.empty()) {
    keys = TRY(ApiKeys::Read(options.api_key_file));
    warnings.insert(warnings.end(), keys.warnings().begin(), keys.warnings().end());
  }
  if (!options.ledger_file.empty()) {
    ledger = TRY(Ledger::Open(options.ledger_file));
    if (!ledger->warning().empty()) warnings.push_back(ledger->warning());
  }
  const auto control = [this](std::string_view text) {
    return service->engine().ControlToken(text).value_or(-1);
  };
  turn_tokens = {.assistant = control(kAssistantToken),
                 .think_end = control(kThinkEndToken),
                 .eos = control(kEosToken)};
  const EngineInfo info = service->engine().info();
  const std::string warning = turns.Open(options.turns_file,
                                         fmt::format("{}, {} tokens, {} bytes", info.description,
                                                     info.vocab_size, info.checkpoint_bytes),
                                         options.turns_bytes_max);
  if (!warning.empty()) {
    warnings.push_back(warning);
    LogWarning(warning);
  }
  started_unix = static_cast<int64_t>(std::time(nullptr));
  id_seed = static_cast<uint64_t>(std::chrono::system_clock::now().time_since_epoch().count());
  workers = TRY(WorkerPool::Create(kRequestThreads, kRequestsWaitingMax, kRequestBytesWaitingMax));
  ticker = TRY(StartThread("what the server does once a second",
                           [this](const std::stop_token& stop) { RunTicker(stop); }));
  HttpOptions http_options = options.http;
  http_options.body_bytes_max =
      std::min(http_options.body_bytes_max, static_cast<int64_t>(kRequestBytesMax));
  http_options.error_answer = [this](int status, const HttpRequest* head,
                                     std::string_view message) {
    return RefuseUnread({.status = status, .message = std::string(message)}, head);
  };
  http = TRY(HttpServer::Start(http_options, [this](std::shared_ptr<HttpExchange> exchange) {
    Handle(std::move(exchange));
  }));
  return {};
}

void Server::Impl::RunTicker(const std::stop_token& stop) {
  constexpr auto kTick = std::chrono::milliseconds(250);
  Clock::time_point saved = Clock::now();
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(kTick);
    std::vector<std::shared_ptr<AnswerTask>> tasks;
    {
      const std::scoped_lock lock(mutex);
      std::erase_if(live, [](const auto& task) { return task.expired(); });
      for (const auto& weak : live) {
        if (auto task = weak.lock()) tasks.push_back(std::move(task));
      }
    }
    const Clock::time_point now = Clock::now();
    for (const auto& task : tasks) task->Tick(now);
    if (now - saved < kKeptTurnsSaveInterval) continue;
    saved = now;
    SaveTurns();
    // Blocks and snapshots of the cache stay among what requests took and gave back; the pages that
    // are free between them go back to the system, or the process would grow for hours.
    malloc_trim(0);
  }
}

void Server::Impl::Price(Usage* usage) const {
  const auto now = static_cast<int64_t>(std::time(nullptr));
  const auto decode_begin = now - static_cast<int64_t>(usage->decode_seconds);
  const auto prefill = decode_begin - static_cast<int64_t>(usage->prefill_seconds);
  usage->cost = PriceOf(prices,
                        {.hit_tokens = usage->hit_tokens,
                         .miss_tokens = usage->miss_tokens,
                         .output_tokens = usage->completion_tokens},
                        prefill, decode_begin, now);
  usage->currency = prices.currency;
}

void Server::Impl::OnInterTokenSeconds(double seconds) {
  metrics.AddTokenGap(seconds);
}

void Server::Impl::OnKeepAlive() {
  metrics.keep_alives.fetch_add(1, std::memory_order_relaxed);
}

std::string Server::Impl::TokenBytes(int32_t id) const {
  return std::string(service->engine().TokenBytes(id));
}

void Server::Impl::OnAnswerEnd(const AnswerRecord& record) {
  const Usage& usage = record.usage;
  AnsweredRequest answer;
  answer.family = record.family;
  answer.outcome = record.outcome;
  answer.first_token_seconds = record.first_token_seconds;
  answer.total_seconds = record.seconds;
  answer.queue_seconds = usage.queue_seconds;
  answer.prefill_seconds = usage.prefill_seconds;
  answer.decode_seconds = usage.decode_seconds;
  answer.prompt_tokens = usage.prompt_tokens;
  answer.answer_tokens = usage.completion_tokens;
  answer.cost = usage.cost;
  answer.recoveries = record.recoveries;
  metrics.AddAnswer(answer);
  // A client that leaves pays for what was done until then; what failed costs nothing.
  const bool billed = record.outcome != AnswerOutcome::kError;
  if (ledger != nullptr && billed && usage.prompt_tokens + usage.completion_tokens > 0) {
    ledger->Add({.unix_seconds = static_cast<int64_t>(std::time(nullptr)),
                 .key_name = record.key_name,
                 .model = record.model,
                 .hit_tokens = usage.hit_tokens,
                 .miss_tokens = usage.miss_tokens,
                 .output_tokens = usage.completion_tokens,
                 .cost = usage.cost,
                 .currency = usage.currency});
  }
  Json event;
  event.Set("event", "answer");
  event.Set("request_id", record.request_id);
  event.Set("key", record.key_name);
  event.Set("outcome", AnswerOutcomeName(record.outcome));
  if (!record.error.empty()) event.Set("error", record.error);
  event.Set("gone", record.gone);
  event.Set("prompt_tokens", usage.prompt_tokens);
  event.Set("cached_tokens", usage.hit_tokens);
  event.Set("miss_reason", usage.cache.reason);
  event.Set("answer_tokens", usage.completion_tokens);
  event.Set("cost", usage.cost);
  event.Set("first_token_seconds", record.first_token_seconds);
  event.Set("seconds", record.seconds);
  Log(event);
  const std::scoped_lock lock(mutex);
  recent.push_back(record);
  if (recent.size() > kRecentAnswersMax) recent.pop_front();
}

void Server::Impl::KeepTurn(const TurnPlace& place, WrittenTurn turn) {
  turns.Put(place.tenant, place.conversation, {place.answer_id}, std::move(turn));
}

void Server::Impl::SaveTurns() {
  const Status status = turns.Save();
  if (!status) LogWarning(status.error().message);
}

void Server::Impl::LogWarning(const std::string& message) const {
  Json event;
  event.Set("event", "warning");
  event.Set("error", message);
  Log(event);
}

void Server::Impl::Log(const Json& event) const {
  if (!options.log) return;
  Json line;
  line.Set("time", static_cast<int64_t>(std::time(nullptr)));
  for (const JsonMember& member : event.as_object()) line.Set(member.first, member.second);
  options.log(DumpJson(line, JsonStyle::kCompact));
}

Server::Server(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Server::~Server() = default;

Result<std::unique_ptr<Server>> Server::Start(const ServerOptions& options,
                                              std::unique_ptr<Service> service) {
  auto impl = std::make_unique<Impl>(options);
  TRY_STATUS(impl->Open(std::move(service)));
  return std::unique_ptr<Server>(
      new Server(std::move(impl)));  // NOLINT: the constructor is private
}

std::string Server::url() const {
  std::string host = impl_->options.http.address;
  if (host == "0.0.0.0") host = "127.0.0.1";
  if (host == "::") host = "::1";
  if (host.find(':') != std::string::npos) host = "[" + host + "]";
  return fmt::format("http://{}:{}", host, impl_->http->port());
}

const std::vector<std::string>& Server::warnings() const {
  return impl_->warnings;
}

bool Server::Drain(double seconds_max) {
  const Impl::Clock::time_point began = Impl::Clock::now();
  impl_->service->Drain();
  bool whole = impl_->service->WaitUntilIdle(seconds_max);
  if (!whole) {
    impl_->service->CancelAll();
    impl_->service->WaitUntilIdle(kLastWordsSeconds);
  }
  // An answer that has ended is not yet with its client.
  impl_->http->StopAccepting();
  const std::chrono::duration<double> taken = Impl::Clock::now() - began;
  whole &= impl_->http->WaitUntilSent(std::max(seconds_max - taken.count(), kLastWordsSeconds));
  if (impl_->ledger != nullptr) {
    const Status status = impl_->ledger->Flush();
    if (!status) impl_->LogWarning(status.error().message);
  }
  impl_->SaveTurns();
  return whole;
}

}  // namespace minke

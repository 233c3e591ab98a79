// What operators and the web page read: metrics, the live state, usage by day.
#include <utility>

#include "server/server_impl.h"
#include "server/utc_day.h"

namespace minke {
namespace {

Json JsonOf(const AnswerRecord& record) {
  const Usage& usage = record.usage;
  Json answer;
  answer.Set("request_id", record.request_id);
  answer.Set("conversation", record.conversation);
  answer.Set("key", record.key_name);
  answer.Set("outcome", AnswerOutcomeName(record.outcome));
  answer.Set("prompt_tokens", usage.prompt_tokens);
  answer.Set("cached_tokens", usage.hit_tokens);
  answer.Set("answer_tokens", usage.completion_tokens);
  answer.Set("reasoning_tokens", usage.reasoning_tokens);
  answer.Set("detail", usage.Detail());
  answer.Set("first_token_seconds", record.first_token_seconds);
  answer.Set("seconds", record.seconds);
  return answer;
}

Json JsonOf(const CacheStatus& cache) {
  Json json;
  json.Set("ram_used_bytes", cache.ram_used_bytes);
  json.Set("ram_blocks", cache.ram_blocks);
  json.Set("ram_snapshots", cache.ram_snapshots);
  json.Set("snapshot_used_bytes", cache.snapshot_used_bytes);
  json.Set("blocks_evicted", cache.blocks_evicted);
  json.Set("disk", cache.disk);
  json.Set("disk_used_bytes", cache.disk_used_bytes);
  json.Set("disk_bytes_written", cache.disk_bytes_written);
  json.Set("disk_bytes_read", cache.disk_bytes_read);
  json.Set("disk_records_damaged", cache.disk_records_damaged);
  json.Set("disk_warning", cache.disk_warning);
  return json;
}

// The value of a parameter of a query such as "since=2026-11-01&key=ci"; days and names need no
// decoding.
std::string_view Parameter(std::string_view query, std::string_view name) {
  while (!query.empty()) {
    const size_t end = query.find('&');
    const std::string_view part = query.substr(0, end);
    query = end == std::string_view::npos ? std::string_view() : query.substr(end + 1);
    if (part.size() > name.size() && part.starts_with(name) && part[name.size()] == '=') {
      return part.substr(name.size() + 1);
    }
  }
  return {};
}

}  // namespace

std::string Server::Impl::MetricsBody() const {
  const EngineInfo& info = service->engine().info();
  MetricsSource source;
  source.server = &metrics;
  source.service = service->status();
  source.http = http->status();
  source.cache_ram_bytes = info.cache_ram_bytes;
  source.cache_snapshot_bytes = info.cache_snapshot_bytes;
  source.model = models.entries().front().id;
  source.version = options.version;
  source.currency = prices.currency;
  source.uptime_seconds = std::chrono::duration<double>(Clock::now() - started).count();
  source.draining = service->draining();
  source.ledger_ok = ledger == nullptr || ledger->warning().empty();
  source.vllm_names = options.vllm_metrics;
  return MetricsReport(source);
}

Json Server::Impl::StateBody() const {
  const ServiceStatus status = service->status();
  const EngineInfo& info = service->engine().info();
  Json state;
  state.Set("version", options.version);
  state.Set("model", models.entries().front().id);
  state.Set("description", info.description);
  state.Set("random_weights", info.random_weights);
  state.Set("uptime_seconds", std::chrono::duration<double>(Clock::now() - started).count());
  state.Set("context_tokens_max", info.context_tokens_max);
  state.Set("kv_bytes_per_token", info.kv_bytes_per_token);
  state.Set("currency", prices.currency);
  state.Set("queued", status.queued);
  state.Set("prefilling", status.prefilling);
  state.Set("decoding", status.decoding);
  state.Set("finished", status.finished);
  state.Set("prompt_tokens", status.prompt_tokens);
  state.Set("cached_ram_tokens", status.cached_ram_tokens);
  state.Set("cached_disk_tokens", status.cached_disk_tokens);
  state.Set("replayed_tokens", status.replayed_tokens);
  state.Set("computed_tokens", status.computed_tokens);
  state.Set("answer_tokens", status.answer_tokens);
  state.Set("cache_ram_bytes", info.cache_ram_bytes);
  state.Set("cache", JsonOf(status.cache));
  state.Set("ledger_warning", ledger == nullptr ? std::string() : ledger->warning());
  JsonArray answers;
  {
    const std::scoped_lock lock(mutex);
    for (const AnswerRecord& record : recent) answers.push_back(JsonOf(record));
  }
  state.Set("answers", std::move(answers));
  return state;
}

ApiResult<Json> Server::Impl::UsageBody(std::string_view query, std::string_view key_name) const {
  const std::string_view since = Parameter(query, "since");
  if (!since.empty() && !ParseUtcDay(since).has_value()) {
    return tl::unexpected(
        ApiError{.message = "since must be a day such as 2026-11-30.", .param = "since"});
  }
  JsonArray rows;
  if (ledger != nullptr) {
    const Result<std::vector<LedgerDay>> days = ledger->Days(since, key_name);
    if (!days) {
      return tl::unexpected(ApiError{.status = 500,
                                     .message = "The ledger could not be read; the log says why.",
                                     .type = "internal_error",
                                     .code = "internal_error"});
    }
    for (const LedgerDay& day : *days) {
      Json row;
      row.Set("day", day.day);
      row.Set("key", day.key_name);
      row.Set("model", day.model);
      row.Set("requests", day.requests);
      row.Set("prompt_cache_hit_tokens", day.hit_tokens);
      row.Set("prompt_cache_miss_tokens", day.miss_tokens);
      row.Set("completion_tokens", day.output_tokens);
      row.Set("cost", day.cost);
      row.Set("currency", day.currency);
      rows.push_back(std::move(row));
    }
  }
  Json body;
  body.Set("object", "list");
  body.Set("kept", ledger != nullptr);
  body.Set("data", std::move(rows));
  return body;
}

}  // namespace minke

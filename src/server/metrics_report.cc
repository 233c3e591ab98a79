#include "server/metrics_report.h"

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

namespace minke {

namespace {

using Labels = MetricsText::Labels;

constexpr const char* kFamilyNames[] = {"chat", "completions", "responses", "messages"};
constexpr const char* kRecoveryNames[] = {"other_spelling", "missing_wrapper", "in_reasoning",
                                          "dropped"};

// Buckets in seconds. A cached agent turn begins within tens of milliseconds, a prompt of a
// million tokens takes many minutes; tokens come a few milliseconds to a second apart.
std::vector<double> RequestSeconds() {
  return {0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600, 1800, 3600};
}
std::vector<double> TokenSeconds() {
  return {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 15};
}
std::vector<double> TokenCounts() {
  return {1, 16, 64, 256, 1024, 4096, 16'384, 65'536, 131'072, 262'144, 524'288, 1'048'576};
}

double AsDouble(int64_t value) {
  return static_cast<double>(value);
}

double Ratio(int64_t part, int64_t whole) {
  return whole > 0 ? AsDouble(part) / AsDouble(whole) : 0;
}

void ObserveIfThere(Histogram& histogram, double seconds) {
  if (seconds >= 0) histogram.Observe(seconds);
}

void WriteServer(MetricsText& text, const MetricsSource& source) {
  text.Gauge("minke_info", "Always 1; the labels say what runs.", 1,
             {{"model", source.model}, {"version", source.version}});
  text.Gauge("minke_uptime_seconds", "Since the server started.", source.uptime_seconds);
  text.Gauge("minke_draining", "1 while no new requests are taken, before the end.",
             source.draining ? 1 : 0);
  text.Gauge("minke_ledger_ok", "0 while the ledger has something to warn of.",
             source.ledger_ok ? 1 : 0);
}

void WriteRequests(MetricsText& text, const ServiceStatus& service) {
  text.Gauge("minke_requests", "Requests that are in the engine, by what happens to them.",
             AsDouble(service.queued), {{"state", "queued"}});
  text.Gauge("minke_requests", "", AsDouble(service.prefilling), {{"state", "prefilling"}});
  text.Gauge("minke_requests", "", AsDouble(service.decoding), {{"state", "decoding"}});
  text.Counter("minke_requests_submitted_total", "Requests that the engine accepted.",
               AsDouble(service.submitted));
  text.Counter("minke_requests_ended_total", "Requests that left the engine, by how.",
               AsDouble(service.finished), {{"result", "finished"}});
  text.Counter("minke_requests_ended_total", "", AsDouble(service.cancelled),
               {{"result", "cancelled"}});
  text.Counter("minke_requests_ended_total", "", AsDouble(service.failed), {{"result", "failed"}});
  text.Counter("minke_preemptions_total",
               "Times that a running request gave its memory back and came again.",
               AsDouble(service.preemptions));
  text.Counter("minke_steps_total", "Forward passes of the engine.", AsDouble(service.steps));
  text.Counter("minke_step_seconds_total", "Time in forward passes.", service.step_seconds);
}

void WriteTokens(MetricsText& text, const ServiceStatus& service) {
  text.Counter("minke_prompt_tokens_total", "Tokens of prompts.", AsDouble(service.prompt_tokens));
  text.Counter("minke_cached_tokens_total",
               "Tokens of prompts that were neither computed nor run again, by where they lay.",
               AsDouble(service.cached_ram_tokens), {{"tier", "ram"}});
  text.Counter("minke_cached_tokens_total", "", AsDouble(service.cached_disk_tokens),
               {{"tier", "disk"}});
  text.Counter("minke_replayed_tokens_total",
               "Tokens of prompts that were known and yet run again, for the sliding windows.",
               AsDouble(service.replayed_tokens));
  text.Counter("minke_computed_tokens_total", "Tokens of prompts that were new.",
               AsDouble(service.computed_tokens));
  text.Counter("minke_answer_tokens_total", "Tokens that were written.",
               AsDouble(service.answer_tokens));
}

void WriteCache(MetricsText& text, const MetricsSource& source) {
  const CacheStatus& cache = source.service.cache;
  text.Gauge("minke_cache_bytes", "Memory in use, by what for.", AsDouble(cache.ram_used_bytes),
             {{"kind", "rows"}});
  text.Gauge("minke_cache_bytes", "", AsDouble(cache.snapshot_used_bytes), {{"kind", "snapshots"}});
  text.Gauge("minke_cache_budget_bytes", "The most that this may become.",
             AsDouble(source.cache_ram_bytes), {{"kind", "rows"}});
  text.Gauge("minke_cache_budget_bytes", "", AsDouble(source.cache_snapshot_bytes),
             {{"kind", "snapshots"}});
  text.Gauge("minke_cache_blocks", "Blocks of 128 tokens in memory.", AsDouble(cache.ram_blocks));
  text.Gauge("minke_cache_snapshots", "Snapshots in memory.", AsDouble(cache.ram_snapshots));
  text.Counter("minke_cache_evicted_blocks_total", "Blocks that memory had no more room for.",
               AsDouble(cache.blocks_evicted));
  text.Gauge("minke_disk_ok", "1 if there is a disk tier and it works.",
             cache.disk && cache.disk_warning.empty() ? 1 : 0);
  text.Gauge("minke_disk_bytes", "What the cache's directory takes on the disk.",
             AsDouble(cache.disk_used_bytes));
  text.Counter("minke_disk_written_bytes_total", "Written to the disk tier.",
               AsDouble(cache.disk_bytes_written));
  text.Counter("minke_disk_read_bytes_total", "Read from the disk tier.",
               AsDouble(cache.disk_bytes_read));
  text.Counter("minke_checksum_failures_total",
               "Records of the disk tier that were damaged; they count as misses.",
               AsDouble(cache.disk_records_damaged));
}

// All 0 where weights are mapped.
void WriteWeights(MetricsText& text, const WeightsUse& weights) {
  text.Gauge("minke_weights_budget_bytes", "The most that weights may take, by --weights-ram.",
             AsDouble(weights.budget_bytes));
  text.Counter("minke_weights_read_bytes_total", "Weights that were read when they were needed.",
               AsDouble(weights.read_bytes));
  text.Counter("minke_weights_wait_seconds_total", "Time in which the disk was waited for.",
               weights.wait_seconds);
  text.Counter("minke_experts_total", "Experts that were needed, by where they were.",
               AsDouble(weights.expert_hits), {{"found", "memory"}});
  text.Counter("minke_experts_total", "", AsDouble(weights.expert_misses), {{"found", "disk"}});
  text.Counter("minke_experts_read_ahead_total", "Experts that were read before they were needed.",
               AsDouble(weights.experts_prefetched));
}

void WriteHttp(MetricsText& text, const MetricsSource& source) {
  const HttpStatus& http = source.http;
  const ServerMetrics& server = *source.server;
  text.Gauge("minke_http_connections", "Open connections.", AsDouble(http.connections));
  text.Counter("minke_http_connections_total", "Connections that were accepted.",
               AsDouble(http.connections_total));
  text.Counter("minke_http_requests_total", "Requests that were read.",
               AsDouble(http.requests_total));
  text.Counter("minke_http_disconnects_total",
               "Clients that went away before their answer was complete.",
               AsDouble(http.disconnects_total));
  const char* help = "Requests that were refused, by why.";
  const auto refused = [&](int64_t count, const char* reason) {
    text.Counter("minke_http_refused_total", help, AsDouble(count), {{"reason", reason}});
  };
  refused(http.refused_total, "malformed_or_slow");
  refused(server.unauthorized, "unauthorized");
  refused(server.invalid, "invalid");
  refused(server.overloaded, "overloaded");
  text.Counter("minke_keep_alives_total", "Signs of life that were sent to waiting clients.",
               AsDouble(server.keep_alives));
  text.Counter("minke_stalled_answers_total", "Answers that the watchdog ended.",
               AsDouble(source.service.stalled));
  text.Counter("minke_replay_turns_total",
               "Earlier turns of the assistant, by whether their exact tokens were known.",
               AsDouble(server.replayed_turns), {{"found", "yes"}});
  text.Counter("minke_replay_turns_total", "", AsDouble(server.unreplayed_turns),
               {{"found", "no"}});
}

}  // namespace

const char* AnswerOutcomeName(AnswerOutcome outcome) {
  switch (outcome) {
    case AnswerOutcome::kStop:
      return "stop";
    case AnswerOutcome::kLength:
      return "length";
    case AnswerOutcome::kToolCalls:
      return "tool_calls";
    case AnswerOutcome::kCancelled:
      return "cancelled";
    case AnswerOutcome::kError:
      return "error";
  }
  return "error";
}

ServerMetrics::ServerMetrics()
    : first_token_(RequestSeconds()),
      inter_token_(TokenSeconds()),
      total_(RequestSeconds()),
      queue_(RequestSeconds()),
      prefill_(RequestSeconds()),
      decode_(RequestSeconds()),
      prompt_tokens_(TokenCounts()),
      answer_tokens_(TokenCounts()) {}

void ServerMetrics::AddAnswer(const AnsweredRequest& answer) {
  ++answers_[static_cast<size_t>(answer.family)][static_cast<size_t>(answer.outcome)];
  recoveries_[0] += answer.recoveries.other_spellings;
  recoveries_[1] += answer.recoveries.missing_wrappers;
  recoveries_[2] += answer.recoveries.in_reasoning;
  recoveries_[3] += answer.recoveries.dropped;
  double cost = cost_;
  while (!cost_.compare_exchange_weak(cost, cost + answer.cost)) {
  }
  ObserveIfThere(first_token_, answer.first_token_seconds);
  ObserveIfThere(total_, answer.total_seconds);
  ObserveIfThere(queue_, answer.queue_seconds);
  ObserveIfThere(prefill_, answer.prefill_seconds);
  ObserveIfThere(decode_, answer.decode_seconds);
  if (answer.prompt_tokens > 0) prompt_tokens_.Observe(AsDouble(answer.prompt_tokens));
  if (answer.answer_tokens > 0) answer_tokens_.Observe(AsDouble(answer.answer_tokens));
}

void ServerMetrics::WriteAnswers(MetricsText& text, const std::string& currency) const {
  for (size_t family = 0; family < kFamilies; ++family) {
    for (size_t outcome = 0; outcome < kAnswerOutcomes; ++outcome) {
      text.Counter("minke_answers_total", "Answers, by interface and by how they ended.",
                   AsDouble(answers_[family][outcome]),
                   {{"api", kFamilyNames[family]},
                    {"outcome", AnswerOutcomeName(static_cast<AnswerOutcome>(outcome))}});
    }
  }
  for (size_t kind = 0; kind < kRecoveryKinds; ++kind) {
    text.Counter("minke_parser_recoveries_total",
                 "Tool calls that were not written as the format wants them, by what was done.",
                 AsDouble(recoveries_[kind]), {{"kind", kRecoveryNames[kind]}});
  }
  text.Counter("minke_cost_total", "What all requests cost by the price table.", cost_,
               {{"currency", currency}});
  text.Add("minke_first_token_seconds", "From a request's arrival to its first token.",
           first_token_.Read());
  text.Add("minke_inter_token_seconds", "Between two tokens of an answer.", inter_token_.Read());
  text.Add("minke_request_seconds", "From a request's arrival to the end of its answer.",
           total_.Read());
  text.Add("minke_queue_seconds", "From a request's arrival to its first chunk.", queue_.Read());
  text.Add("minke_prefill_seconds", "From the first chunk to the first token.", prefill_.Read());
  text.Add("minke_decode_seconds", "From the first token to the last.", decode_.Read());
  text.Add("minke_request_prompt_tokens", "Tokens of a prompt.", prompt_tokens_.Read());
  text.Add("minke_request_answer_tokens", "Tokens of an answer.", answer_tokens_.Read());
}

int64_t ServerMetrics::Outcomes(AnswerOutcome outcome) const {
  int64_t count = 0;
  for (const auto& family : answers_) count += family[static_cast<size_t>(outcome)];
  return count;
}

// The names and meanings of vLLM. Hits in memory are those of its prefix cache, hits on disk those
// of its external one, which is asked for what the first does not have.
void ServerMetrics::WriteVllm(MetricsText& text, const MetricsSource& source) const {
  const ServiceStatus& service = source.service;
  const Labels model = {{"model_name", source.model}};
  const auto counter = [&](const char* name, const char* help, int64_t value) {
    text.Counter(name, help, AsDouble(value), model);
  };
  text.Gauge("vllm:num_requests_running", "Requests that are read or written.",
             AsDouble(service.prefilling + service.decoding), model);
  text.Gauge("vllm:num_requests_waiting", "Requests in the queue.", AsDouble(service.queued),
             model);
  text.Gauge("vllm:kv_cache_usage_perc", "Share of the cache's memory that is in use, 0 to 1.",
             Ratio(service.cache.ram_used_bytes, source.cache_ram_bytes), model);
  counter("vllm:prefix_cache_queries_total", "Tokens of prompts.", service.prompt_tokens);
  counter("vllm:prefix_cache_hits_total", "Of them, found in memory.", service.cached_ram_tokens);
  counter("vllm:external_prefix_cache_queries_total", "Tokens of prompts not found in memory.",
          std::max<int64_t>(0, service.prompt_tokens - service.cached_ram_tokens));
  counter("vllm:external_prefix_cache_hits_total", "Of them, found on disk.",
          service.cached_disk_tokens);
  counter("vllm:prompt_tokens_total", "Tokens of prompts.", service.prompt_tokens);
  counter("vllm:generation_tokens_total", "Tokens that were written.", service.answer_tokens);
  counter("vllm:num_preemptions_total", "Times that a running request gave its memory back.",
          service.preemptions);
  const auto success = [&](const char* reason, int64_t count) {
    Labels labels = model;
    labels.emplace_back("finished_reason", reason);
    text.Counter("vllm:request_success_total", "Answers, by how they ended.", AsDouble(count),
                 labels);
  };
  success("stop", Outcomes(AnswerOutcome::kStop) + Outcomes(AnswerOutcome::kToolCalls));
  success("length", Outcomes(AnswerOutcome::kLength));
  success("abort", Outcomes(AnswerOutcome::kCancelled));
  success("error", Outcomes(AnswerOutcome::kError));
  const auto histogram = [&](const char* name, const char* help, const Histogram& values) {
    text.Add(name, help, values.Read(), model);
  };
  histogram("vllm:time_to_first_token_seconds", "As minke_first_token_seconds.", first_token_);
  histogram("vllm:inter_token_latency_seconds", "As minke_inter_token_seconds.", inter_token_);
  histogram("vllm:e2e_request_latency_seconds", "As minke_request_seconds.", total_);
  histogram("vllm:request_queue_time_seconds", "As minke_queue_seconds.", queue_);
  histogram("vllm:request_prefill_time_seconds", "As minke_prefill_seconds.", prefill_);
  histogram("vllm:request_decode_time_seconds", "As minke_decode_seconds.", decode_);
  histogram("vllm:request_prompt_tokens", "As minke_request_prompt_tokens.", prompt_tokens_);
  histogram("vllm:request_generation_tokens", "As minke_request_answer_tokens.", answer_tokens_);
}

std::string MetricsReport(const MetricsSource& source) {
  CHECK(source.server != nullptr);
  MetricsText text;
  WriteServer(text, source);
  WriteRequests(text, source.service);
  WriteTokens(text, source.service);
  source.server->WriteAnswers(text, source.currency);
  WriteCache(text, source);
  WriteWeights(text, source.service.cache.weights);
  WriteHttp(text, source);
  if (source.vllm_names) source.server->WriteVllm(text, source);
  return text.text();
}

}  // namespace minke

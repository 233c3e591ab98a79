// Histograms, the exposition text, the report of a server, and whether dashboard and document know
// the same names.
#include "server/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <set>
#include <sstream>
#include <thread>

#include "core/json.h"
#include "server/metrics_report.h"

namespace minke {
namespace {

std::string ReadSource(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(std::string(MINKE_SOURCE_DIR) + "/" + path).rdbuf();
  return text.str();
}

struct Exposition {
  std::map<std::string, std::string> types;  // by name
  std::map<std::string, double> samples;     // by name and labels, as printed
};

// Strict: what Prometheus would refuse, or what would be said twice, fails.
Exposition Read(const std::string& text) {
  Exposition exposition;
  std::istringstream lines(text);
  std::string line;
  std::string current;
  while (std::getline(lines, line)) {
    std::istringstream words(line);
    std::string mark, kind, name, type;
    if (line.starts_with("# ")) {
      words >> mark >> kind >> name >> type;
      if (kind == "HELP") {
        EXPECT_FALSE(exposition.types.contains(name)) << "twice: " << name;
        EXPECT_FALSE(type.empty()) << "no help: " << name;
        current = name;
        continue;
      }
      EXPECT_EQ(kind, "TYPE") << line;
      EXPECT_EQ(name, current) << line;
      exposition.types[name] = type;
      continue;
    }
    const size_t blank = line.rfind(' ');
    const std::string sample = line.substr(0, blank);
    name = sample.substr(0, sample.find('{'));
    const bool histogram = exposition.types[current] == "histogram";
    EXPECT_TRUE(name == current || (histogram && name.starts_with(current + "_"))) << line;
    EXPECT_FALSE(exposition.samples.contains(sample)) << "twice: " << sample;
    exposition.samples[sample] = std::stod(line.substr(blank + 1));
    if (exposition.types[current] == "counter") {
      EXPECT_TRUE(name.ends_with("_total")) << name;
    }
  }
  return exposition;
}

// Every word in the text that begins like a metric of ours or of vLLM.
std::set<std::string> NamesIn(const std::string& text) {
  std::set<std::string> names;
  for (const std::string prefix : {"minke_", "vllm:"}) {
    for (size_t at = text.find(prefix); at != std::string::npos; at = text.find(prefix, at + 1)) {
      size_t end = at + prefix.size();
      while (end < text.size() && (std::isalnum(static_cast<unsigned char>(text[end])) != 0 ||
                                   text[end] == '_' || text[end] == ':')) {
        ++end;
      }
      if (end > at + prefix.size()) names.insert(text.substr(at, end - at));
    }
  }
  return names;
}

// The metric to which a name in a query belongs.
std::string Family(const std::string& name, const Exposition& exposition) {
  if (exposition.types.contains(name)) return name;
  for (const std::string suffix : {"_bucket", "_sum", "_count"}) {
    if (!name.ends_with(suffix)) continue;
    const std::string family = name.substr(0, name.size() - suffix.size());
    const auto found = exposition.types.find(family);
    if (found != exposition.types.end() && found->second == "histogram") return family;
  }
  return {};
}

// A source in which every number is another one.
MetricsSource Source(const ServerMetrics& metrics) {
  MetricsSource source;
  source.server = &metrics;
  int64_t next = 1;
  ServiceStatus& service = source.service;
  for (int64_t* value : {&service.queued,
                         &service.prefilling,
                         &service.decoding,
                         &service.submitted,
                         &service.finished,
                         &service.cancelled,
                         &service.failed,
                         &service.stalled,
                         &service.preemptions,
                         &service.prompt_tokens,
                         &service.cached_ram_tokens,
                         &service.cached_disk_tokens,
                         &service.replayed_tokens,
                         &service.computed_tokens,
                         &service.answer_tokens,
                         &service.steps,
                         &service.cache.ram_used_bytes,
                         &service.cache.ram_blocks,
                         &service.cache.ram_snapshots,
                         &service.cache.snapshot_used_bytes,
                         &service.cache.blocks_evicted,
                         &service.cache.disk_used_bytes,
                         &service.cache.disk_bytes_written,
                         &service.cache.disk_bytes_read,
                         &service.cache.disk_records_damaged,
                         &service.cache.weights.budget_bytes,
                         &service.cache.weights.read_bytes,
                         &service.cache.weights.expert_hits,
                         &service.cache.weights.expert_misses,
                         &service.cache.weights.experts_prefetched,
                         &source.http.connections,
                         &source.http.connections_total,
                         &source.http.requests_total,
                         &source.http.disconnects_total,
                         &source.http.refused_total}) {
    *value = 1000 + next++;
  }
  service.cache.disk = true;
  source.cache_ram_bytes = 4000;
  source.cache_snapshot_bytes = 500;
  source.model = "deepseek-flash";
  source.version = "0.1.0";
  source.currency = "USD";
  return source;
}

TEST(Histogram, ABoundBelongsToItsBucket) {
  Histogram histogram({1, 2, 5});
  for (const double value : {0.5, 1.0, 1.5, 2.0, 5.0, 5.1, -1.0}) histogram.Observe(value);
  histogram.Observe(std::numeric_limits<double>::quiet_NaN());
  histogram.Observe(std::numeric_limits<double>::infinity());
  const Histogram::Reading reading = histogram.Read();
  EXPECT_EQ(reading.counts, (std::vector<int64_t>{3, 2, 1, 1}));
  EXPECT_EQ(reading.count, 7);
  EXPECT_NEAR(reading.sum, 14.1, 1e-12);
}

TEST(Histogram, ThreadsLoseNothing) {
  Histogram histogram({0.5});
  ServerMetrics metrics;
  std::vector<std::thread> threads;
  threads.reserve(4);
  for (int thread = 0; thread < 4; ++thread) {
    threads.emplace_back([&] {
      for (int i = 0; i < 2000; ++i) {
        histogram.Observe(i % 2);
        metrics.AddAnswer({.cost = 0.25});
        metrics.AddTokenGap(0.001);
        if (i % 500 != 0) continue;
        EXPECT_FALSE(MetricsReport(Source(metrics)).empty());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(histogram.Read().counts, (std::vector<int64_t>{4000, 4000}));
  const Exposition report = Read(MetricsReport(Source(metrics)));
  EXPECT_EQ(report.samples.at("minke_cost_total{currency=\"USD\"}"), 2000);
  EXPECT_EQ(report.samples.at("minke_answers_total{api=\"chat\",outcome=\"stop\"}"), 8000);
  EXPECT_EQ(report.samples.at("minke_inter_token_seconds_count"), 8000);
}

TEST(MetricsText, IsWhatPrometheusReads) {
  MetricsText text;
  text.Counter("a_total", "Help with a \\ and a\nline.", 3);
  text.Gauge("b", "Two samples.", 0.1, {{"l", "a\"b\\c\nd"}});
  text.Gauge("b", "Two samples.", -2.5e-7, {{"l", "x"}, {"m", ""}});
  text.Gauge("c", "Strange.", std::numeric_limits<double>::infinity());
  text.Gauge("d", "Large.", 1e300);
  text.Gauge("e", "A whole one.", 763'205'315'794);
  EXPECT_EQ(text.text(),
            "# HELP a_total Help with a \\\\ and a\\nline.\n"
            "# TYPE a_total counter\n"
            "a_total 3\n"
            "# HELP b Two samples.\n"
            "# TYPE b gauge\n"
            "b{l=\"a\\\"b\\\\c\\nd\"} 0.1\n"
            "b{l=\"x\",m=\"\"} -2.5e-07\n"
            "# HELP c Strange.\n"
            "# TYPE c gauge\n"
            "c +Inf\n"
            "# HELP d Large.\n"
            "# TYPE d gauge\n"
            "d 1e+300\n"
            "# HELP e A whole one.\n"
            "# TYPE e gauge\n"
            "e 763205315794\n");
}

TEST(MetricsText, HistogramsAreCumulative) {
  Histogram histogram({0.25, 1});
  for (const double value : {0.125, 0.5, 0.5, 8.0}) histogram.Observe(value);
  MetricsText text;
  text.Add("h_seconds", "Help.", histogram.Read(), {{"m", "x"}});
  EXPECT_EQ(text.text(),
            "# HELP h_seconds Help.\n"
            "# TYPE h_seconds histogram\n"
            "h_seconds_bucket{m=\"x\",le=\"0.25\"} 1\n"
            "h_seconds_bucket{m=\"x\",le=\"1\"} 3\n"
            "h_seconds_bucket{m=\"x\",le=\"+Inf\"} 4\n"
            "h_seconds_sum{m=\"x\"} 9.125\n"
            "h_seconds_count{m=\"x\"} 4\n");
}

TEST(MetricsReport, SaysWhatTheServerCounted) {
  ServerMetrics metrics;
  metrics.AddAnswer(
      {.family = ApiFamily::kMessages,
       .outcome = AnswerOutcome::kToolCalls,
       .first_token_seconds = 0.25,
       .total_seconds = 2,
       .queue_seconds = 0,
       .prefill_seconds = 0.25,
       .decode_seconds = 1.75,
       .prompt_tokens = 9000,
       .answer_tokens = 100,
       .cost = 0.5,
       .recoveries = {
           .other_spellings = 1, .missing_wrappers = 2, .in_reasoning = 3, .dropped = 4}});
  // One that went away in the queue: it has no first token.
  metrics.AddAnswer({.outcome = AnswerOutcome::kCancelled, .total_seconds = 1});
  metrics.unauthorized = 7;
  metrics.keep_alives += 3;
  MetricsSource source = Source(metrics);
  source.draining = true;
  source.ledger_ok = false;
  const auto samples = Read(MetricsReport(source)).samples;
  EXPECT_EQ(samples.at("minke_answers_total{api=\"messages\",outcome=\"tool_calls\"}"), 1);
  EXPECT_EQ(samples.at("minke_answers_total{api=\"chat\",outcome=\"cancelled\"}"), 1);
  EXPECT_EQ(samples.at("minke_answers_total{api=\"responses\",outcome=\"stop\"}"), 0);
  EXPECT_EQ(samples.at("minke_parser_recoveries_total{kind=\"other_spelling\"}"), 1);
  EXPECT_EQ(samples.at("minke_parser_recoveries_total{kind=\"dropped\"}"), 4);
  EXPECT_EQ(samples.at("minke_first_token_seconds_count"), 1);
  EXPECT_EQ(samples.at("minke_request_seconds_count"), 2);
  EXPECT_EQ(samples.at("minke_request_seconds_sum"), 3);
  EXPECT_EQ(samples.at("minke_queue_seconds_bucket{le=\"0.01\"}"), 1);
  EXPECT_EQ(samples.at("minke_http_refused_total{reason=\"unauthorized\"}"), 7);
  EXPECT_EQ(samples.at("minke_keep_alives_total"), 3);
  EXPECT_EQ(samples.at("minke_draining"), 1);
  EXPECT_EQ(samples.at("minke_ledger_ok"), 0);
  EXPECT_EQ(samples.at("minke_disk_ok"), 1);
  const ServiceStatus& service = source.service;
  EXPECT_EQ(samples.at("minke_requests{state=\"queued\"}"), service.queued);
  EXPECT_EQ(samples.at("minke_requests{state=\"decoding\"}"), service.decoding);
  EXPECT_EQ(samples.at("minke_cached_tokens_total{tier=\"disk\"}"), service.cached_disk_tokens);
  EXPECT_EQ(samples.at("minke_replayed_tokens_total"), service.replayed_tokens);
  EXPECT_EQ(samples.at("minke_stalled_answers_total"), service.stalled);
  EXPECT_EQ(samples.at("minke_checksum_failures_total"), service.cache.disk_records_damaged);
  EXPECT_EQ(samples.at("minke_http_disconnects_total"), source.http.disconnects_total);
}

TEST(MetricsReport, VllmNamesAreThereOnlyIfAskedFor) {
  ServerMetrics metrics;
  metrics.AddAnswer({.outcome = AnswerOutcome::kToolCalls, .first_token_seconds = 1});
  metrics.AddAnswer({.outcome = AnswerOutcome::kStop});
  MetricsSource source = Source(metrics);
  EXPECT_EQ(MetricsReport(source).find("vllm:"), std::string::npos);
  source.vllm_names = true;
  const Exposition report = Read(MetricsReport(source));
  const ServiceStatus& service = source.service;
  const std::string model = "{model_name=\"deepseek-flash\"}";
  EXPECT_EQ(report.samples.at("vllm:num_requests_running" + model),
            service.prefilling + service.decoding);
  EXPECT_EQ(report.samples.at("vllm:num_requests_waiting" + model), service.queued);
  EXPECT_NEAR(report.samples.at("vllm:kv_cache_usage_perc" + model),
              static_cast<double>(service.cache.ram_used_bytes) / 4000, 1e-12);
  EXPECT_EQ(report.samples.at("vllm:prefix_cache_hits_total" + model), service.cached_ram_tokens);
  EXPECT_EQ(report.samples.at("vllm:external_prefix_cache_hits_total" + model),
            service.cached_disk_tokens);
  EXPECT_EQ(
      report.samples.at(
          "vllm:request_success_total{model_name=\"deepseek-flash\",finished_reason=\"stop\"}"),
      2);
  // The list of serving.md 5.1 that a dashboard needs.
  for (const char* name :
       {"vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc",
        "vllm:prefix_cache_queries_total", "vllm:prefix_cache_hits_total",
        "vllm:prompt_tokens_total", "vllm:generation_tokens_total", "vllm:request_success_total",
        "vllm:num_preemptions_total", "vllm:time_to_first_token_seconds",
        "vllm:inter_token_latency_seconds", "vllm:e2e_request_latency_seconds",
        "vllm:request_queue_time_seconds", "vllm:request_prefill_time_seconds",
        "vllm:request_decode_time_seconds"}) {
    EXPECT_TRUE(report.types.contains(name)) << name;
  }
}

TEST(MetricsReport, LabelsAreEscaped) {
  const ServerMetrics metrics;
  MetricsSource source = Source(metrics);
  source.model = "a\"}\nminke_evil 1";
  source.vllm_names = true;
  EXPECT_EQ(MetricsReport(source).find("\nminke_evil"), std::string::npos);
}

TEST(Dashboard, EveryNameInItIsInTheReport) {
  const ServerMetrics metrics;
  MetricsSource source = Source(metrics);
  source.vllm_names = true;
  const Exposition report = Read(MetricsReport(source));
  const std::string text = ReadSource("contrib/grafana/minke.json");
  const auto json = ParseJson(text, "minke.json");
  ASSERT_TRUE(json.has_value()) << json.error().message;
  const std::set<std::string> names = NamesIn(text);
  EXPECT_GE(names.size(), 20U);
  for (const std::string& name : names) {
    EXPECT_NE(Family(name, report), "") << name << " is in the dashboard and not in the report";
  }
}

TEST(MetricsDocument, HasEveryNameAndNoOther) {
  const ServerMetrics metrics;
  MetricsSource source = Source(metrics);
  source.vllm_names = true;
  const Exposition report = Read(MetricsReport(source));
  const std::set<std::string> documented = NamesIn(ReadSource("docs/metrics.md"));
  for (const auto& [name, type] : report.types) {
    EXPECT_TRUE(documented.contains(name)) << name << " is not in docs/metrics.md";
  }
  for (const std::string& name : documented) {
    EXPECT_NE(Family(name, report), "") << name << " is in docs/metrics.md and not in the report";
  }
}

}  // namespace
}  // namespace minke

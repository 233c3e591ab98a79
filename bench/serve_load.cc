// Many open streams at once on the whole server, with a stand-in for the model's arithmetic:
//   serve_load MODEL_DIR [--seconds N] [--streams N] [--step-ms N] [--abort-percent X]
//              [--kv-ram-mib N]
// A step that writes a token for every stream takes --step-ms, rows of prompts as much each as
// those of streams. It gives each stream one letter that tells which step it was, so that what lies
// between the end of the step and the arrival of the event at its client is measured for each
// event. Clients are sockets in one thread of this process. Prints JSON; exit status 1 if a bar is
// missed.
#include <malloc.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "bench/serve_load_clients.h"
#include "core/json.h"
#include "tests/serve/whole_server.h"
#include "tests/server/raw_client.h"

namespace minke::bench {
namespace {

constexpr double kDelaySecondsMax = 0.05;    // of 99 in 100 events (issue 5's bar)
constexpr double kResidentGrowthMax = 0.03;  // after the warm-up, as a part of what it was
constexpr double kWarmUpShare = 0.25;
// Full within the warm-up, so that what grows afterwards is a leak.
constexpr int64_t kRamMebibytesDefault = 64;
constexpr size_t kLoadTurnsBytes = size_t{256} << 10;

[[noreturn]] void Stop(const std::string& message) {
  std::fprintf(stderr, "serve_load: %s\n", message.c_str());
  std::exit(1);
}

struct LoadFlags {
  std::string model_dir;
  double seconds = 600;
  LoadOptions load;
  double step_ms = 50;
  int64_t ram_mib = kRamMebibytesDefault;
};

LoadFlags ReadLoadFlags(int argc, char** argv) {
  if (argc < 2 || argc % 2 != 0) Stop("name a model directory; each flag has a value");
  LoadFlags flags;
  flags.model_dir = argv[1];
  for (int i = 2; i < argc; i += 2) {
    const std::string flag = argv[i];
    const double value = std::atof(argv[i + 1]);
    if (flag == "--seconds") {
      flags.seconds = value;
    } else if (flag == "--streams") {
      flags.load.streams = static_cast<int>(value);
    } else if (flag == "--step-ms") {
      flags.step_ms = value;
    } else if (flag == "--kv-ram-mib") {
      flags.ram_mib = static_cast<int64_t>(value);
    } else if (flag == "--abort-percent") {
      flags.load.abort_share = value / 100;
    } else {
      Stop(flag + " is no flag of serve_load");
    }
  }
  return flags;
}

std::unique_ptr<testing::WholeServer> StartLoaded(const LoadFlags& flags, StepLetters* letters,
                                                  const std::string& turns_file) {
  testing::WholeServerOptions options;
  options.model_dir = flags.model_dir;
  options.engine.forward = letters->function(flags.step_ms / 1000 / flags.load.streams);
  options.engine.threads = 1;
  options.engine.cache.ram_bytes = flags.ram_mib << 20;
  options.service.running_max = flags.load.streams + 64;
  options.server.turns_file = turns_file;
  options.server.turns_bytes_max = kLoadTurnsBytes;
  auto server = testing::WholeServer::Start(std::move(options));
  if (!server) Stop(server.error().message);
  return std::move(*server);
}

double ResidentMebibytes() {
  std::ifstream file("/proc/self/statm");
  double whole = 0;
  double resident = 0;
  file >> whole >> resident;
  return resident * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

// What malloc has given out and not got back, mapped chunks included: if it stays while the
// resident set grows, nothing leaks.
double AllocatedMebibytes() {
  const struct mallinfo2 info = mallinfo2();
  return static_cast<double>(info.uordblks + info.hblkhd) / (1 << 20);
}

// How full the cache is; what it takes is no leak while it is below its budget.
double CacheMebibytes(uint16_t port) {
  const std::string metrics = testing::MetricsText(port);
  const int64_t rows = testing::MetricOf(metrics, "minke_cache_bytes{kind=\"rows\"}");
  const int64_t snapshots = testing::MetricOf(metrics, "minke_cache_bytes{kind=\"snapshots\"}");
  return static_cast<double>(rows + snapshots) / (1 << 20);
}

// Mebibytes a minute, by least squares over samples of a second.
double SlopeOf(const std::vector<double>& samples) {
  const auto count = static_cast<double>(samples.size());
  if (count < 2) return 0;
  double mean = 0;
  for (const double sample : samples) mean += sample / count;
  double above = 0;
  double below = 0;
  for (size_t i = 0; i < samples.size(); ++i) {
    const double x = static_cast<double>(i) - (count - 1) / 2;
    above += x * (samples[i] - mean);
    below += x * x;
  }
  return above / below * 60;
}

double MeanOf(const std::vector<double>& samples, size_t from, size_t to) {
  double sum = 0;
  for (size_t i = from; i < to; ++i) sum += samples[i];
  return to > from ? sum / static_cast<double>(to - from) : 0;
}

double CpuSeconds(int who) {
  rusage usage = {};
  getrusage(who, &usage);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(usage.ru_utime) + seconds(usage.ru_stime);
}

// The most of ten equal parts, so that a curve of ten minutes is a line.
Json CurveOf(const std::vector<double>& samples) {
  JsonArray curve;
  const size_t part = std::max<size_t>(1, samples.size() / 10);
  for (size_t i = 0; i < samples.size(); i += part)
    curve.push_back(std::round(samples[i] * 10) / 10);
  curve.push_back(std::round(samples.back() * 10) / 10);
  return curve;
}

// The growth of the resident set from just after the warm-up to the end, as a part.
double GrowthOf(const std::vector<double>& after) {
  const size_t part = std::max<size_t>(1, after.size() / 5);
  const double first = MeanOf(after, 0, part);
  return (MeanOf(after, after.size() - part, after.size()) - first) / first;
}

Json Milliseconds(const DelayCounts& delays, double part) {
  return std::round(delays.Quantile(part) * 1e4) / 10;
}

int RunLoad(int argc, char** argv) {
  const LoadFlags flags = ReadLoadFlags(argc, argv);
  if (!test::AllowOpenFiles(static_cast<uint64_t>(flags.load.streams) * 2 + 200)) {
    Stop("this system forbids that many open files");
  }
  auto letters = StepLetters::Create(flags.model_dir);
  if (!letters) Stop(letters.error().message);
  const std::string turns =
      "/tmp/serve_load_" + std::to_string(static_cast<int64_t>(getpid())) + ".turns";
  const auto server = StartLoaded(flags, letters->get(), turns);
  LoadClients clients(server->port(), flags.load, letters->get());
  std::vector<double> resident;
  const double cpu_before = CpuSeconds(RUSAGE_SELF);
  const double clients_before = CpuSeconds(RUSAGE_THREAD);
  for (double second = 0; second < flags.seconds; ++second) {
    clients.RunFor(1);
    resident.push_back(ResidentMebibytes());
    if (static_cast<int>(second) % 30 == 0) {
      std::fprintf(stderr,
                   "%3.0f s: %lld events, %lld errors, RSS %.1f MiB, allocated %.1f MiB, cache "
                   "%.1f MiB\n",
                   second, static_cast<long long>(clients.counts().events),
                   static_cast<long long>(clients.counts().errors), resident.back(),
                   AllocatedMebibytes(), CacheMebibytes(server->port()));
    }
  }
  const double clients_cpu = CpuSeconds(RUSAGE_THREAD) - clients_before;
  const double cpu = CpuSeconds(RUSAGE_SELF) - cpu_before - clients_cpu;
  const std::string metrics = testing::MetricsText(server->port());
  clients.CloseAll();
  const bool drained = server->server().Drain(20);
  std::remove(turns.c_str());

  const auto warm = static_cast<size_t>(static_cast<double>(resident.size()) * kWarmUpShare);
  const std::vector<double> after(resident.begin() + static_cast<ptrdiff_t>(warm), resident.end());
  const LoadCounts& counts = clients.counts();
  const double growth = GrowthOf(after);
  const bool good = counts.errors == 0 && counts.ended > 0 && drained &&
                    counts.delays.Quantile(0.99) < kDelaySecondsMax && growth < kResidentGrowthMax;
  Json report;
  report.Set("seconds", flags.seconds);
  report.Set("streams", flags.load.streams);
  report.Set("streams_in_engine", testing::RequestsInEngine(metrics));
  report.Set("requests_ended", counts.ended);
  report.Set("requests_aborted", counts.aborted);
  report.Set("errors", counts.errors);
  report.Set("first_error", counts.first_error);
  report.Set("events", counts.events);
  report.Set("events_per_second", std::round(static_cast<double>(counts.events) / flags.seconds));
  report.Set("event_delay_ms_p50", Milliseconds(counts.delays, 0.5));
  report.Set("event_delay_ms_p99", Milliseconds(counts.delays, 0.99));
  report.Set("event_delay_ms_max", Milliseconds(counts.delays, 1));
  report.Set("first_event_ms_p50", Milliseconds(counts.first, 0.5));
  report.Set("first_event_ms_p99", Milliseconds(counts.first, 0.99));
  report.Set("server_processors", std::round(cpu / flags.seconds * 100) / 100);
  report.Set("clients_processors", std::round(clients_cpu / flags.seconds * 100) / 100);
  report.Set("resident_mib", CurveOf(resident));
  report.Set("resident_mib_per_minute", std::round(SlopeOf(after) * 100) / 100);
  report.Set("resident_growth", std::round(growth * 1e4) / 1e4);
  report.Set("preemptions", testing::MetricOf(metrics, "minke_preemptions_total"));
  report.Set("drained", drained);
  report.Set("bars_met", good);
  std::printf("%s\n", DumpJson(report, JsonStyle::kPretty).c_str());
  return good ? 0 : 1;
}

}  // namespace
}  // namespace minke::bench

int main(int argc, char** argv) {
  return minke::bench::RunLoad(argc, argv);
}

// Kills a process that writes to a store, many times, and looks whether anything published is lost
// or has a wrong byte. The same harness as tests/prefix_cache/kill_test.cc.
//
//   kill9 DIRECTORY [--rounds 1000] [--seed 1] [--json]
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>

#include "tests/prefix_cache/kill_harness.h"

namespace {

void Print(const minke::testing::KillReport& report, bool json) {
  const char* format =
      json ? "{\"rounds\": %lld, \"published\": %lld, \"lost\": %lld, \"recovered\": %lld, "
             "\"cut_short\": %lld, \"retried\": %lld, \"failure\": \"%s\"}\n"
           : "%lld kills, %lld blocks published, %lld lost, %lld recovered, %lld cut short, "
             "%lld retried %s\n";
  std::printf(format, static_cast<long long>(report.rounds),
              static_cast<long long>(report.published), static_cast<long long>(report.lost),
              static_cast<long long>(report.recovered), static_cast<long long>(report.damaged),
              static_cast<long long>(report.retried), report.failure.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  std::string directory;
  int64_t rounds = 1000;
  uint64_t seed = 1;
  bool json = false;
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    if (argument == "--json") {
      json = true;
    } else if (argument == "--rounds" && i + 1 < argc) {
      rounds = std::atoll(argv[++i]);
    } else if (argument == "--seed" && i + 1 < argc) {
      seed = std::strtoull(argv[++i], nullptr, 10);
    } else {
      directory = argument;
    }
  }
  if (directory.empty()) {
    std::fprintf(stderr, "usage: kill9 DIRECTORY [--rounds 1000] [--seed 1] [--json]\n");
    return 2;
  }
  const std::string path = directory + "/kill9_store";
  std::filesystem::remove_all(path);
  minke::testing::KillHarness harness(MINKE_STORE_WORKER, path, seed);
  while (harness.report().rounds < rounds && harness.report().failure.empty()) {
    harness.Round();
    std::fprintf(stderr, "\r%lld of %lld kills, %lld blocks ",
                 static_cast<long long>(harness.report().rounds), static_cast<long long>(rounds),
                 static_cast<long long>(harness.report().published));
  }
  harness.CheckAll();
  std::fprintf(stderr, "\n");
  std::filesystem::remove_all(path);
  const minke::testing::KillReport& report = harness.report();
  Print(report, json);
  return report.failure.empty() && report.lost == 0 && report.retried == 0 ? 0 : 1;
}

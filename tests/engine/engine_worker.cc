// Answers prompts until it is killed: engine_worker MODEL_DIR DISK_DIR SEED. Lines of its output:
// "R" once it is ready, "A prompt digest" for each answer, "F prompt" once that prompt is on disk.
#include <cstdio>
#include <cstdlib>
#include <random>

#include "tests/engine/kill_traffic.h"

int main(int argc, char** argv) {
  if (argc != 4) return 2;
  const auto engine = minke::Engine::Open(minke::testing::TrafficOptions(argv[1], argv[2]));
  if (!engine) {
    std::fprintf(stderr, "engine_worker: %s\n", engine.error().message.c_str());
    return 1;
  }
  std::mt19937_64 random(static_cast<uint64_t>(std::atoll(argv[3])));
  std::puts("R");
  while (true) {
    const int index = static_cast<int>(random() % minke::testing::kTrafficPrompts);
    const minke::testing::TrafficAnswer answer = minke::testing::AskTraffic(**engine, index);
    if (!answer.error.empty()) {
      std::fprintf(stderr, "engine_worker: %s\n", answer.error.c_str());
      return 1;
    }
    std::printf("A %d %llu\n", index, static_cast<unsigned long long>(answer.digest));
    if (random() % 2 == 0) {
      (*engine)->FlushCache();
      std::printf("F %d\n", index);
    }
    if (random() % 3 == 0) (*engine)->DropCacheMemory();
    std::fflush(stdout);
  }
}

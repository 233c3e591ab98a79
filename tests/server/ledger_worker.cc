// A process that counts requests until it is killed: `ledger_worker FILE`. Each request has as many
// hit tokens as milliseconds went by since the one before, so the sum in the ledger is the time up
// to which it knows; what is printed is the time itself.
#include <chrono>
#include <cstdio>
#include <thread>

#include "server/ledger.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const auto ledger = minke::Ledger::Open(argv[1]);
  if (!ledger) {
    std::fprintf(stderr, "%s\n", ledger.error().message.c_str());
    return 1;
  }
  const auto start = std::chrono::steady_clock::now();
  int64_t counted = 0;
  while (true) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    const int64_t now = std::chrono::duration_cast<std::chrono::milliseconds>(
                            std::chrono::steady_clock::now() - start)
                            .count();
    (*ledger)->Add({.key_name = "k", .model = "m", .hit_tokens = now - counted, .currency = "USD"});
    counted = now;
    std::printf("%lld\n", static_cast<long long>(now));
    std::fflush(stdout);
  }
}

// The program where the system starts only so many threads.
#include <fmt/format.h>

#include <sys/wait.h>

#include <cstdlib>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/apps/process.h"
#include "tests/support/resident_memory.h"

namespace minke::testing {
namespace {

// `minke ARGUMENTS` with room for the stacks of so many threads besides the first. A limit of
// processes would not do: it does not hold for root, and it counts others' processes.
Finished RunWithThreads(int threads, const std::string& arguments) {
  constexpr int64_t kStackKib = int64_t{4} << 20;
  constexpr int64_t kRestKib = int64_t{2} << 20;  // for all that is no stack
  const TemporaryFolder folder;
  const std::string line = fmt::format(
      "ulimit -s {}; ulimit -v {}; echo Why | timeout {} {}/minke {} --model {} > {} 2> {}",
      kStackKib, threads * kStackKib + kRestKib, kProcessSecondsMax, MINKE_BINARY_DIR, arguments,
      kMiniModel, folder.Path("out"), folder.Path("err"));
  const int status = std::system(line.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, TemporaryFolder::Read(folder.Path("out")),
          TemporaryFolder::Read(folder.Path("err"))};
}

void ExpectNoThreadFor(const std::string& purpose, const Finished& run) {
  EXPECT_EQ(run.exit_code, 1) << purpose << ": " << run.err;
  EXPECT_NE(run.err.find("minke: error: The system starts no thread for " + purpose + ":"),
            std::string::npos)
      << run.err;
  EXPECT_NE(run.err.find("ulimit -u"), std::string::npos) << run.err;
}

TEST(ThreadLimit, AServerWithoutOneOfItsThreadsEndsInAnError) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer does not live with little address space";
  const std::vector<std::string> started = {
      "writing the disk cache", "the engine",       "the watchdog of the engine",
      "reading requests",       "reading requests", "what the server does once a second",
      "the HTTP server"};
  for (size_t threads = 0; threads < started.size(); ++threads) {
    const TemporaryFolder folder;
    const Finished run = RunWithThreads(
        static_cast<int>(threads),
        fmt::format("serve --port 0 --threads 1 --weights-memory mapped --ledger none "
                    "--kv-disk {}",
                    folder.Path("kv")));
    ExpectNoThreadFor(started[threads], run);
    EXPECT_EQ(run.out, "") << "a server that is not whole says that it serves";
  }
}

TEST(ThreadLimit, CommandsEndInAnError) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer does not live with little address space";
  ExpectNoThreadFor("watching for Ctrl-C",
                    RunWithThreads(0, "generate --threads 1 --raw --prompt x --max-tokens 1"));
  const std::string copied = "--threads 1 --weights-memory copied";
  ExpectNoThreadFor("reading the weights",
                    RunWithThreads(1, "generate " + copied + " --raw --prompt x --max-tokens 1"));
  const Finished chat = RunWithThreads(0, "chat --threads 1 --weights-memory mapped");
  ExpectNoThreadFor("watching for Ctrl-C", chat);
  EXPECT_EQ(chat.out, "");
}

}  // namespace
}  // namespace minke::testing

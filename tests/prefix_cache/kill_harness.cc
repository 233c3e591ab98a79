#include "tests/prefix_cache/kill_harness.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstdio>
#include <memory>
#include <sstream>
#include <thread>
#include <utility>

#include "tests/prefix_cache/store_rig.h"

namespace minke::testing {

namespace {

constexpr int kWorkUsMax = 60 * 1000;  // of a process before it is killed, after its first line
constexpr size_t kOldChecks = 100;     // earlier blocks read in each round

std::string ReadAll(int descriptor) {
  std::string text;
  std::array<char, 4096> buffer = {};
  while (true) {
    const ssize_t count = ::read(descriptor, buffer.data(), buffer.size());
    if (count <= 0) return text;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
}

}  // namespace

void UseKillOptions(StoreOptions* options) {
  options->budget_bytes = int64_t{16} << 30;
  options->segment_bytes = int64_t{1} << 20;
  options->snapshot_budget_bytes = 60000;
  options->write_bytes_per_hour = int64_t{1} << 40;
}

KillHarness::KillHarness(std::string worker, std::string directory, uint64_t seed)
    : worker_(std::move(worker)), directory_(std::move(directory)), random_(seed) {}

void KillHarness::Fail(const std::string& failure) {
  if (report_.failure.empty()) {
    report_.failure = "round " + std::to_string(report_.rounds) + ": " + failure;
  }
}

std::vector<PublishedBlock> KillHarness::RunWorker() {
  std::array<int, 2> pipe = {};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) {
    Fail("no pipe");
    return {};
  }
  const std::string seed = std::to_string(report_.rounds);
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(pipe[1], STDOUT_FILENO);
    ::execl(worker_.c_str(), worker_.c_str(), directory_.c_str(), seed.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(pipe[1]);
  // Opening takes a time of its own, and is killed too, in some of the rounds.
  std::string text;
  if (random_() % 4 != 0) {
    char first = 0;
    if (::read(pipe[0], &first, 1) == 1) text.push_back(first);
  }
  std::this_thread::sleep_for(std::chrono::microseconds(random_() % kWorkUsMax));
  ::kill(process, SIGKILL);
  text += ReadAll(pipe[0]);
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(process, &status, 0);
  if (!WIFSIGNALED(status) || WTERMSIG(status) != SIGKILL) {
    Fail("the worker ended by itself with status " + std::to_string(status));
  }
  // The last line may be cut.
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
  std::istringstream lines(text);
  std::vector<PublishedBlock> published;
  PublishedBlock block;
  std::string mark;
  while (lines >> mark >> block.chain >> block.index >> block.payload_bytes) {
    published.push_back(block);
  }
  return published;
}

void KillHarness::Check(BlockStore& store, const PublishedBlock& block) {
  const RecordInfo info = BlockOf(block.chain, block.index, {.payload_bytes = block.payload_bytes});
  std::vector<std::byte> payload(static_cast<size_t>(block.payload_bytes));
  RecordInfo found;
  if (store.Read(info.key, payload, &found) != ReadOutcome::kHit) {
    ++report_.lost;
    Fail("a published block is lost");
    return;
  }
  if (payload != PayloadOf(info.key, block.payload_bytes) || found.tokens != info.tokens) {
    Fail("a block has wrong bytes");
  }
}

void KillHarness::Round() {
  const std::vector<PublishedBlock> fresh = RunWorker();
  ++report_.rounds;
  report_.published += static_cast<int64_t>(fresh.size());
  StoreRig rig(directory_);
  UseKillOptions(&rig.options);
  auto store = BlockStore::Open(rig.options);
  if (!store) return Fail(store.error().message);
  const StoreStats stats = (*store)->Stats();
  report_.recovered += stats.records_recovered;
  report_.damaged += stats.records_damaged;
  if (!stats.enabled) Fail(stats.warning);
  for (const PublishedBlock& block : fresh) Check(**store, block);
  published_.insert(published_.end(), fresh.begin(), fresh.end());
  for (size_t i = 0; i < kOldChecks && !published_.empty(); ++i) {
    Check(**store, published_[random_() % published_.size()]);
  }
  if ((*store)->Stats().records_damaged != stats.records_damaged) {
    Fail("a record in the index is damaged");
  }
  store->reset();
  auto again = BlockStore::Open(rig.options);
  if (!again) return Fail(again.error().message);
  report_.retried += (*again)->Stats().records_damaged;
  if (report_.retried != 0) Fail("damage was found a second time");
}

void KillHarness::CheckAll() {
  StoreRig rig(directory_);
  UseKillOptions(&rig.options);
  auto store = BlockStore::Open(rig.options);
  if (!store) return Fail(store.error().message);
  for (const PublishedBlock& block : published_) Check(**store, block);
  const auto verified = (*store)->Verify(false, nullptr);
  if (!verified) return Fail(verified.error().message);
  if (verified->records_damaged != 0) Fail(verified->problems.front());
}

}  // namespace minke::testing

#include "server/ledger.h"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <condition_variable>
#include <cstdio>
#include <map>
#include <mutex>
#include <thread>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "core/storage_system.h"
#include "server/ledger_database.h"
#include "server/utc_day.h"

namespace minke {

namespace {

constexpr int kAsideNamesMax = 1000;  // of damaged files beside each other

// The order of Days(), too.
using SumKey = std::tuple<std::string, std::string, std::string, std::string>;
using Sums = std::map<SumKey, LedgerDay>;

SumKey KeyOfSum(const LedgerDay& sum) {
  return {sum.day, sum.key_name, sum.model, sum.currency};
}

// Counters that are full stay so: SQLite would make a floating-point number of the sum.
void AddCount(int64_t* sum, int64_t count) {
  if (__builtin_add_overflow(*sum, count, sum)) *sum = INT64_MAX;
}

void MergeSum(Sums& sums, const LedgerDay& sum) {
  const auto inserted = sums.emplace(KeyOfSum(sum), sum);
  if (inserted.second) return;
  LedgerDay& there = inserted.first->second;
  AddCount(&there.requests, sum.requests);
  AddCount(&there.hit_tokens, sum.hit_tokens);
  AddCount(&there.miss_tokens, sum.miss_tokens);
  AddCount(&there.output_tokens, sum.output_tokens);
  there.cost += sum.cost;
}

LedgerDay SumOfEntry(LedgerEntry entry) {
  LedgerDay sum;
  sum.day = UtcDayText(UtcDay(entry.unix_seconds));
  sum.key_name = std::move(entry.key_name);
  sum.model = std::move(entry.model);
  sum.currency = std::move(entry.currency);
  for (std::string* name : {&sum.key_name, &sum.model, &sum.currency}) {
    if (name->size() > kLedgerNameBytesMax) name->resize(kLedgerNameBytesMax);
  }
  sum.requests = 1;
  sum.hit_tokens = std::max<int64_t>(0, entry.hit_tokens);
  sum.miss_tokens = std::max<int64_t>(0, entry.miss_tokens);
  sum.output_tokens = std::max<int64_t>(0, entry.output_tokens);
  sum.cost = std::isfinite(entry.cost) ? std::max(0.0, entry.cost) : 0;
  return sum;
}

Status CheckSinceDay(std::string_view since_day) {
  if (since_day.empty() || ParseUtcDay(since_day).has_value()) return {};
  return Fail(fmt::format("\"{}\" is not a day; a day is written like 2026-11-30.",
                          since_day.substr(0, kLedgerNameBytesMax)));
}

// Without links, so that the names beside the file are those of SQLite.
Result<std::string> LedgerFile(const std::string& path) {
  if (!FileExists(path)) return path;
  return MakePosixStorage()->RealPath(path);
}

Status MakeLedgerDirectory(const std::string& path) {
  const size_t slash = path.rfind('/');
  if (slash == std::string::npos || slash == 0) return {};
  const std::string directory = path.substr(0, slash);
  if (FileExists(directory)) return {};
  return MakePosixStorage()->MakeDirectory(directory);
}

// Renames the file, and its log with it, so that SQLite can still make the most of them. Returns
// the new name.
Result<std::string> SetAside(const std::string& path) {
  for (int number = 1; number <= kAsideNamesMax; ++number) {
    const std::string aside = fmt::format("{}.damaged-{}", path, number);
    if (FileExists(aside) || FileExists(aside + "-wal")) continue;
    if (std::rename(path.c_str(), aside.c_str()) != 0) {
      return IoFailure("set aside the damaged ledger", path, errno);
    }
    if (FileExists(path + "-wal") &&
        std::rename((path + "-wal").c_str(), (aside + "-wal").c_str()) != 0) {
      return IoFailure("set aside the log of the damaged ledger", path, errno);
    }
    // Only of use to the processes that had the old file open.
    if (FileExists(path + "-shm")) std::remove((path + "-shm").c_str());
    return aside;
  }
  return Fail(ErrorCode::kLimit, fmt::format("The ledger {} is damaged, and there are {} damaged "
                                             "ones beside it already; move them away.",
                                             path, kAsideNamesMax));
}

class WritingLedger : public Ledger {
 public:
  explicit WritingLedger(std::string path) : path_(std::move(path)) {}
  ~WritingLedger() override;

  Status Start();
  void Add(LedgerEntry entry) override;
  Status Flush() override;
  Result<std::vector<LedgerDay>> Days(std::string_view since_day,
                                      std::string_view key_name) const override;
  std::string warning() const override;

 private:
  Status OpenDatabase();
  Status OpenAnew(const Error& damage);
  Status WritePending();
  void Loop();
  // REQUIRES queue_mutex_.
  bool IsWaiting(const SumKey& key) const {
    return pending_.contains(key) || writing_.contains(key);
  }

  const std::string path_;
  // Taken before queue_mutex_ where both are.
  mutable std::mutex database_mutex_;
  mutable std::unique_ptr<LedgerDatabase> database_;  // null after a failed attempt to open it

  mutable std::mutex queue_mutex_;  // guards everything below
  std::condition_variable wake_;
  std::condition_variable written_;
  Sums pending_;
  Sums writing_;  // what the thread is writing; empty unless it holds database_mutex_
  uint64_t flushes_wanted_ = 0;
  uint64_t flushes_done_ = 0;
  Status last_write_;
  std::string aside_warning_;
  int64_t uncounted_ = 0;  // requests for which memory had no room
  bool stopping_ = false;

  std::thread thread_;
};

Status WritingLedger::OpenDatabase() {
  database_ = std::make_unique<LedgerDatabase>(path_);
  Status status = database_->Open();
  if (status) return {};
  const bool damaged = database_->damaged();
  database_.reset();
  if (!damaged) return status;
  return OpenAnew(status.error());
}

// Puts a new file in the place of a damaged one.
Status WritingLedger::OpenAnew(const Error& damage) {
  database_.reset();
  const std::string aside = TRY(SetAside(path_));
  {
    const std::lock_guard<std::mutex> lock(queue_mutex_);
    aside_warning_ =
        fmt::format("{} It was set aside as {}, and a new one begun.", damage.message, aside);
  }
  database_ = std::make_unique<LedgerDatabase>(path_);
  Status status = database_->Open();
  if (!status) database_.reset();
  return status;
}

Status WritingLedger::Start() {
  TRY_STATUS(OpenDatabase());
  thread_ = std::thread([this] { Loop(); });
  return {};
}

WritingLedger::~WritingLedger() {
  if (!thread_.joinable()) return;
  {
    const std::lock_guard<std::mutex> lock(queue_mutex_);
    stopping_ = true;
  }
  wake_.notify_one();
  thread_.join();
}

void WritingLedger::Add(LedgerEntry entry) {
  const LedgerDay sum = SumOfEntry(std::move(entry));
  {
    const std::lock_guard<std::mutex> lock(queue_mutex_);
    if (pending_.size() + writing_.size() >= kLedgerPendingMax && !IsWaiting(KeyOfSum(sum))) {
      ++uncounted_;
      return;
    }
    MergeSum(pending_, sum);
  }
  wake_.notify_one();
}

Status WritingLedger::Flush() {
  std::unique_lock<std::mutex> lock(queue_mutex_);
  const uint64_t wanted = ++flushes_wanted_;
  wake_.notify_one();
  written_.wait(lock, [&] { return flushes_done_ >= wanted; });
  return last_write_;
}

// Writes what is pending; on a failure it is pending again.
Status WritingLedger::WritePending() {
  const std::lock_guard<std::mutex> database_lock(database_mutex_);
  if (database_ == nullptr) TRY_STATUS(OpenDatabase());
  std::vector<LedgerDay> sums;
  {
    const std::lock_guard<std::mutex> lock(queue_mutex_);
    writing_.swap(pending_);
    sums.reserve(writing_.size());
    for (const auto& [key, sum] : writing_) sums.push_back(sum);
  }
  if (sums.empty()) return {};
  Status status = database_->Add(sums);
  if (!status && database_->damaged()) {
    status = OpenAnew(status.error());
    if (status) status = database_->Add(sums);
  }
  const std::lock_guard<std::mutex> lock(queue_mutex_);
  writing_.clear();
  if (!status) {
    for (const LedgerDay& sum : sums) MergeSum(pending_, sum);
  }
  return status;
}

void WritingLedger::Loop() {
  std::unique_lock<std::mutex> lock(queue_mutex_);
  const auto urgent = [this] { return stopping_ || flushes_wanted_ > flushes_done_; };
  while (true) {
    wake_.wait(lock, [&] { return urgent() || !pending_.empty(); });
    // What comes in the meantime is written together.
    const auto pause = last_write_ ? std::chrono::milliseconds(kLedgerDelayMs)
                                   : std::chrono::milliseconds(kLedgerRetrySeconds * 1000);
    wake_.wait_for(lock, pause, urgent);
    const bool last = stopping_;
    const uint64_t flushes = flushes_wanted_;
    lock.unlock();
    const Status status = WritePending();
    lock.lock();
    last_write_ = status;
    flushes_done_ = flushes;
    written_.notify_all();
    if (last) return;
  }
}

Result<std::vector<LedgerDay>> WritingLedger::Days(std::string_view since_day,
                                                   std::string_view key_name) const {
  TRY_STATUS(CheckSinceDay(since_day));
  const std::lock_guard<std::mutex> database_lock(database_mutex_);
  Sums sums;
  if (database_ != nullptr) {
    for (const LedgerDay& day : TRY(database_->Days(since_day, key_name))) MergeSum(sums, day);
  }
  const std::lock_guard<std::mutex> lock(queue_mutex_);
  for (const auto& [key, sum] : pending_) {
    if (sum.day >= since_day && (key_name.empty() || sum.key_name == key_name)) {
      MergeSum(sums, sum);
    }
  }
  std::vector<LedgerDay> days;
  days.reserve(sums.size());
  for (const auto& [key, sum] : sums) days.push_back(sum);
  return days;
}

std::string WritingLedger::warning() const {
  const std::lock_guard<std::mutex> lock(queue_mutex_);
  std::string text = aside_warning_;
  const auto add = [&text](const std::string& sentence) {
    text += (text.empty() ? "" : " ") + sentence;
  };
  if (!last_write_) {
    add(fmt::format("{} Requests are answered and counted in memory; writing is tried again.",
                    last_write_.error().message));
  }
  if (uncounted_ > 0) {
    add(
        fmt::format("The memory for counts that wait for the ledger is full; {} requests were not "
                    "counted.",
                    uncounted_));
  }
  return text;
}

class ReadingLedger : public Ledger {
 public:
  explicit ReadingLedger(const std::string& path) : database_(path) {}
  Status Open() { return database_.OpenReadOnly(); }

  void Add(LedgerEntry /*entry*/) override { CHECK(false, "the ledger was opened for reading"); }
  Status Flush() override { return {}; }
  Result<std::vector<LedgerDay>> Days(std::string_view since_day,
                                      std::string_view key_name) const override {
    TRY_STATUS(CheckSinceDay(since_day));
    const std::lock_guard<std::mutex> lock(mutex_);
    return database_.Days(since_day, key_name);
  }
  std::string warning() const override { return {}; }

 private:
  mutable std::mutex mutex_;
  mutable LedgerDatabase database_;
};

}  // namespace

Result<std::unique_ptr<Ledger>> Ledger::Open(const std::string& path) {
  TRY_STATUS(MakeLedgerDirectory(path));
  auto ledger = std::make_unique<WritingLedger>(TRY(LedgerFile(path)));
  TRY_STATUS(ledger->Start());
  return std::unique_ptr<Ledger>(std::move(ledger));
}

Result<std::unique_ptr<Ledger>> Ledger::OpenReadOnly(const std::string& path) {
  if (!FileExists(path)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("There is no ledger {}; minke serve makes it, and --ledger names "
                            "another.",
                            path));
  }
  auto ledger = std::make_unique<ReadingLedger>(TRY(LedgerFile(path)));
  TRY_STATUS(ledger->Open());
  return std::unique_ptr<Ledger>(std::move(ledger));
}

}  // namespace minke

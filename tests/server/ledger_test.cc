// The ledger: sums over restarts, kills, damage, full disks, several users at once.
#include "server/ledger.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "server/utc_day.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::TempDirectory;

constexpr int64_t kNoon = 1'796'040'000;   // 2026-11-30 12:00:00
constexpr size_t kUserVersionOffset = 60;  // in the header of an SQLite file, big-endian
constexpr size_t kApplicationIdOffset = 68;

std::unique_ptr<Ledger> MustOpen(const std::string& path) {
  auto ledger = Ledger::Open(path);
  CHECK(ledger.has_value(), ledger.error().message);
  return std::move(*ledger);
}

std::string OpenError(const std::string& path) {
  const auto ledger = Ledger::Open(path);
  return ledger.has_value() ? "no error" : ledger.error().message;
}

std::vector<LedgerDay> MustDays(const Ledger& ledger, std::string_view since = {},
                                std::string_view key = {}) {
  auto days = ledger.Days(since, key);
  CHECK(days.has_value(), days.error().message);
  return std::move(*days);
}

LedgerEntry Entry(const std::string& key, int64_t tokens, int64_t unix_seconds = kNoon) {
  return {.unix_seconds = unix_seconds,
          .key_name = key,
          .model = "deepseek-flash",
          .hit_tokens = tokens,
          .miss_tokens = 2 * tokens,
          .output_tokens = 3 * tokens,
          .cost = 0.5,
          .currency = "USD"};
}

int64_t Requests(const std::vector<LedgerDay>& days) {
  int64_t requests = 0;
  for (const LedgerDay& day : days) requests += day.requests;
  return requests;
}

std::string ReadBytes(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

std::vector<std::string> Names(const std::string& directory) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(directory)) {
    names.push_back(entry.path().filename().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

uint32_t ModeOf(const std::string& path) {
  struct stat info = {};
  return ::stat(path.c_str(), &info) == 0 ? info.st_mode & 0777U : 0;
}

// While it lives, no file of this process can grow, as on a full disk.
class FullDisk {
 public:
  FullDisk() {
    ::signal(SIGXFSZ, SIG_IGN);
    ::getrlimit(RLIMIT_FSIZE, &before_);
    rlimit none = before_;
    none.rlim_cur = 1;
    CHECK(::setrlimit(RLIMIT_FSIZE, &none) == 0);
  }
  ~FullDisk() { ::setrlimit(RLIMIT_FSIZE, &before_); }
  FullDisk(const FullDisk&) = delete;
  FullDisk& operator=(const FullDisk&) = delete;

 private:
  rlimit before_ = {};
};

TEST(Ledger, SumsByDayKeyAndModelSurviveRestarts) {
  const TempDirectory directory;
  const std::string path = directory.Path("state/minke/ledger.sqlite");
  {
    const auto ledger = MustOpen(path);
    EXPECT_TRUE(MustDays(*ledger).empty());
    ledger->Add(Entry("alice", 1));
    ledger->Add(Entry("bob", 10));
    ledger->Add(Entry("alice", 100));
    EXPECT_EQ(ledger->warning(), "");
  }
  {
    const auto ledger = MustOpen(path);
    ledger->Add(Entry("alice", 1000));
    LedgerEntry other = Entry("alice", 5);
    other.model = "nano";
    ledger->Add(other);
    other.currency = "CNY";
    ledger->Add(other);
    ASSERT_TRUE(ledger->Flush().has_value());
  }
  const auto ledger = MustOpen(path);
  const auto days = MustDays(*ledger);
  ASSERT_EQ(days.size(), 4U);
  EXPECT_EQ(days[0].day, "2026-11-30");
  EXPECT_EQ(days[0].key_name, "alice");
  EXPECT_EQ(days[0].model, "deepseek-flash");
  EXPECT_EQ(days[0].currency, "USD");
  EXPECT_EQ(days[0].requests, 3);
  EXPECT_EQ(days[0].hit_tokens, 1101);
  EXPECT_EQ(days[0].miss_tokens, 2202);
  EXPECT_EQ(days[0].output_tokens, 3303);
  EXPECT_DOUBLE_EQ(days[0].cost, 1.5);
  EXPECT_EQ(days[1].model, "nano");
  EXPECT_EQ(days[1].currency, "CNY");
  EXPECT_EQ(days[2].currency, "USD");
  EXPECT_EQ(days[3].key_name, "bob");
  EXPECT_EQ(days[3].requests, 1);
  // Only its owner may look at it, the log included.
  EXPECT_EQ(ModeOf(path), 0600U);
  EXPECT_EQ(ModeOf(path + "-wal"), 0600U);
  EXPECT_EQ(ModeOf(directory.Path("state/minke")), 0700U);
}

TEST(Ledger, DaysEndAtMidnightUtc) {
  const TempDirectory directory;
  const auto ledger = MustOpen(directory.Path("l"));
  const int64_t midnight = *ParseUtcDay("2026-11-30") * kDaySeconds;
  ledger->Add(Entry("k", 1, midnight - 1));
  ledger->Add(Entry("k", 10, midnight));
  ledger->Add(Entry("k", 100, midnight + kDaySeconds - 1));
  ledger->Add(Entry("k", 1000, midnight + kDaySeconds));
  const auto days = MustDays(*ledger);
  ASSERT_EQ(days.size(), 3U);
  EXPECT_EQ(days[0].day, "2026-11-29");
  EXPECT_EQ(days[0].hit_tokens, 1);
  EXPECT_EQ(days[1].hit_tokens, 110);
  EXPECT_EQ(days[2].day, "2026-12-01");
}

TEST(Ledger, QuestionsAreForDaysAndKeys) {
  const TempDirectory directory;
  const auto ledger = MustOpen(directory.Path("l"));
  const auto ask = [&](std::string_view since, std::string_view key) {
    return Requests(MustDays(*ledger, since, key));
  };
  // The same, from the file and from memory.
  for (int64_t round = 1; round <= 2; ++round) {
    ledger->Add(Entry("alice", 1, kNoon - kDaySeconds));
    ledger->Add(Entry("bob", 1, kNoon));
    ledger->Add(Entry("", 1, kNoon));
    EXPECT_EQ(ask("", ""), 3 * round);
    EXPECT_EQ(ask("2026-11-29", ""), 3 * round);
    EXPECT_EQ(ask("2026-11-30", ""), 2 * round);
    EXPECT_EQ(ask("2026-12-01", ""), 0);
    EXPECT_EQ(ask("", "alice"), round);
    EXPECT_EQ(ask("2026-11-30", "alice"), 0);
    EXPECT_EQ(ask("", "ali"), 0);
    ASSERT_TRUE(ledger->Flush().has_value());
  }
  const auto wrong = ledger->Days("yesterday", "");
  ASSERT_FALSE(wrong.has_value());
  EXPECT_NE(wrong.error().message.find("\"yesterday\" is not a day"), std::string::npos);
}

TEST(Ledger, StrangeEntriesDoNotSpoilSums) {
  const TempDirectory directory;
  const auto ledger = MustOpen(directory.Path("l"));
  LedgerEntry entry = Entry(std::string(kLedgerNameBytesMax + 9, 'k'), -5);
  entry.cost = std::numeric_limits<double>::quiet_NaN();
  ledger->Add(entry);
  entry.cost = -1;
  ledger->Add(entry);
  entry.hit_tokens = std::numeric_limits<int64_t>::max();
  ledger->Add(entry);
  ledger->Add(entry);
  entry.key_name = std::string("nul\0and 'quotes'", 16);
  ledger->Add(entry);
  ASSERT_TRUE(ledger->Flush().has_value());
  const auto days = MustDays(*ledger);
  ASSERT_EQ(days.size(), 2U);
  EXPECT_EQ(days[0].key_name, std::string(kLedgerNameBytesMax, 'k'));
  EXPECT_EQ(days[0].requests, 4);
  EXPECT_EQ(days[0].hit_tokens, std::numeric_limits<int64_t>::max());
  EXPECT_EQ(days[0].miss_tokens, 0);
  EXPECT_EQ(days[0].cost, 0);
  EXPECT_EQ(days[1].key_name, std::string("nul\0and 'quotes'", 16));
}

TEST(Ledger, ADamagedFileIsSetAside) {
  const TempDirectory directory;
  const std::string path = directory.Path("l");
  {
    const auto ledger = MustOpen(path);
    for (int64_t day = 0; day < 400; ++day) {
      ledger->Add(Entry("alice", 1, kNoon + day * kDaySeconds));
    }
  }
  const std::string good = ReadBytes(path);
  ASSERT_GT(good.size(), 12'288U);
  std::string renamed = good;
  const size_t column = renamed.find("miss_tokens INTEGER");
  ASSERT_NE(column, std::string::npos);
  renamed[column] = 'h';
  std::string torn = good;
  torn.replace(8192 + 8, 200, std::string(200, '\x7f'));
  const std::vector<std::string> damaged = {std::string(20'000, 'x'), good.substr(0, 5000), torn,
                                            renamed};
  for (size_t i = 0; i < damaged.size(); ++i) {
    directory.Write("l", damaged[i]);
    const auto ledger = MustOpen(path);
    const std::string aside = path + ".damaged-" + std::to_string(i + 1);
    EXPECT_NE(ledger->warning().find("set aside as " + aside), std::string::npos)
        << ledger->warning();
    EXPECT_EQ(ReadBytes(aside), damaged[i]);
    EXPECT_TRUE(MustDays(*ledger).empty());
    ledger->Add(Entry("bob", 1));
    EXPECT_TRUE(ledger->Flush().has_value());
    EXPECT_EQ(Requests(MustDays(*ledger)), 1);
  }
  // Nobody who only looks changes anything.
  directory.Write("l", damaged[2]);
  const auto looking = Ledger::OpenReadOnly(path);
  ASSERT_FALSE(looking.has_value());
  EXPECT_NE(looking.error().message.find("is damaged"), std::string::npos);
  EXPECT_EQ(ReadBytes(path), damaged[2]);
}

TEST(Ledger, DamageUnderAServerIsSetAsideToo) {
  const TempDirectory directory;
  const std::string path = directory.Path("l");
  {
    const auto ledger = MustOpen(path);
    for (int64_t i = 0; i < 400; ++i) ledger->Add(Entry("alice", 1, kNoon + i * kDaySeconds));
  }
  const auto ledger = MustOpen(path);
  // Another server's writing makes this one forget its pages, and read them again.
  { MustOpen(path)->Add(Entry("zoe", 1, kNoon + 400 * kDaySeconds)); }
  std::fstream file(path, std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(4096);
  file << std::string(std::filesystem::file_size(path) - 4096, 'x');
  file.close();
  ledger->Add(Entry("bob", 1));
  const Status status = ledger->Flush();
  EXPECT_TRUE(status.has_value()) << status.error().message;
  EXPECT_NE(ledger->warning().find("was set aside"), std::string::npos) << ledger->warning();
  EXPECT_EQ(Requests(MustDays(*ledger, "", "bob")), 1);
}

TEST(Ledger, AnotherDatabaseAndANewerLedgerAreLeftAlone) {
  const TempDirectory directory;
  const std::string path = directory.Path("l");
  { MustOpen(path)->Add(Entry("alice", 1)); }
  const std::string good = ReadBytes(path);
  std::string other = good;
  other[kApplicationIdOffset] = 0;
  directory.Write("l", other);
  EXPECT_NE(OpenError(path).find("is not a ledger of minke"), std::string::npos);
  EXPECT_EQ(ReadBytes(path), other);
  std::string newer = good;
  newer[kUserVersionOffset + 3] = 2;
  directory.Write("l", newer);
  EXPECT_NE(OpenError(path).find("has version 2, and this minke knows version 1"),
            std::string::npos);
  EXPECT_EQ(ReadBytes(path), newer);
  EXPECT_EQ(Names(directory.path()), std::vector<std::string>{"l"});
  // Nor is a folder.
  EXPECT_NE(OpenError(directory.path()), "no error");
}

TEST(Ledger, AFullDiskIsOneWarningAndServingGoesOn) {
  const TempDirectory directory;
  const std::string path = directory.Path("l");
  const auto ledger = MustOpen(path);
  ledger->Add(Entry("alice", 1));
  ASSERT_TRUE(ledger->Flush().has_value());
  std::string warning;
  {
    const FullDisk full;
    ledger->Add(Entry("alice", 1));
    ledger->Add(Entry("bob", 1));
    const Status status = ledger->Flush();
    ASSERT_FALSE(status.has_value());
    EXPECT_NE(status.error().message.find(path), std::string::npos) << status.error().message;
    warning = ledger->warning();
    EXPECT_NE(warning.find("counted in memory"), std::string::npos) << warning;
    ledger->Add(Entry("carol", 1));
    EXPECT_FALSE(ledger->Flush().has_value());
    EXPECT_EQ(ledger->warning(), warning);
    EXPECT_EQ(Requests(MustDays(*ledger)), 4);
  }
  ASSERT_TRUE(ledger->Flush().has_value());
  EXPECT_EQ(ledger->warning(), "");
  EXPECT_EQ(Requests(MustDays(*ledger)), 4);
  const auto looking = Ledger::OpenReadOnly(path);
  ASSERT_TRUE(looking.has_value()) << looking.error().message;
  EXPECT_EQ(Requests(MustDays(**looking)), 4);
}

TEST(Ledger, WaitingCountsAreLimited) {
  const TempDirectory directory;
  const auto ledger = MustOpen(directory.Path("l"));
  // SQLite makes the files that reading needs with the first transaction.
  ledger->Add(Entry("k", 1));
  ASSERT_TRUE(ledger->Flush().has_value());
  const FullDisk full;
  for (size_t i = 0; i <= kLedgerPendingMax; ++i) {
    LedgerEntry entry = Entry("k", 1);
    entry.model = std::to_string(i);
    ledger->Add(entry);
  }
  // A sum that is there has room for more.
  LedgerEntry known = Entry("k", 1);
  known.model = "0";
  ledger->Add(known);
  EXPECT_NE(ledger->warning().find("1 requests were not counted"), std::string::npos)
      << ledger->warning();
  EXPECT_EQ(Requests(MustDays(*ledger)), static_cast<int64_t>(kLedgerPendingMax) + 2);
}

TEST(Ledger, LookingLeavesNothingBehind) {
  const TempDirectory directory;
  const std::string path = directory.Path("l#1?%");
  const auto missing = Ledger::OpenReadOnly(path);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  { MustOpen(path)->Add(Entry("alice", 1)); }
  const auto before = Names(directory.path());
  const std::string bytes = ReadBytes(path);
  {
    const auto looking = Ledger::OpenReadOnly(path);
    ASSERT_TRUE(looking.has_value()) << looking.error().message;
    EXPECT_EQ(Requests(MustDays(**looking)), 1);
    EXPECT_TRUE((*looking)->Flush().has_value());
    EXPECT_EQ(Names(directory.path()), before);
  }
  EXPECT_EQ(Names(directory.path()), before);
  EXPECT_EQ(ReadBytes(path), bytes);
}

TEST(Ledger, LookingWhileAServerWrites) {
  const TempDirectory directory;
  const std::string path = directory.Path("l");
  std::filesystem::create_symlink(path, directory.Path("link"));
  const auto ledger = MustOpen(path);
  for (int64_t i = 1; i <= 3; ++i) {
    ledger->Add(Entry("alice", 1));
    ASSERT_TRUE(ledger->Flush().has_value());
    const auto looking = Ledger::OpenReadOnly(directory.Path(i == 2 ? "link" : "l"));
    ASSERT_TRUE(looking.has_value()) << looking.error().message;
    EXPECT_EQ(Requests(MustDays(**looking)), i);
  }
}

TEST(Ledger, ThreadsAndLedgersOfOneFileAddUp) {
  const TempDirectory directory;
  const std::string path = directory.Path("l");
  constexpr int kThreads = 4;
  constexpr int kEntries = 500;
  {
    const auto first = MustOpen(path);
    const auto second = MustOpen(path);
    std::vector<std::thread> threads;
    threads.reserve(kThreads);
    for (int thread = 0; thread < kThreads; ++thread) {
      threads.emplace_back([&, thread] {
        Ledger& ledger = thread % 2 == 0 ? *first : *second;
        for (int i = 0; i < kEntries; ++i) {
          ledger.Add(Entry("k" + std::to_string(thread), 1, kNoon + i % 3 * kDaySeconds));
          if (i % 100 != 0) continue;
          EXPECT_TRUE(ledger.Flush().has_value());
          EXPECT_GT(Requests(MustDays(ledger)), 0);
          EXPECT_EQ(ledger.warning(), "");
          const auto looking = Ledger::OpenReadOnly(path);
          ASSERT_TRUE(looking.has_value()) << looking.error().message;
          EXPECT_GT(Requests(MustDays(**looking)), 0);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
  const auto days = MustDays(*MustOpen(path));
  EXPECT_EQ(days.size(), 3U * kThreads);
  EXPECT_EQ(Requests(days), kThreads * kEntries);
}

TEST(Ledger, AddDoesNotWaitForTheDisk) {
  const TempDirectory directory;
  const auto ledger = MustOpen(directory.Path("l"));
  const auto seconds_each = [](int count, const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    for (int i = 0; i < count; ++i) work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() / count;
  };
  // Against each other, because a busy machine makes both slow.
  constexpr int kFlushes = 10;
  constexpr int kEntries = 5'000;
  const double flush = seconds_each(kFlushes, [&] {
    ledger->Add(Entry("k", 1));
    EXPECT_TRUE(ledger->Flush().has_value());
  });
  const double add = seconds_each(kEntries, [&] { ledger->Add(Entry("k", 1)); });
  EXPECT_LT(add, flush / 3);
  EXPECT_EQ(Requests(MustDays(*ledger)), kFlushes + kEntries);
}

// Runs the worker for a while and kills it. Returns the milliseconds that the ledger does not know
// of, or -1.
int64_t LostMilliseconds(const std::string& path, int64_t known_before, int64_t* known) {
  std::array<int, 2> pipe = {};
  if (::pipe2(pipe.data(), O_CLOEXEC) != 0) return -1;
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(pipe[1], STDOUT_FILENO);
    ::execl(MINKE_LEDGER_WORKER, MINKE_LEDGER_WORKER, path.c_str(), nullptr);
    ::_exit(127);
  }
  ::close(pipe[1]);
  // Starting may take any time.
  std::string text(1, ' ');
  if (::read(pipe[0], text.data(), 1) != 1) return -1;
  std::thread reader([&] {
    std::array<char, 4096> buffer = {};
    ssize_t count = 0;
    while ((count = ::read(pipe[0], buffer.data(), buffer.size())) > 0) {
      text.append(buffer.data(), static_cast<size_t>(count));
    }
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(1300));
  ::kill(process, SIGKILL);
  reader.join();
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(process, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL) << status;
  // The last line may be cut.
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n'));
  if (text.empty()) return -1;
  const int64_t printed = std::stoll(text.substr(text.rfind('\n') + 1));
  const auto ledger = MustOpen(path);
  EXPECT_EQ(ledger->warning(), "");
  int64_t sum = 0;
  for (const LedgerDay& day : MustDays(*ledger)) sum += day.hit_tokens;
  *known = sum;
  return printed - (sum - known_before);
}

TEST(Ledger, AKillLosesTheLastSecondAtMost) {
  const TempDirectory directory;
  std::vector<int64_t> lost;
  int64_t known = 0;
  for (int round = 0; round < 5; ++round) {
    lost.push_back(LostMilliseconds(directory.Path("l"), known, &known));
    ASSERT_NE(lost.back(), -1);
    // A machine that is busy with other things may stand still for a while.
    EXPECT_LT(lost.back(), 10'000);
  }
  std::sort(lost.begin(), lost.end());
  EXPECT_LE(lost[2], 1000);
  EXPECT_GT(known, 0);
}

}  // namespace
}  // namespace minke

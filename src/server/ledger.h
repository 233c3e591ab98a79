// What each API key used on each day, kept in SQLite so that restarts lose nothing. The database
// has one table, `days`, a row for each day, key, model and currency; docs/formats/ledger.md.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace minke {

inline constexpr size_t kLedgerNameBytesMax = 256;  // of a key's or a model's name; more is cut off
// Sums that wait to be written, for as long as the disk takes none. More are not counted.
inline constexpr size_t kLedgerPendingMax = 16'384;
inline constexpr int64_t kLedgerDaysMax = 1'000'000;  // rows of one answer of Days()
// What is added is written at the latest after this; then the next ones gather.
inline constexpr int kLedgerDelayMs = 200;
inline constexpr int kLedgerRetrySeconds = 5;  // after a failed write

// One finished request. Counts and costs below zero, and costs that are no numbers, count as zero.
struct LedgerEntry {
  int64_t unix_seconds = 0;
  std::string key_name;  // which API key; never the key itself
  std::string model;     // one of the server's names, so that clients cannot make up rows
  int64_t hit_tokens = 0;
  int64_t miss_tokens = 0;
  int64_t output_tokens = 0;
  double cost = 0;
  std::string currency;
};

struct LedgerDay {
  std::string day;  // "2026-11-30", UTC
  std::string key_name;
  std::string model;
  std::string currency;
  int64_t requests = 0;
  int64_t hit_tokens = 0;
  int64_t miss_tokens = 0;
  int64_t output_tokens = 0;
  double cost = 0;
};

// Every member may be called from any thread; Add() returns at once, a thread of the ledger's own
// writes. What was added a second ago survives kill -9, and a loss of power too where the disk
// keeps its promises. While writing fails (a full disk), sums gather in memory, `warning()` says
// so, and writing is tried again.
class Ledger {
 public:
  // `path`: the database file, created with mode 0600 in a directory that is created where it is
  // missing. Errors name it: the directory cannot be written, or the file is a database of
  // something else or of a newer version. A damaged file is set aside under another name and said
  // in `warning()`.
  static Result<std::unique_ptr<Ledger>> Open(const std::string& path);
  // Looks at it without writing, while a server may be using it. Add() is not allowed. Errors:
  // there is none (kNotFound), it is damaged.
  static Result<std::unique_ptr<Ledger>> OpenReadOnly(const std::string& path);
  // Writes what is pending.
  virtual ~Ledger() = default;

  virtual void Add(LedgerEntry entry) = 0;
  // Waits until everything that was added is written, or says why it is not.
  virtual Status Flush() = 0;
  // Days from `since_day` on (empty: all), ascending, with what is added but not written yet;
  // key_name empty: all keys.
  virtual Result<std::vector<LedgerDay>> Days(std::string_view since_day,
                                              std::string_view key_name) const = 0;
  // What is wrong and has a person's attention to ask for, as sentences; empty if nothing is.
  virtual std::string warning() const = 0;
};

}  // namespace minke

// What each API key used on each day, kept in SQLite so that restarts lose nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace minke {

// One finished request.
struct LedgerEntry {
  int64_t unix_seconds = 0;
  std::string key_name;  // which API key; never the key itself
  std::string model;
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
// writes. What was added a second ago survives kill -9.
class Ledger {
 public:
  // `path`: the database file, created with mode 0600. Errors name it. A damaged file is set aside
  // under another name and said in `warning()`.
  static Result<std::unique_ptr<Ledger>> Open(const std::string& path);
  // Looks at it without writing, while a server may be using it.
  static Result<std::unique_ptr<Ledger>> OpenReadOnly(const std::string& path);
  virtual ~Ledger() = default;

  virtual void Add(LedgerEntry entry) = 0;
  virtual Status Flush() = 0;
  // Days from `since_day` on, ascending; key_name empty: all keys.
  virtual Result<std::vector<LedgerDay>> Days(std::string_view since_day,
                                              std::string_view key_name) const = 0;
  virtual std::string warning() const = 0;
};

}  // namespace minke

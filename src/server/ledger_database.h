// The SQLite file of the ledger. For ledger.cc alone: the other files see Ledger.
// Thread safety: one caller at a time.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"
#include "server/ledger.h"

namespace minke {

class LedgerDatabase {
 public:
  explicit LedgerDatabase(std::string path) : path_(std::move(path)) {}

  // Opens the file for reading and writing, and makes it where it is missing.
  Status Open();
  // Opens it for Days() alone.
  Status OpenReadOnly();
  // Whether the last error means that the file's bytes are not those of a ledger any more.
  bool damaged() const { return damaged_; }

  // REQUIRES that it is open. Adds the sums to their rows, all or none.
  Status Add(const std::vector<LedgerDay>& sums);
  // Ascending by day, key, model and currency.
  Result<std::vector<LedgerDay>> Days(std::string_view since_day, std::string_view key_name);

 private:
  struct CloseLedger {
    void operator()(sqlite3* database) const noexcept { sqlite3_close_v2(database); }
  };
  struct FinalizeLedger {
    void operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
  };
  using Statement = std::unique_ptr<sqlite3_stmt, FinalizeLedger>;

  // `flags`: of sqlite3_open_v2().
  Status Connect(const std::string& name, int flags);
  Status AddSums(const std::vector<LedgerDay>& sums);
  Status CheckContents();
  // The file must be a ledger of this version; an empty one becomes one if `create`.
  Status CheckSchema(bool create);
  Status Execute(const std::string& sql);
  Result<Statement> Prepare(std::string_view sql);
  // The first column of the first row; what it was before where there is no row.
  Status SelectText(std::string_view sql, std::string* text);
  Status SelectNumber(std::string_view sql, int64_t* number);
  tl::unexpected<Error> Failure(int code);
  tl::unexpected<Error> Damage(std::string_view why);

  std::string path_;
  std::unique_ptr<sqlite3, CloseLedger> database_;
  bool damaged_ = false;
};

}  // namespace minke

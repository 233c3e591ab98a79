// The SQLite connection of the index and the shape of its tables. For store_index.cc alone: the
// other files see StoreIndex.
#pragma once

#include <sqlite3.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "prefix_cache/record_format.h"
#include "prefix_cache/segment_file.h"
#include "prefix_cache/store_index.h"

namespace minke {

// The place of a record is its row id: records of a segment stand together, in order.
inline constexpr int kOffsetBits = 31;
inline int64_t Location(int64_t segment, int64_t offset) {
  return (segment << kOffsetBits) | (offset / kRecordAlignBytes);
}
inline int64_t SegmentOf(int64_t location) {
  return location >> kOffsetBits;
}
inline int64_t OffsetOf(int64_t location) {
  return (location & ((int64_t{1} << kOffsetBits) - 1)) * kRecordAlignBytes;
}
static_assert(kSegmentOffsetMax == kRecordAlignBytes << kOffsetBits);

// A macro, because only literals join to one literal, and statements are known by their text.
#define MINKE_COLUMNS                                                                      \
  "location, kind, key, parent, fingerprint, tenant, content, end_position, token_count, " \
  "payload_bytes, created_us, last_used_us"

struct CloseDatabase {
  void operator()(sqlite3* database) const noexcept { sqlite3_close_v2(database); }
};
struct FinalizeStatement {
  void operator()(sqlite3_stmt* statement) const noexcept { sqlite3_finalize(statement); }
};

// One execution of a prepared statement. Resetting it ends its read transaction.
class Binding {
 public:
  explicit Binding(sqlite3_stmt* statement) : statement_(statement) {}
  ~Binding() {
    sqlite3_reset(statement_);
    sqlite3_clear_bindings(statement_);
  }
  Binding(const Binding&) = delete;
  Binding& operator=(const Binding&) = delete;

  void Value(int64_t value) { sqlite3_bind_int64(statement_, ++bound_, value); }
  void Value(const CacheKey& key) {
    sqlite3_bind_blob(statement_, ++bound_, key.bytes.data(), static_cast<int>(key.bytes.size()),
                      SQLITE_STATIC);
  }
  void Null() { sqlite3_bind_null(statement_, ++bound_); }
  template <typename... Values>
  void All(const Values&... values) {
    (Value(values), ...);
  }

 private:
  sqlite3_stmt* statement_;
  int bound_ = 0;
};

// The connection and its prepared statements.
struct IndexDatabase {
  std::string path;
  std::unique_ptr<sqlite3, CloseDatabase> database;
  // By their text. Declared after the connection, so that they go first.
  std::unordered_map<std::string_view, std::unique_ptr<sqlite3_stmt, FinalizeStatement>> statements;
  // Both ways between keys and the small numbers that stand for them in rows. A number is not
  // used again while the process lives, so that another connection's memory of it stays right.
  std::unordered_map<CacheKey, int64_t, CacheKeyHash> name_ids;
  std::unordered_map<int64_t, CacheKey> names;
  int64_t next_name_id = 0;

  tl::unexpected<Error> Failure(int code) const;
  // The file is not an index, and is to be made again.
  tl::unexpected<Error> Distrust(std::string_view why) const;
  tl::unexpected<Error> Implausible() const;

  Status Execute(const std::string& sql);

  // REQUIRES the text to live as long as the program: it is a key of the map.
  Result<sqlite3_stmt*> Prepare(std::string_view sql);

  // Binds the values in order and calls visit(statement) for every row.
  template <typename Visit, typename... Values>
  Status Select(std::string_view sql, const Visit& visit, const Values&... values) {
    sqlite3_stmt* statement = TRY(Prepare(sql));
    Binding binding(statement);
    binding.All(values...);
    while (true) {
      const int code = sqlite3_step(statement);
      if (code == SQLITE_DONE) return {};
      if (code != SQLITE_ROW) return Failure(code);
      TRY_STATUS(visit(statement));
    }
  }
  template <typename... Values>
  Status Run(std::string_view sql, const Values&... values) {
    return Select(
        sql, [](sqlite3_stmt*) -> Status { return {}; }, values...);
  }
  template <typename... Values>
  Result<bool> Any(std::string_view sql, const Values&... values) {
    bool any = false;
    TRY_STATUS(Select(
        sql,
        [&any](sqlite3_stmt*) -> Status {
          any = true;
          return {};
        },
        values...));
    return any;
  }
  template <typename... Values>
  Result<std::vector<IndexRow>> Rows(std::string_view sql, const Values&... values) {
    std::vector<IndexRow> rows;
    TRY_STATUS(Select(
        sql,
        [this, &rows](sqlite3_stmt* statement) -> Status {
          rows.push_back(TRY(RowOf(statement)));
          return {};
        },
        values...));
    return rows;
  }

  // The number of a name; -1 if it has none and is not to get one.
  Result<int64_t> NameId(const CacheKey& name, bool create);

  Result<CacheKey> Name(int64_t id);

  // REQUIRES the columns of kColumns.
  Result<IndexRow> RowOf(sqlite3_stmt* statement);

  Status OpenDatabase(IndexMode mode);
  Status Configure(IndexMode mode);
  Status CheckContents();
  Status CreateSchema();
  Status CheckSchema();
};

}  // namespace minke

#include "server/ledger_database.h"

#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "core/storage_system.h"

namespace minke {

namespace {

constexpr int kLedgerBusyMs = 5000;           // another process is writing
constexpr int kLedgerValueBytesMax = 65'536;  // of one value or statement; ours are far smaller
constexpr int64_t kLedgerCheckBytesMax = int64_t{64} << 20;  // a larger file is opened unread
constexpr int64_t kLedgerApplicationId = 0x4d6e6b4c;         // "MnkL"
constexpr int64_t kLedgerVersion = 1;
// As SQLite repeats it behind "CREATE TABLE".
constexpr std::string_view kLedgerTable =
    "days(day TEXT NOT NULL, key_name TEXT NOT NULL, model TEXT NOT NULL, "
    "currency TEXT NOT NULL, requests INTEGER NOT NULL, hit_tokens INTEGER NOT NULL, "
    "miss_tokens INTEGER NOT NULL, output_tokens INTEGER NOT NULL, cost REAL NOT NULL, "
    "PRIMARY KEY(day, key_name, model, currency)) STRICT, WITHOUT ROWID";

// The file, and not the disk or the moment, is what is wrong.
bool IsDamage(int code) {
  const int primary = code & 0xff;
  return primary == SQLITE_CORRUPT || primary == SQLITE_NOTADB || primary == SQLITE_FORMAT;
}

void BindText(sqlite3_stmt* statement, int column, std::string_view text) {
  // Of a view without a pointer SQLite would make a null, which equals nothing.
  const char* data = text.data() != nullptr ? text.data() : "";
  sqlite3_bind_text(statement, column, data, static_cast<int>(text.size()), SQLITE_STATIC);
}

std::string LedgerText(sqlite3_stmt* statement, int column) {
  const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, column));
  if (text == nullptr) return {};
  return {text, static_cast<size_t>(sqlite3_column_bytes(statement, column))};
}

// Characters that mean something in a file: URI are written as %XX.
std::string ImmutableUri(const std::string& path) {
  std::string uri = "file:";
  for (const char c : path) {
    if (c == '%' || c == '?' || c == '#') {
      uri += fmt::format("%{:02x}", static_cast<unsigned char>(c));
    } else {
      uri += c;
    }
  }
  return uri + "?immutable=1";
}

}  // namespace

tl::unexpected<Error> LedgerDatabase::Failure(int code) {
  const char* text = database_ != nullptr ? sqlite3_errmsg(database_.get()) : sqlite3_errstr(code);
  if (IsDamage(code)) return Damage(text);
  return Fail(ErrorCode::kIo, fmt::format("The ledger {} cannot be used: {}.", path_, text));
}

tl::unexpected<Error> LedgerDatabase::Damage(std::string_view why) {
  damaged_ = true;
  return Fail(fmt::format("The ledger {} is damaged: {}.", path_, why));
}

Status LedgerDatabase::Execute(const std::string& sql) {
  const int code = sqlite3_exec(database_.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return Failure(code);
  return {};
}

Result<LedgerDatabase::Statement> LedgerDatabase::Prepare(std::string_view sql) {
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v2(database_.get(), sql.data(), static_cast<int>(sql.size()),
                                      &statement, nullptr);
  if (code != SQLITE_OK) return Failure(code);
  return Statement(statement);
}

Status LedgerDatabase::SelectText(std::string_view sql, std::string* text) {
  const Statement statement = TRY(Prepare(sql));
  const int code = sqlite3_step(statement.get());
  if (code == SQLITE_ROW) *text = LedgerText(statement.get(), 0);
  if (code != SQLITE_ROW && code != SQLITE_DONE) return Failure(code);
  return {};
}

Status LedgerDatabase::SelectNumber(std::string_view sql, int64_t* number) {
  const Statement statement = TRY(Prepare(sql));
  const int code = sqlite3_step(statement.get());
  if (code == SQLITE_ROW) *number = sqlite3_column_int64(statement.get(), 0);
  if (code != SQLITE_ROW && code != SQLITE_DONE) return Failure(code);
  return {};
}

Status LedgerDatabase::Connect(const std::string& name, int flags) {
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &opened,
                                   flags | SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_EXRESCODE, nullptr);
  database_.reset(opened);
  if (code != SQLITE_OK) return Failure(code);
  // The file may hold anything: no triggers, views or functions of its choosing, no huge values.
  sqlite3_db_config(opened, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(opened, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(opened, SQLITE_LIMIT_LENGTH, kLedgerValueBytesMax);
  sqlite3_limit(opened, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_busy_timeout(opened, kLedgerBusyMs);
  return Execute("PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY");
}

Status LedgerDatabase::CheckContents() {
  int64_t pages = 0;
  int64_t page_bytes = 0;
  TRY_STATUS(SelectNumber("PRAGMA page_count", &pages));
  TRY_STATUS(SelectNumber("PRAGMA page_size", &page_bytes));
  if (pages * page_bytes > kLedgerCheckBytesMax) return {};
  std::string verdict;
  TRY_STATUS(SelectText("PRAGMA integrity_check(1)", &verdict));
  if (verdict != "ok") return Damage(verdict);
  return {};
}

Status LedgerDatabase::CheckSchema(bool create) {
  int64_t tables = 0;
  TRY_STATUS(SelectNumber("SELECT count(*) FROM sqlite_schema", &tables));
  if (create && tables == 0) {
    return Execute(
        fmt::format("BEGIN IMMEDIATE; PRAGMA application_id = {}; "
                    "PRAGMA user_version = {}; CREATE TABLE IF NOT EXISTS {}; COMMIT",
                    kLedgerApplicationId, kLedgerVersion, kLedgerTable));
  }
  int64_t application = 0;
  TRY_STATUS(SelectNumber("PRAGMA application_id", &application));
  if (application != kLedgerApplicationId) {
    return Fail(
        fmt::format("{} is not a ledger of minke but another SQLite database; name another "
                    "file with --ledger, or move this one away.",
                    path_));
  }
  int64_t version = 0;
  TRY_STATUS(SelectNumber("PRAGMA user_version", &version));
  if (version != kLedgerVersion) {
    return Fail(
        fmt::format("The ledger {} has version {}, and this minke knows version {}; use "
                    "the minke that made it, or name another file with --ledger.",
                    path_, version, kLedgerVersion));
  }
  std::string sql;
  TRY_STATUS(
      SelectText("SELECT group_concat(sql, ';') FROM sqlite_schema WHERE sql IS NOT NULL", &sql));
  if (sql != fmt::format("CREATE TABLE {}", kLedgerTable)) return Damage("its table is another");
  return CheckContents();
}

Status LedgerDatabase::Open() {
  if (!FileExists(path_)) {
    // SQLite would make it readable for everybody; its log gets the mode of the file.
    TRY_STATUS(MakePosixStorage()->OpenFile(path_, OpenMode::kOpenOrCreate));
  }
  TRY_STATUS(Connect(path_, SQLITE_OPEN_READWRITE));
  if (sqlite3_db_readonly(database_.get(), "main") == 1) {
    return Fail(ErrorCode::kIo,
                fmt::format("The ledger {} may not be written by this user; name another file with "
                            "--ledger.",
                            path_));
  }
  // Before anything is changed: the file may be something else's.
  TRY_STATUS(CheckSchema(true));
  // synchronous = FULL: what is counted is money, and there are a few transactions a second at
  // most, on a thread that nobody waits for.
  return Execute(
      "PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL; PRAGMA journal_size_limit = 1048576");
}

Status LedgerDatabase::OpenReadOnly() {
  // Without a log nobody is writing, and reading may do without locks and their files.
  if (FileExists(path_ + "-wal")) {
    TRY_STATUS(Connect(path_, SQLITE_OPEN_READONLY));
  } else {
    TRY_STATUS(Connect(ImmutableUri(path_), SQLITE_OPEN_READONLY | SQLITE_OPEN_URI));
  }
  return CheckSchema(false);
}

Status LedgerDatabase::AddSums(const std::vector<LedgerDay>& sums) {
  TRY_STATUS(Execute("BEGIN IMMEDIATE"));
  const Statement statement = TRY(Prepare(
      "INSERT INTO days VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET "
      "requests = requests + excluded.requests, hit_tokens = hit_tokens + excluded.hit_tokens, "
      "miss_tokens = miss_tokens + excluded.miss_tokens, "
      "output_tokens = output_tokens + excluded.output_tokens, cost = cost + excluded.cost"));
  for (const LedgerDay& sum : sums) {
    BindText(statement.get(), 1, sum.day);
    BindText(statement.get(), 2, sum.key_name);
    BindText(statement.get(), 3, sum.model);
    BindText(statement.get(), 4, sum.currency);
    sqlite3_bind_int64(statement.get(), 5, sum.requests);
    sqlite3_bind_int64(statement.get(), 6, sum.hit_tokens);
    sqlite3_bind_int64(statement.get(), 7, sum.miss_tokens);
    sqlite3_bind_int64(statement.get(), 8, sum.output_tokens);
    sqlite3_bind_double(statement.get(), 9, sum.cost);
    const int code = sqlite3_step(statement.get());
    if (code != SQLITE_DONE) return Failure(code);
    sqlite3_reset(statement.get());
  }
  return Execute("COMMIT");
}

Status LedgerDatabase::Add(const std::vector<LedgerDay>& sums) {
  Status status = AddSums(sums);
  // Some failures have ended the transaction already; then this one is refused, which is as well.
  if (!status) sqlite3_exec(database_.get(), "ROLLBACK", nullptr, nullptr, nullptr);
  return status;
}

Result<std::vector<LedgerDay>> LedgerDatabase::Days(std::string_view since_day,
                                                    std::string_view key_name) {
  const Statement statement =
      TRY(Prepare("SELECT day, key_name, model, currency, requests, hit_tokens, miss_tokens, "
                  "output_tokens, cost FROM days WHERE day >= ?1 AND (?2 = '' OR key_name = ?2) "
                  "ORDER BY day, key_name, model, currency"));
  BindText(statement.get(), 1, since_day);
  BindText(statement.get(), 2, key_name);
  std::vector<LedgerDay> days;
  while (true) {
    const int code = sqlite3_step(statement.get());
    if (code == SQLITE_DONE) return days;
    if (code != SQLITE_ROW) return Failure(code);
    if (static_cast<int64_t>(days.size()) >= kLedgerDaysMax) {
      return Fail(ErrorCode::kLimit,
                  fmt::format("The ledger {} has more than {} rows for this question; ask from a "
                              "later day on, or for one key.",
                              path_, kLedgerDaysMax));
    }
    LedgerDay day;
    day.day = LedgerText(statement.get(), 0);
    day.key_name = LedgerText(statement.get(), 1);
    day.model = LedgerText(statement.get(), 2);
    day.currency = LedgerText(statement.get(), 3);
    day.requests = sqlite3_column_int64(statement.get(), 4);
    day.hit_tokens = sqlite3_column_int64(statement.get(), 5);
    day.miss_tokens = sqlite3_column_int64(statement.get(), 6);
    day.output_tokens = sqlite3_column_int64(statement.get(), 7);
    day.cost = sqlite3_column_double(statement.get(), 8);
    days.push_back(std::move(day));
  }
}

}  // namespace minke

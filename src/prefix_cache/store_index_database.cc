#include "prefix_cache/store_index_database.h"

#include <fmt/format.h>

#include <array>
#include <cstring>
#include <string>
#include <utility>

#include "core/file.h"

namespace minke {

namespace {

constexpr int kBusyTimeoutMs = 5000;
constexpr int kValueBytesMax = 1 << 20;       // of one value or statement; ours are far smaller
constexpr int64_t kLogBytesKept = 256 << 10;  // of the log's file, between checkpoints

// Compared with sqlite_schema word by word when an index is opened: a database with anything else
// in it is not ours.
constexpr std::array<std::string_view, 6> kSchema = {
    "CREATE TABLE erasures(location INTEGER PRIMARY KEY) STRICT",
    "CREATE TABLE names(id INTEGER PRIMARY KEY, name BLOB NOT NULL UNIQUE) STRICT",
    "CREATE TABLE records(location INTEGER PRIMARY KEY, kind INTEGER NOT NULL, "
    "key BLOB NOT NULL, parent BLOB NOT NULL, fingerprint INTEGER NOT NULL, "
    "tenant INTEGER NOT NULL, content BLOB, end_position INTEGER NOT NULL, "
    "token_count INTEGER NOT NULL, payload_bytes INTEGER NOT NULL, created_us INTEGER NOT NULL, "
    "last_used_us INTEGER NOT NULL, UNIQUE(key, fingerprint)) STRICT",
    "CREATE INDEX records_content ON records(content) WHERE content IS NOT NULL",
    "CREATE INDEX records_parent ON records(parent)",
    "CREATE TABLE segments(number INTEGER PRIMARY KEY, scanned_bytes INTEGER NOT NULL) STRICT",
};

ErrorCode CodeOf(int sqlite_code) {
  switch (sqlite_code & 0xff) {
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB:
    case SQLITE_FORMAT:
    case SQLITE_SCHEMA:
    case SQLITE_ERROR:  // a table or column is missing
    case SQLITE_MISMATCH:
    case SQLITE_TOOBIG:
    case SQLITE_CONSTRAINT:
      return ErrorCode::kInvalidInput;
    default:
      return ErrorCode::kIo;
  }
}

// False unless the column is a key.
bool ColumnKey(sqlite3_stmt* statement, int column, CacheKey* key) {
  if (sqlite3_column_type(statement, column) != SQLITE_BLOB) return false;
  if (sqlite3_column_bytes(statement, column) != static_cast<int>(key->bytes.size())) return false;
  std::memcpy(key->bytes.data(), sqlite3_column_blob(statement, column), key->bytes.size());
  return true;
}

// Characters that mean something in a file: URI are written as %XX.
std::string UriOf(const std::string& path) {
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

tl::unexpected<Error> IndexDatabase::Failure(int code) const {
  const char* text = database != nullptr ? sqlite3_errmsg(database.get()) : sqlite3_errstr(code);
  if (CodeOf(code) == ErrorCode::kInvalidInput) return Distrust(text);
  return Fail(CodeOf(code), fmt::format("the cache index {} cannot be used: {}", path, text));
}

tl::unexpected<Error> IndexDatabase::Distrust(std::string_view why) const {
  const std::string directory = path.substr(0, path.rfind('/'));
  return Fail(fmt::format(
      "the cache index {} cannot be used: {}; the next `minke generate --kv-disk {}` or "
      "`minke cache gc --kv-disk {}` makes it again",
      path, why, directory, directory));
}

tl::unexpected<Error> IndexDatabase::Implausible() const {
  return Distrust("it holds values that cannot be true");
}

Status IndexDatabase::Execute(const std::string& sql) {
  const int code = sqlite3_exec(database.get(), sql.c_str(), nullptr, nullptr, nullptr);
  if (code != SQLITE_OK) return Failure(code);
  return {};
}

Result<sqlite3_stmt*> IndexDatabase::Prepare(std::string_view sql) {
  const auto found = statements.find(sql);
  if (found != statements.end()) return found->second.get();
  sqlite3_stmt* statement = nullptr;
  const int code = sqlite3_prepare_v3(database.get(), sql.data(), static_cast<int>(sql.size()),
                                      SQLITE_PREPARE_PERSISTENT, &statement, nullptr);
  if (code != SQLITE_OK) return Failure(code);
  statements[sql].reset(statement);
  return statement;
}

Result<int64_t> IndexDatabase::NameId(const CacheKey& name, bool create) {
  const auto found = name_ids.find(name);
  if (found != name_ids.end()) return found->second;
  int64_t id = -1;
  TRY_STATUS(Select(
      "SELECT id FROM names WHERE name = ?",
      [&id](sqlite3_stmt* statement) -> Status {
        id = sqlite3_column_int64(statement, 0);
        return {};
      },
      name));
  if (id < 0) {
    if (!create) return id;
    id = next_name_id++;
    TRY_STATUS(Run("INSERT INTO names(id, name) VALUES (?, ?)", id, name));
  }
  name_ids[name] = id;
  names[id] = name;
  return id;
}

Result<CacheKey> IndexDatabase::Name(int64_t id) {
  const auto found = names.find(id);
  if (found != names.end()) return found->second;
  CacheKey name;
  bool good = false;
  TRY_STATUS(Select(
      "SELECT name FROM names WHERE id = ?",
      [&name, &good](sqlite3_stmt* statement) -> Status {
        good = ColumnKey(statement, 0, &name);
        return {};
      },
      id));
  if (!good) return Implausible();
  names[id] = name;
  return name;
}

Result<IndexRow> IndexDatabase::RowOf(sqlite3_stmt* statement) {
  IndexRow row;
  const int64_t location = sqlite3_column_int64(statement, 0);
  row.segment = SegmentOf(location);
  row.offset = OffsetOf(location);
  row.kind = static_cast<RecordKind>(sqlite3_column_int64(statement, 1));
  const bool keys = ColumnKey(statement, 2, &row.key) && ColumnKey(statement, 3, &row.parent);
  row.fingerprint = TRY(Name(sqlite3_column_int64(statement, 4)));
  row.tenant = TRY(Name(sqlite3_column_int64(statement, 5)));
  const bool content =
      sqlite3_column_type(statement, 6) == SQLITE_NULL || ColumnKey(statement, 6, &row.content);
  row.end_position = sqlite3_column_int64(statement, 7);
  row.token_count = sqlite3_column_int64(statement, 8);
  row.payload_bytes = sqlite3_column_int64(statement, 9);
  row.created_us = sqlite3_column_int64(statement, 10);
  row.last_used_us = sqlite3_column_int64(statement, 11);
  if (!keys || !content || row.segment < 0 || row.offset < kSegmentHeaderBytes ||
      !PlausibleRecord(row.kind, row.token_count, row.payload_bytes, row.end_position)) {
    return Implausible();
  }
  return row;
}

Status IndexDatabase::OpenDatabase(IndexMode mode) {
  int flags = SQLITE_OPEN_NOMUTEX | SQLITE_OPEN_NOFOLLOW | SQLITE_OPEN_EXRESCODE;
  std::string name = path;
  if (mode == IndexMode::kCreateOrOpen) {
    flags |= SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE;
  } else {
    flags |= SQLITE_OPEN_READONLY;
    if (!FileExists(path)) return Distrust("it is missing");
  }
  // Without a log nobody is writing, and reading may do without locks and their files.
  if (mode == IndexMode::kLookOnly && !FileExists(path + "-wal")) {
    flags |= SQLITE_OPEN_URI;
    name = UriOf(path);
  }
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(name.c_str(), &opened, flags, nullptr);
  database.reset(opened);
  if (code != SQLITE_OK) return Failure(code);
  return Configure(mode);
}

Status IndexDatabase::Configure(IndexMode mode) {
  sqlite3* connection = database.get();
  // The file may hold anything: no triggers, views or functions of its choosing, no huge values.
  sqlite3_db_config(connection, SQLITE_DBCONFIG_DEFENSIVE, 1, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_DQS_DDL, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_DQS_DML, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_TRIGGER, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_ENABLE_VIEW, 0, nullptr);
  sqlite3_db_config(connection, SQLITE_DBCONFIG_TRUSTED_SCHEMA, 0, nullptr);
  sqlite3_limit(connection, SQLITE_LIMIT_LENGTH, kValueBytesMax);
  sqlite3_limit(connection, SQLITE_LIMIT_SQL_LENGTH, kValueBytesMax);
  sqlite3_limit(connection, SQLITE_LIMIT_ATTACHED, 0);
  sqlite3_busy_timeout(connection, kBusyTimeoutMs);
  TRY_STATUS(Execute("PRAGMA cell_size_check = ON; PRAGMA temp_store = MEMORY"));
  if (mode != IndexMode::kCreateOrOpen) return {};
  // secure_delete: what is forgotten must not linger in free pages. synchronous = NORMAL: a loss
  // of power may undo the last transactions, and the next scan of the segments' ends redoes them.
  TRY_STATUS(
      Execute("PRAGMA auto_vacuum = INCREMENTAL; PRAGMA journal_mode = WAL; "
              "PRAGMA synchronous = NORMAL; PRAGMA secure_delete = ON"));
  return Execute(fmt::format("PRAGMA wal_autocheckpoint = {}; PRAGMA journal_size_limit = {}",
                             kIndexLogPages, kLogBytesKept));
}

Status IndexDatabase::CreateSchema() {
  TRY_STATUS(Execute("BEGIN IMMEDIATE"));
  for (const std::string_view sql : kSchema) TRY_STATUS(Execute(std::string(sql)));
  TRY_STATUS(Execute(fmt::format("PRAGMA user_version = {}", kStoreFormatVersion)));
  return Execute("COMMIT");
}

Status IndexDatabase::CheckSchema() {
  size_t count = 0;
  bool same = true;
  TRY_STATUS(
      Select("SELECT sql FROM sqlite_schema WHERE sql IS NOT NULL ORDER BY name",
             [&count, &same](sqlite3_stmt* statement) -> Status {
               const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
               same = same && count < kSchema.size() && text != nullptr && kSchema[count] == text;
               ++count;
               return {};
             }));
  int64_t version = 0;
  TRY_STATUS(Select("PRAGMA user_version", [&version](sqlite3_stmt* statement) -> Status {
    version = sqlite3_column_int64(statement, 0);
    return {};
  }));
  if (!same || count != kSchema.size() || version != kStoreFormatVersion) {
    return Distrust("its tables are not those of this version");
  }
  return {};
}

Status IndexDatabase::CheckContents() {
  std::string verdict;
  TRY_STATUS(Select("PRAGMA integrity_check(1)", [&verdict](sqlite3_stmt* statement) -> Status {
    const auto* text = reinterpret_cast<const char*>(sqlite3_column_text(statement, 0));
    verdict = text != nullptr ? text : "";
    return {};
  }));
  if (verdict != "ok") return Distrust("it is damaged: " + verdict);
  return {};
}

}  // namespace minke

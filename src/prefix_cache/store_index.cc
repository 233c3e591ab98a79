#include "prefix_cache/store_index.h"

#include <fmt/format.h>

#include <string_view>
#include <utility>

#include "prefix_cache/store_index_database.h"

namespace minke {

StoreIndex::StoreIndex(std::unique_ptr<IndexDatabase> database) : database_(std::move(database)) {}
StoreIndex::~StoreIndex() = default;
StoreIndex::StoreIndex(StoreIndex&& other) noexcept = default;
StoreIndex& StoreIndex::operator=(StoreIndex&& other) noexcept = default;

Result<StoreIndex> StoreIndex::Open(const std::string& path, IndexMode mode) {
  auto database = std::make_unique<IndexDatabase>();
  database->path = path;
  TRY_STATUS(database->OpenDatabase(mode));
  if (mode == IndexMode::kCreateOrOpen) {
    if (!TRY(database->Any("SELECT 1 FROM sqlite_schema LIMIT 1"))) {
      TRY_STATUS(database->CreateSchema());
    }
    int64_t bytes = 0;
    TRY_STATUS(database->Select("PRAGMA page_count", [&bytes](sqlite3_stmt* statement) -> Status {
      bytes = sqlite3_column_int64(statement, 0) * 4096;
      return {};
    }));
    if (bytes <= kIndexCheckBytesMax) TRY_STATUS(database->CheckContents());
  }
  TRY_STATUS(database->CheckSchema());
  TRY_STATUS(
      database->Select("SELECT max(id) FROM names", [&database](sqlite3_stmt* statement) -> Status {
        database->next_name_id = sqlite3_column_int64(statement, 0) + 1;
        return {};
      }));
  return StoreIndex(std::move(database));
}

Result<std::optional<IndexRow>> StoreIndex::Find(const CacheKey& key, const CacheKey& fingerprint) {
  const int64_t id = TRY(database_->NameId(fingerprint, false));
  if (id < 0) return std::nullopt;
  auto rows = TRY(database_->Rows(
      "SELECT " MINKE_COLUMNS " FROM records WHERE key = ? AND fingerprint = ?", key, id));
  if (rows.empty()) return std::nullopt;
  return rows.front();
}

Result<std::vector<IndexRow>> StoreIndex::Children(const CacheKey& parent,
                                                   const CacheKey& fingerprint, RecordKind kind,
                                                   size_t limit) {
  const int64_t id = TRY(database_->NameId(fingerprint, false));
  if (id < 0) return std::vector<IndexRow>();
  return database_->Rows("SELECT " MINKE_COLUMNS
                         " FROM records WHERE parent = ? AND fingerprint = ? AND kind = ? "
                         "ORDER BY last_used_us DESC, location DESC LIMIT ?",
                         parent, id, static_cast<int64_t>(kind), static_cast<int64_t>(limit));
}

Result<bool> StoreIndex::HasChildren(const CacheKey& key) {
  return database_->Any("SELECT 1 FROM records WHERE parent = ? LIMIT 1", key);
}

Result<bool> StoreIndex::HasContent(const CacheKey& content, const CacheKey& fingerprint,
                                    bool same) {
  const int64_t id = TRY(database_->NameId(fingerprint, false));
  return database_->Any("SELECT 1 FROM records WHERE content = ? AND (fingerprint = ?) = ? LIMIT 1",
                        content, id, int64_t{same ? 1 : 0});
}

Result<std::vector<IndexRow>> StoreIndex::OldestLeaves(size_t limit) {
  return database_->Rows("SELECT " MINKE_COLUMNS
                         " FROM records AS r WHERE NOT EXISTS "
                         "(SELECT 1 FROM records AS c WHERE c.parent = r.key) "
                         "ORDER BY last_used_us, end_position DESC LIMIT ?",
                         static_cast<int64_t>(limit));
}

Result<std::vector<IndexRow>> StoreIndex::OldestSnapshots(size_t limit) {
  return database_->Rows("SELECT " MINKE_COLUMNS
                         " FROM records WHERE kind = 2 "
                         "ORDER BY last_used_us, end_position DESC LIMIT ?",
                         static_cast<int64_t>(limit));
}

Result<std::vector<IndexRow>> StoreIndex::Orphans() {
  return database_->Rows("SELECT " MINKE_COLUMNS
                         " FROM records AS r WHERE end_position >= iif(kind = 1, 256, 128) AND "
                         "NOT EXISTS (SELECT 1 FROM records AS p WHERE p.key = r.parent)");
}

Status StoreIndex::ForEach(const std::function<Status(const IndexRow&)>& visit) {
  return database_->Select("SELECT " MINKE_COLUMNS " FROM records ORDER BY location",
                           [this, &visit](sqlite3_stmt* statement) -> Status {
                             const IndexRow row = TRY(database_->RowOf(statement));
                             return visit(row);
                           });
}

Result<std::vector<IndexRow>> StoreIndex::RowsOfSegment(int64_t segment) {
  return database_->Rows("SELECT " MINKE_COLUMNS
                         " FROM records WHERE location >= ? AND location < ? ORDER BY location",
                         Location(segment, 0), Location(segment + 1, 0));
}

Result<LiveNeighbours> StoreIndex::Neighbours(int64_t segment, int64_t offset) {
  LiveNeighbours live;
  const int64_t location = Location(segment, offset);
  TRY_STATUS(database_->Select(
      "SELECT location, token_count, payload_bytes FROM records "
      "WHERE location < ? AND location >= ? ORDER BY location DESC LIMIT 1",
      [&live](sqlite3_stmt* statement) -> Status {
        live.previous_end =
            OffsetOf(sqlite3_column_int64(statement, 0)) +
            RecordBytes(sqlite3_column_int64(statement, 1), sqlite3_column_int64(statement, 2));
        return {};
      },
      location, Location(segment, 0)));
  TRY_STATUS(database_->Select(
      "SELECT location FROM records WHERE location > ? AND location < ? ORDER BY location LIMIT 1",
      [&live](sqlite3_stmt* statement) -> Status {
        live.next_begin = OffsetOf(sqlite3_column_int64(statement, 0));
        return {};
      },
      location, Location(segment + 1, 0)));
  return live;
}

Result<std::map<int64_t, int64_t>> StoreIndex::Segments() {
  std::map<int64_t, int64_t> segments;
  TRY_STATUS(database_->Select(
      "SELECT number, scanned_bytes FROM segments", [&segments](sqlite3_stmt* statement) -> Status {
        segments[sqlite3_column_int64(statement, 0)] = sqlite3_column_int64(statement, 1);
        return {};
      }));
  return segments;
}

Result<std::vector<PendingErasure>> StoreIndex::Erasures() {
  std::vector<PendingErasure> erasures;
  TRY_STATUS(database_->Select("SELECT location FROM erasures ORDER BY location",
                               [&erasures](sqlite3_stmt* statement) -> Status {
                                 const int64_t location = sqlite3_column_int64(statement, 0);
                                 erasures.push_back({.segment = SegmentOf(location),
                                                     .offset = OffsetOf(location)});
                                 return {};
                               }));
  return erasures;
}

Status StoreIndex::Transaction(bool durable, const std::function<Status()>& work) {
  TRY_STATUS(database_->Execute(durable ? "PRAGMA synchronous = FULL; BEGIN IMMEDIATE"
                                        : "PRAGMA synchronous = NORMAL; BEGIN IMMEDIATE"));
  Status status = work();
  if (status) status = database_->Execute("COMMIT");
  if (!status && sqlite3_get_autocommit(database_->database.get()) == 0) {
    const Status ignored = database_->Execute("ROLLBACK");  // the first error is the one to report
  }
  if (!status) {
    database_->names.clear();
    database_->name_ids.clear();
  }
  return status;
}

Result<bool> StoreIndex::Insert(const IndexRow& row) {
  const int64_t fingerprint = TRY(database_->NameId(row.fingerprint, true));
  const int64_t tenant = TRY(database_->NameId(row.tenant, true));
  // Only the first block of a chain is ever looked for by its content.
  const bool first = row.kind == RecordKind::kBlock && row.end_position == kCacheBlockTokens;
  TRY_STATUS(database_->Run("INSERT OR IGNORE INTO records(" MINKE_COLUMNS
                            ") VALUES (?, ?, ?, ?, ?, ?, iif(?, ?, NULL), ?, ?, ?, ?, ?)",
                            Location(row.segment, row.offset), static_cast<int64_t>(row.kind),
                            row.key, row.parent, fingerprint, tenant, int64_t{first ? 1 : 0},
                            row.content, row.end_position, row.token_count, row.payload_bytes,
                            row.created_us, row.last_used_us));
  return sqlite3_changes(database_->database.get()) > 0;
}

Result<bool> StoreIndex::Remove(int64_t segment, int64_t offset) {
  TRY_STATUS(database_->Run("DELETE FROM records WHERE location = ?", Location(segment, offset)));
  if (sqlite3_changes(database_->database.get()) == 0) return false;
  TRY_STATUS(AddErasure({.segment = segment, .offset = offset}));
  return true;
}

Status StoreIndex::SetSegment(int64_t segment, int64_t scanned_bytes) {
  return database_->Run("INSERT OR REPLACE INTO segments(number, scanned_bytes) VALUES (?, ?)",
                        segment, scanned_bytes);
}

Status StoreIndex::DropSegment(int64_t segment) {
  const int64_t begin = Location(segment, 0);
  const int64_t end = Location(segment + 1, 0);
  TRY_STATUS(
      database_->Run("DELETE FROM records WHERE location >= ? AND location < ?", begin, end));
  TRY_STATUS(
      database_->Run("DELETE FROM erasures WHERE location >= ? AND location < ?", begin, end));
  return database_->Run("DELETE FROM segments WHERE number = ?", segment);
}

Status StoreIndex::AddErasure(const PendingErasure& erasure) {
  return database_->Run("INSERT OR REPLACE INTO erasures(location) VALUES (?)",
                        Location(erasure.segment, erasure.offset));
}

Status StoreIndex::DropErasure(const PendingErasure& erasure) {
  return database_->Run("DELETE FROM erasures WHERE location = ?",
                        Location(erasure.segment, erasure.offset));
}

Status StoreIndex::Touch(const CacheKey& key, const CacheKey& fingerprint, int64_t used_us) {
  const int64_t id = TRY(database_->NameId(fingerprint, false));
  return database_->Run(
      "UPDATE records SET last_used_us = max(last_used_us, ?) WHERE key = ? AND fingerprint = ?",
      used_us, key, id);
}

Status StoreIndex::DropUnusedNames() {
  database_->names.clear();
  database_->name_ids.clear();
  return database_->Run(
      "DELETE FROM names WHERE id NOT IN (SELECT fingerprint FROM records) AND id NOT IN "
      "(SELECT tenant FROM records)");
}

Status StoreIndex::Checkpoint() {
  return database_->Execute("PRAGMA wal_checkpoint(TRUNCATE)");
}

Status StoreIndex::Shrink() {
  return database_->Execute("PRAGMA incremental_vacuum; PRAGMA wal_checkpoint(TRUNCATE)");
}

}  // namespace minke

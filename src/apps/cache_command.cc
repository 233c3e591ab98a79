#include "apps/cache_command.h"

#include <algorithm>
#include <chrono>
#include <iostream>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "apps/cache_report.h"
#include "apps/commands.h"
#include "apps/common.h"
#include "apps/conversation.h"
#include "apps/terminal.h"
#include "core/file.h"
#include "simulator/capacity.h"

namespace minke {
namespace {

// Half of the directory: the most that the engine keeps, whatever its memory is.
constexpr int64_t kSnapshotShareDefault = 2;
constexpr size_t kNoLimit = std::numeric_limits<size_t>::max();

int64_t NowUs() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::microseconds>(now).count();
}

bool OnlyLooks(const CacheCommandFlags& flags) {
  switch (flags.action) {
    case CacheAction::kStats:
    case CacheAction::kList:
    case CacheAction::kExport:
      return true;
    case CacheAction::kVerify:
      return !flags.remove;
    default:
      return false;
  }
}

Result<std::unique_ptr<BlockStore>> OpenStore(const CacheCommandFlags& flags) {
  // A directory that is made on the spot would hide a mistyped name.
  if (flags.action != CacheAction::kImport && !FileExists(flags.kv_disk)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("There is no directory {}. --kv-disk has to name one that minke has "
                            "written to.",
                            flags.kv_disk));
  }
  if (flags.action == CacheAction::kImport && !FileExists(flags.file)) {
    return Fail(
        ErrorCode::kNotFound,
        fmt::format("There is no file {} to import. `minke cache export` writes one.", flags.file));
  }
  if (flags.action == CacheAction::kImport) TRY_STATUS(BlockStore::CheckExported(flags.file));
  StoreOptions options;
  options.directory = flags.kv_disk;
  options.read_only = OnlyLooks(flags);
  if (!flags.kv_disk_budget.empty()) {
    options.budget_bytes = TRY(ParseByteSize(flags.kv_disk_budget, "--kv-disk-budget"));
  }
  options.snapshot_budget_bytes = options.budget_bytes / kSnapshotShareDefault;
  if (!flags.snapshot_budget.empty()) {
    options.snapshot_budget_bytes = TRY(ParseByteSize(flags.snapshot_budget, "--snapshot-budget"));
  }
  return BlockStore::Open(options);
}

std::optional<CacheKey> WantedTenant(const CacheCommandFlags& flags) {
  if (!flags.tenant.has_value()) return std::nullopt;
  return TenantKey(*flags.tenant);
}

void Print(const Json& json) {
  std::cout << DumpJson(json, JsonStyle::kPretty) << '\n';
}

// ---- looking ----

Result<int> Stats(const CacheCommandFlags& flags, BlockStore& store) {
  const auto shares = SharesOf(TRY(store.List(std::nullopt, kNoLimit)));
  const StoreStats stats = store.Stats();
  CacheShare sum;
  for (const CacheShare& share : shares) {
    sum.blocks += share.blocks;
    sum.snapshots += share.snapshots;
    sum.row_bytes += share.row_bytes;
    sum.snapshot_bytes += share.snapshot_bytes;
  }
  const int64_t tokens = sum.blocks * kCacheBlockTokens;
  if (flags.json) {
    JsonArray parts;
    for (const CacheShare& share : shares) {
      parts.push_back(ShareJson(share));
    }
    Json json;
    json.Set("directory", flags.kv_disk);
    json.Set("disk_bytes", stats.disk_bytes);
    json.Set("segments", stats.segments);
    json.Set("blocks", sum.blocks);
    json.Set("tokens", tokens);
    json.Set("row_bytes", sum.row_bytes);
    json.Set("snapshots", sum.snapshots);
    json.Set("snapshot_bytes", sum.snapshot_bytes);
    json.Set("shares", std::move(parts));
    Print(json);
    return kExitSuccess;
  }
  std::cout << fmt::format("Directory  {}\n", EscapeForTerminal(flags.kv_disk))
            << fmt::format("On disk    {} in {} segment{}\n", BytesText(stats.disk_bytes),
                           stats.segments, stats.segments == 1 ? "" : "s")
            << fmt::format("Rows       {} of {} tokens\n", BytesText(sum.row_bytes),
                           CountText(tokens))
            << fmt::format("Snapshots  {}, {}\n", CountText(sum.snapshots),
                           BytesText(sum.snapshot_bytes));
  if (!shares.empty()) std::cout << '\n' << SharesText(shares, NowUs());
  return kExitSuccess;
}

Result<int> List(const CacheCommandFlags& flags, BlockStore& store) {
  const auto records = TRY(store.List(WantedTenant(flags), kNoLimit));
  const std::vector<ListedChain> chains =
      flags.records ? std::vector<ListedChain>() : ChainsOf(records);
  const size_t count = flags.records ? records.size() : chains.size();
  if (!flags.json) {
    std::cout << (flags.records ? RecordsText(records, flags.limit, NowUs())
                                : ChainsText(chains, flags.limit, NowUs()));
    return kExitSuccess;
  }
  JsonArray lines;
  const size_t shown = flags.limit == 0 ? count : std::min(count, static_cast<size_t>(flags.limit));
  for (size_t i = 0; i < shown; ++i) {
    lines.push_back(flags.records ? RecordJson(records[i]) : ChainJson(chains[i]));
  }
  Json json;
  json.Set("count", static_cast<int64_t>(count));
  json.Set(flags.records ? "records" : "chains", std::move(lines));
  Print(json);
  return kExitSuccess;
}

Result<int> Verify(const CacheCommandFlags& flags, BlockStore& store) {
  VerifyReport report;
  // Opening a store for removing has removed what lies beyond the end of a file.
  const int64_t damaged_before = flags.remove ? store.Stats().records_damaged : 0;
  {
    StatusLine status;
    report = TRY(store.Verify(flags.remove, [&status](int64_t done, int64_t total) {
      if (total > 0) status.Show(fmt::format("Checking ... {} %", 100 * done / total));
    }));
  }
  report.records_damaged += damaged_before;
  // A store that is open for removing has mended what it could of the segments.
  const bool damage_stays =
      report.segments_damaged > 0 || (report.records_damaged > 0 && !flags.remove);
  const int exit_code = damage_stays ? kExitFailure : kExitSuccess;
  if (flags.json) {
    JsonArray problems;
    for (const std::string& problem : report.problems) {
      problems.emplace_back(problem);
    }
    Json json;
    json.Set("records_checked", report.records_checked);
    json.Set("records_damaged", report.records_damaged);
    json.Set("bytes_checked", report.bytes_checked);
    json.Set("segments_damaged", report.segments_damaged);
    json.Set("orphan_bytes", report.orphan_bytes);
    json.Set("removed", flags.remove ? report.records_damaged : 0);
    json.Set("problems", std::move(problems));
    Print(json);
    return exit_code;
  }
  std::cout << fmt::format("{} records checked, {}; {} damaged{}.\n",
                           CountText(report.records_checked), BytesText(report.bytes_checked),
                           CountText(report.records_damaged),
                           report.records_damaged > 0 && flags.remove ? " and removed" : "");
  if (report.segments_damaged > 0) {
    std::cout << fmt::format("{} segment{} not in order.\n", CountText(report.segments_damaged),
                             report.segments_damaged == 1 ? " is" : "s are");
  }
  std::cout << fmt::format("{} of the segments belong to no record.\n",
                           BytesText(report.orphan_bytes));
  for (const std::string& problem : report.problems) {
    std::cout << "  " << EscapeForTerminal(problem) << '\n';
  }
  if (damage_stays) {
    std::cout << "What is damaged is never used; --remove takes it away.\n";
  }
  return exit_code;
}

// ---- changing ----

Result<int> Gc(const CacheCommandFlags& flags, std::unique_ptr<BlockStore> store) {
  const int64_t freed = TRY(store->Gc());
  store.reset();  // the log of the index goes with it, and is not to be counted
  StoreOptions look;
  look.directory = flags.kv_disk;
  look.read_only = true;
  const int64_t left = TRY(BlockStore::Open(look))->Stats().disk_bytes;
  if (flags.json) {
    Json json;
    json.Set("freed_bytes", freed);
    json.Set("disk_bytes", left);
    Print(json);
  } else {
    std::cout << fmt::format("{} freed; the directory takes {}.\n", BytesText(freed),
                             BytesText(left));
  }
  return kExitSuccess;
}

Result<int> Export(const CacheCommandFlags& flags, BlockStore& store) {
  const int64_t records = TRY(store.Export(flags.file, WantedTenant(flags)));
  if (flags.json) {
    Json json;
    json.Set("records", records);
    json.Set("file", flags.file);
    Print(json);
  } else {
    std::cout << fmt::format("{} records written to {}.\n", CountText(records),
                             EscapeForTerminal(flags.file));
  }
  return kExitSuccess;
}

Result<int> Import(const CacheCommandFlags& flags, BlockStore& store) {
  const BlockStore::ImportReport report = TRY(store.Import(flags.file));
  if (flags.json) {
    Json json;
    json.Set("records", report.records);
    json.Set("known", report.known);
    json.Set("damaged", report.damaged);
    json.Set("file", flags.file);
    Print(json);
  } else {
    std::cout << fmt::format("{} records taken in; {} were there already, {} were damaged.\n",
                             CountText(report.records), CountText(report.known),
                             CountText(report.damaged));
    if (report.damaged > 0) std::cout << "The file is damaged or ends early.\n";
  }
  return report.damaged > 0 ? kExitFailure : kExitSuccess;
}

Result<int> Forget(const CacheCommandFlags& flags, BlockStore& store) {
  CHECK(flags.tenant.has_value());
  const int64_t records = TRY(store.Forget(TenantKey(*flags.tenant)));
  TRY_STATUS(EraseConversation(flags.kv_disk, *flags.tenant));
  if (flags.json) {
    Json json;
    json.Set("records", records);
    Print(json);
  } else {
    std::cout << fmt::format("{} records erased.\n", CountText(records));
  }
  return kExitSuccess;
}

Result<int> Act(const CacheCommandFlags& flags) {
  std::unique_ptr<BlockStore> store = TRY(OpenStore(flags));
  switch (flags.action) {
    case CacheAction::kStats:
      return Stats(flags, *store);
    case CacheAction::kList:
      return List(flags, *store);
    case CacheAction::kVerify:
      return Verify(flags, *store);
    case CacheAction::kGc:
      return Gc(flags, std::move(store));
    case CacheAction::kExport:
      return Export(flags, *store);
    case CacheAction::kImport:
      return Import(flags, *store);
    case CacheAction::kForget:
      break;
  }
  return Forget(flags, *store);
}

}  // namespace

int RunCache(const CacheCommandFlags& flags) {
  const Result<int> exit_code = Act(flags);
  return exit_code ? *exit_code : PrintError(exit_code.error());
}

}  // namespace minke

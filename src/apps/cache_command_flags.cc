// The command line of minke cache.
#include <CLI/CLI.hpp>

#include "apps/cache_command.h"
#include "apps/commands.h"
#include "apps/flag_checks.h"

namespace minke {
namespace {

constexpr int64_t kListLinesMax = int64_t{1} << 40;

// A command of minke cache with what all of them take.
CLI::App* AddAction(CLI::App& cache, CacheCommandFlags* flags, CacheAction action, const char* name,
                    const char* help, const char* json_help) {
  CLI::App* command = cache.add_subcommand(name, help);
  command->callback([flags, action] { flags->action = action; });
  command->add_option("--kv-disk", flags->kv_disk, "The directory that --kv-disk named elsewhere")
      ->type_name("DIR")
      ->required();
  command->add_flag("--json", flags->json, json_help);
  command->footer("minke cache --help has examples.");
  return command;
}

void AddTenant(CLI::App* command, CacheCommandFlags* flags, const char* help) {
  command->add_option("--tenant", flags->tenant, help)->type_name("NAME");
}

void AddSize(CLI::App* command, const char* name, std::string* value, const char* help) {
  command->add_option(name, *value, help)->type_name("SIZE")->check(CheckByteSize);
}

void AddLooking(CLI::App& cache, CacheCommandFlags* flags) {
  AddAction(cache, flags, CacheAction::kStats, "stats",
            "Sizes of the directory, and what each model and tenant has in it",
            "For programs: directory, disk_bytes, segments, blocks, tokens, row_bytes, snapshots, "
            "snapshot_bytes, shares");
  CLI::App* list = AddAction(cache, flags, CacheAction::kList, "ls",
                             "The chains of tokens that are kept, those used last first",
                             "For programs: chains or records, and count, that of all");
  AddTenant(list, flags, "Only what is this tenant's");
  list->add_flag("--records", flags->records, "Each block and snapshot, in the order of chains");
  list->add_option("--limit", flags->limit, "Lines at most; 0: all")
      ->check(CLI::Range(int64_t{0}, kListLinesMax))
      ->type_name("N")
      ->capture_default_str();
  CLI::App* verify = AddAction(cache, flags, CacheAction::kVerify, "verify",
                               "Reads everything and checks it; exits with 1 where there is "
                               "damage",
                               "For programs: records_checked, records_damaged, bytes_checked, "
                               "segments_damaged, orphan_bytes, removed, problems");
  verify->add_flag("--remove", flags->remove, "Remove what is damaged");
}

void AddChanging(CLI::App& cache, CacheCommandFlags* flags) {
  CLI::App* gc = AddAction(cache, flags, CacheAction::kGc, "gc",
                           "Gives disk space back: what no record needs, and what is over a budget",
                           "For programs: freed_bytes, disk_bytes");
  AddSize(gc, "--kv-disk-budget", &flags->kv_disk_budget,
          "Most that the directory may take (default: 64GiB)");
  AddSize(gc, "--snapshot-budget", &flags->snapshot_budget,
          "Most of it for snapshots (default: half)");
  CLI::App* out = AddAction(cache, flags, CacheAction::kExport, "export",
                            "Writes records to a file, for another machine or as a backup",
                            "For programs: records, file");
  out->add_option("file", flags->file, "The file; it must not exist yet")
      ->type_name("FILE")
      ->required();
  AddTenant(out, flags, "Only what is this tenant's");
  CLI::App* in = AddAction(cache, flags, CacheAction::kImport, "import",
                           "Takes the records of an exported file in; damaged ones are left out",
                           "For programs: records, known, damaged, file");
  in->add_option("file", flags->file, "The file")->type_name("FILE")->required();
  CLI::App* forget =
      AddAction(cache, flags, CacheAction::kForget, "forget",
                "Erases everything of a tenant, the bytes included", "For programs: records");
  AddTenant(forget, flags, "The name that --tenant gave; \"\" where none was given");
  forget->get_option("--tenant")->required();
}

}  // namespace

CLI::App* AddCache(CLI::App& app, CacheCommandFlags* flags) {
  CLI::App* cache =
      app.add_subcommand("cache", "What a directory of --kv-disk holds, and its care");
  cache->require_subcommand(1);
  AddLooking(*cache, flags);
  AddChanging(*cache, flags);
  cache->footer(
      "stats, ls, verify, export and explain only look, and may run beside a process that uses\n"
      "the directory; the others need it for themselves. export copies what is cached, not the\n"
      "conversation that chat --resume goes on with. Names of tenants are not on the disk:\n"
      "tables show the beginning of their digest, - for no name.\n"
      "Examples:\n"
      "  minke cache stats --kv-disk DIR\n"
      "  minke cache ls --kv-disk DIR --tenant alice --limit 10\n"
      "  minke cache verify --kv-disk DIR --remove\n"
      "  minke cache gc --kv-disk DIR --kv-disk-budget 10GiB\n"
      "  minke cache export backup.seg --kv-disk DIR\n"
      "  minke cache forget --kv-disk DIR --tenant alice\n"
      "minke cache COMMAND --help tells more of each.");
  return cache;
}

}  // namespace minke

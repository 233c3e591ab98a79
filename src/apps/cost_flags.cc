// The command line of minke cost.
#include <string>

#include <CLI/CLI.hpp>

#include "apps/cost_command.h"
#include "apps/flag_checks.h"
#include "server/utc_day.h"

namespace minke {
namespace {

std::string CheckDay(const std::string& text) {
  if (ParseUtcDay(text).has_value()) return {};
  return "expected a day such as 2026-11-01, found \"" + text + "\"";
}

}  // namespace

CLI::App* AddCost(CLI::App& app, CostFlags* flags) {
  CLI::App* command =
      app.add_subcommand("cost", "What minke serve was used for and what it cost, by day and key");
  command
      ->add_option("--since", flags->since, "The first day, in UTC (default: all that there are)")
      ->type_name("YYYY-MM-DD")
      ->check(CheckDay);
  command
      ->add_option("--ledger", flags->ledger,
                   "The server's ledger (default: minke/ledger.sqlite in $XDG_STATE_HOME, else in "
                   "~/.local/state)")
      ->type_name("FILE")
      ->check(NotEmpty("the name of a file"));
  command->add_option("--key", flags->key, "Only what this key of --api-key-file used")
      ->type_name("NAME")
      ->check(NotEmpty("the name of a key"));
  CLI::Option* json = command->add_flag(
      "--json", flags->json,
      "For programs: days, each with day, key, model, requests, hit_tokens, miss_tokens, "
      "output_tokens, cost, currency; totals");
  command->add_flag("--csv", flags->csv, "The same as a table for spreadsheets")->excludes(json);
  command->footer(
      "It may run while the server does. Prices are those of the time when the tokens were\n"
      "processed (docs/formats/prices.md).\n"
      "Examples:\n"
      "  minke cost --since 2026-11-01\n"
      "  minke cost --since 2026-11-01 --key alice --csv > alice.csv");
  return command;
}

}  // namespace minke

#include "apps/cost_command.h"

#include <cstdlib>
#include <iostream>
#include <utility>

#include <fmt/format.h>

#include "apps/common.h"
#include "core/file.h"

namespace minke {
namespace {

Status PrintCost(const CostFlags& flags) {
  const std::string path = TRY(FindLedger(flags.ledger));
  const auto ledger = TRY(Ledger::OpenReadOnly(path));
  const std::vector<LedgerDay> days = TRY(ledger->Days(flags.since, flags.key));
  if (flags.json) {
    std::cout << DumpJson(CostJson(days), JsonStyle::kPretty) << '\n';
  } else if (flags.csv) {
    std::cout << CostCsv(days);
  } else if (days.empty()) {
    PrintNote(fmt::format("{} has no requests {}{}.", path,
                          flags.since.empty() ? "yet" : "since " + flags.since,
                          flags.key.empty() ? "" : " of the key " + flags.key));
  } else {
    std::cout << CostText(days);
  }
  return {};
}

}  // namespace

Result<std::string> FindLedger(const std::string& flag) {
  if (!flag.empty()) return flag;
  const std::string state = TRY(FindUserDir("XDG_STATE_HOME", ".local/state", "--ledger FILE"));
  return JoinPath(state, "minke/ledger.sqlite");
}

int RunCost(const CostFlags& flags) {
  const Status status = PrintCost(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

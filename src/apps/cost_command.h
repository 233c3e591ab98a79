// minke cost: what was used and what it cost, by day and key, from the ledger of minke serve.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "server/ledger.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace minke {

struct CostFlags {
  std::string since;   // "2026-11-01"; empty: from the beginning
  std::string ledger;  // empty: FindLedger()
  std::string key;     // empty: all keys
  bool json = false;
  bool csv = false;
};

// Adds the command and its flags. `flags` outlives the app.
CLI::App* AddCost(CLI::App& app, CostFlags* flags);
// Returns an exit code and has said on stderr what went wrong.
int RunCost(const CostFlags& flags);

// The file that the server writes and `minke cost` reads: flag, or minke/ledger.sqlite in the
// directory for state (XDG): $XDG_STATE_HOME where that is an absolute path, else ~/.local/state.
Result<std::string> FindLedger(const std::string& flag);

// ---- cost_report.cc ----

// A line for each day and key, models summed, and one for the sum of each currency.
std::string CostText(const std::vector<LedgerDay>& days);
// A line for each day, key, model and currency, under a line of names (RFC 4180).
std::string CostCsv(const std::vector<LedgerDay>& days);
// The same as objects, and sums of all by currency.
Json CostJson(const std::vector<LedgerDay>& days);

}  // namespace minke

// minke cost as a person runs it, over a ledger as the server writes it.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/json.h"
#include "server/ledger.h"
#include "server/utc_day.h"
#include "tests/apps/process.h"

namespace minke::testing {
namespace {

void AddDay(Ledger& ledger, const std::string& day, const std::string& key,
            const std::string& model, double cost) {
  ledger.Add({.unix_seconds = *ParseUtcDay(day) * kDaySeconds + 5,
              .key_name = key,
              .model = model,
              .hit_tokens = 900,
              .miss_tokens = 100,
              .output_tokens = 50,
              .cost = cost,
              .currency = "USD"});
}

// Closed again, unless it is returned.
std::unique_ptr<Ledger> MakeLedger(const std::string& path) {
  auto ledger = Ledger::Open(path);
  CHECK(ledger.has_value(), ledger.error().message);
  AddDay(**ledger, "2026-10-31", "alice", "deepseek-flash", 0.25);
  AddDay(**ledger, "2026-11-01", "alice", "deepseek-flash", 0.5);
  AddDay(**ledger, "2026-11-01", "alice", "na\"no", 1);
  AddDay(**ledger, "2026-11-01", "bob", "deepseek-flash", 0.000125);
  AddDay(**ledger, "2026-11-02", "", "deepseek-flash", 2);
  CHECK((*ledger)->Flush().has_value());
  return std::move(*ledger);
}

Finished Cost(const std::string& path, const std::vector<std::string>& flags) {
  std::vector<std::string> arguments = {"cost", "--ledger", path};
  arguments.insert(arguments.end(), flags.begin(), flags.end());
  return RunMinke(arguments);
}

TEST(Cost, TableSumsDaysAndKeys) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("ledger.sqlite");
  MakeLedger(path);
  const Finished run = Cost(path, {"--since", "2026-11-01"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.err, "");
  EXPECT_EQ(run.out,
            "DAY         KEY        REQUESTS  CACHED TOKENS   OTHER TOKENS   CACHED       OUTPUT"
            "            COST\n"
            "2026-11-01  alice             2           1800            200   90.0 %          100"
            "        1.500000 USD\n"
            "2026-11-01  bob               1            900            100   90.0 %           50"
            "        0.000125 USD\n"
            "2026-11-02  -                 1            900            100   90.0 %           50"
            "        2.000000 USD\n"
            "total                         4           3600            400   90.0 %          200"
            "        3.500125 USD\n");
}

TEST(Cost, JsonHasRowsAndTotals) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("ledger.sqlite");
  // While the server has it open.
  const auto server = MakeLedger(path);
  const Finished run = Cost(path, {"--json", "--key", "alice"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const auto json = ParseJson(run.out, "output");
  ASSERT_TRUE(json.has_value()) << run.out;
  const JsonArray& days = json->Find("days")->as_array();
  ASSERT_EQ(days.size(), 3U);
  EXPECT_EQ(days[0].Find("day")->as_string(), "2026-10-31");
  EXPECT_EQ(days[2].Find("model")->as_string(), "na\"no");
  EXPECT_EQ(days[2].Find("hit_tokens")->as_int(), 900);
  const JsonArray& totals = json->Find("totals")->as_array();
  ASSERT_EQ(totals.size(), 1U);
  EXPECT_EQ(totals[0].Find("requests")->as_int(), 3);
  EXPECT_DOUBLE_EQ(totals[0].Find("cost")->as_double(), 1.75);
  EXPECT_EQ(totals[0].Find("currency")->as_string(), "USD");
}

TEST(Cost, CsvQuotesWhatItMust) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("ledger.sqlite");
  MakeLedger(path);
  const Finished run = Cost(path, {"--csv", "--since", "2026-11-01", "--key", "alice"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  EXPECT_EQ(run.out,
            "day,key,model,requests,hit_tokens,miss_tokens,output_tokens,cost,currency\r\n"
            "2026-11-01,alice,deepseek-flash,1,900,100,50,0.5,USD\r\n"
            "2026-11-01,alice,\"na\"\"no\",1,900,100,50,1,USD\r\n");
}

TEST(Cost, TheDefaultLedgerIsInTheDirectoryForState) {
  const TemporaryFolder folder;
  MakeLedger(folder.Path("state/minke/ledger.sqlite"));
  MakeLedger(folder.Path("user/.local/state/minke/ledger.sqlite"));
  const std::string home = "HOME=" + folder.Path("user");
  for (const std::vector<std::string>& environment :
       std::vector<std::vector<std::string>>{{"XDG_STATE_HOME=" + folder.Path("state"), "HOME="},
                                             {"XDG_STATE_HOME=", home},
                                             {"XDG_STATE_HOME=relative", home}}) {
    const Finished run = RunMinke({"cost"}, {}, environment);
    EXPECT_EQ(run.exit_code, 0) << run.err;
    EXPECT_NE(run.out.find("2026-10-31"), std::string::npos) << run.out;
  }
  const Finished lost = RunMinke({"cost"}, {}, {"XDG_STATE_HOME=", "HOME="});
  EXPECT_EQ(lost.exit_code, 1);
  EXPECT_NE(lost.err.find("say --ledger FILE"), std::string::npos) << lost.err;
}

TEST(Cost, NothingToTellAndNothingThere) {
  const TemporaryFolder folder;
  const std::string path = folder.Path("ledger.sqlite");
  const Finished missing = Cost(path, {});
  EXPECT_EQ(missing.exit_code, 1);
  EXPECT_NE(missing.err.find("There is no ledger"), std::string::npos) << missing.err;
  MakeLedger(path);
  const Finished empty = Cost(path, {"--since", "2026-12-01", "--key", "alice"});
  EXPECT_EQ(empty.exit_code, 0);
  EXPECT_EQ(empty.out, "");
  EXPECT_NE(empty.err.find("has no requests since 2026-12-01 of the key alice"), std::string::npos)
      << empty.err;
  const std::string text = folder.Write("notes.txt", std::string(2000, 'x'));
  const Finished wrong = Cost(text, {});
  EXPECT_EQ(wrong.exit_code, 1);
  EXPECT_NE(wrong.err.find("is damaged"), std::string::npos) << wrong.err;
  EXPECT_EQ(TemporaryFolder::Read(text), std::string(2000, 'x'));
}

TEST(Cost, WrongCommandLinesAreExplained) {
  struct Case {
    std::vector<std::string> arguments;
    std::string message;
  };
  const std::vector<Case> cases = {
      {{"cost", "--since", "2026-02-30"}, "expected a day such as 2026-11-01"},
      {{"cost", "--since", "yesterday"}, "expected a day"},
      {{"cost", "--json", "--csv"}, "--json excludes --csv"},
      {{"cost", "--ledger", ""}, "the name of a file"},
      {{"cost", "--key", ""}, "the name of a key"},
  };
  for (const Case& wrong : cases) {
    const Finished run = RunMinke(wrong.arguments);
    EXPECT_EQ(run.exit_code, 2) << run.err;
    EXPECT_NE(run.err.find(wrong.message), std::string::npos) << run.err;
    EXPECT_EQ(run.out, "");
  }
}

}  // namespace
}  // namespace minke::testing

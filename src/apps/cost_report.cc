// What the ledger's rows look like: as a table, as CSV and as JSON.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "apps/cost_command.h"
#include "apps/terminal.h"

namespace minke {
namespace {

constexpr double kPercent = 100;
constexpr int kKeyColumnMin = 8;

void AddDay(LedgerDay& sum, const LedgerDay& day) {
  sum.requests += day.requests;
  sum.hit_tokens += day.hit_tokens;
  sum.miss_tokens += day.miss_tokens;
  sum.output_tokens += day.output_tokens;
  sum.cost += day.cost;
}

std::vector<LedgerDay> Totals(const std::vector<LedgerDay>& days) {
  std::map<std::string, LedgerDay> sums;
  for (const LedgerDay& day : days) {
    LedgerDay& sum = sums[day.currency];
    sum.currency = day.currency;
    AddDay(sum, day);
  }
  std::vector<LedgerDay> totals;
  totals.reserve(sums.size());
  for (const auto& [currency, sum] : sums) totals.push_back(sum);
  return totals;
}

std::vector<LedgerDay> ByDayAndKey(const std::vector<LedgerDay>& days) {
  std::map<std::tuple<std::string, std::string, std::string>, LedgerDay> sums;
  for (const LedgerDay& day : days) {
    LedgerDay& sum = sums[{day.day, day.key_name, day.currency}];
    sum.day = day.day;
    sum.key_name = day.key_name;
    sum.currency = day.currency;
    AddDay(sum, day);
  }
  std::vector<LedgerDay> lines;
  lines.reserve(sums.size());
  for (const auto& [key, sum] : sums) lines.push_back(sum);
  return lines;
}

std::string CachedShare(const LedgerDay& day) {
  const auto prompt = static_cast<double>(day.hit_tokens) + static_cast<double>(day.miss_tokens);
  if (prompt <= 0) return "-";
  return fmt::format("{:.1f} %", kPercent * static_cast<double>(day.hit_tokens) / prompt);
}

// A key without a name is that of a server without keys.
std::string KeyColumn(const LedgerDay& day) {
  return day.key_name.empty() ? "-" : EscapeForTerminal(day.key_name);
}

std::string Line(std::string_view day, std::string_view key, size_t key_width,
                 const LedgerDay& sums) {
  return fmt::format("{:<12}{:<{}}{:>10}{:>15}{:>15}{:>9}{:>13}{:>16.6f} {}\n", day, key,
                     key_width + 1, sums.requests, sums.hit_tokens, sums.miss_tokens,
                     CachedShare(sums), sums.output_tokens, sums.cost,
                     EscapeForTerminal(sums.currency));
}

// A field with a comma, a quote or a line's end is put in quotes.
std::string CsvField(const std::string& text) {
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string field = "\"";
  for (const char c : text) {
    if (c == '"') field += '"';
    field += c;
  }
  return field + '"';
}

Json SumsJson(const LedgerDay& sums) {
  Json json;
  json.Set("requests", sums.requests);
  json.Set("hit_tokens", sums.hit_tokens);
  json.Set("miss_tokens", sums.miss_tokens);
  json.Set("output_tokens", sums.output_tokens);
  json.Set("cost", sums.cost);
  json.Set("currency", sums.currency);
  return json;
}

}  // namespace

std::string CostText(const std::vector<LedgerDay>& days) {
  const std::vector<LedgerDay> lines = ByDayAndKey(days);
  size_t width = kKeyColumnMin;
  for (const LedgerDay& line : lines) width = std::max(width, KeyColumn(line).size());
  std::string text =
      fmt::format("{:<12}{:<{}}{:>10}{:>15}{:>15}{:>9}{:>13}{:>16}\n", "DAY", "KEY", width + 1,
                  "REQUESTS", "CACHED TOKENS", "OTHER TOKENS", "CACHED", "OUTPUT", "COST");
  for (const LedgerDay& line : lines) text += Line(line.day, KeyColumn(line), width, line);
  for (const LedgerDay& total : Totals(days)) text += Line("total", "", width, total);
  return text;
}

std::string CostCsv(const std::vector<LedgerDay>& days) {
  std::string text =
      "day,key,model,requests,hit_tokens,miss_tokens,output_tokens,cost,currency\r\n";
  for (const LedgerDay& day : days) {
    text += fmt::format("{},{},{},{},{},{},{},{},{}\r\n", CsvField(day.day), CsvField(day.key_name),
                        CsvField(day.model), day.requests, day.hit_tokens, day.miss_tokens,
                        day.output_tokens, day.cost, CsvField(day.currency));
  }
  return text;
}

Json CostJson(const std::vector<LedgerDay>& days) {
  JsonArray list;
  for (const LedgerDay& day : days) {
    Json json;
    json.Set("day", day.day);
    json.Set("key", day.key_name);
    json.Set("model", day.model);
    const Json sums = SumsJson(day);
    for (const JsonMember& member : sums.as_object()) json.Set(member.first, member.second);
    list.push_back(std::move(json));
  }
  JsonArray totals;
  for (const LedgerDay& total : Totals(days)) totals.push_back(SumsJson(total));
  Json json;
  json.Set("days", std::move(list));
  json.Set("totals", std::move(totals));
  return json;
}

}  // namespace minke

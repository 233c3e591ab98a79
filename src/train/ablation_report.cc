#include "train/ablation_report.h"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json.h"
#include "recall/scoring.h"

namespace minke::train {
namespace {

// A line of a table: all seeds of a row and variant.
struct Line {
  std::string row;
  std::string variant;
  std::vector<const AblationResult*> seeds;
};

double Percent(int64_t right, int64_t total) {
  constexpr double kPercent = 100;
  return total == 0 ? 0 : kPercent * static_cast<double>(right) / static_cast<double>(total);
}

const AblationRecall* RecallAt(const AblationResult& result, int64_t length) {
  const auto found =
      std::find_if(result.recall.begin(), result.recall.end(),
                   [length](const AblationRecall& one) { return one.length == length; });
  return found == result.recall.end() ? nullptr : &*found;
}

// "97.5 [95.5, 98.6]", and with several seeds "(96.0 to 98.5)".
std::string ShareText(const Line& line, int64_t length, int64_t AblationRecall::*right) {
  constexpr double kPercent = 100;
  int64_t sum = 0;
  int64_t total = 0;
  double low = kPercent;
  double high = 0;
  for (const AblationResult* result : line.seeds) {
    const AblationRecall* recall = RecallAt(*result, length);
    if (recall == nullptr) return "-";
    sum += recall->*right;
    total += recall->cases;
    low = std::min(low, Percent(recall->*right, recall->cases));
    high = std::max(high, Percent(recall->*right, recall->cases));
  }
  const ShareInterval interval = IntervalOf(sum, total);
  std::string text = fmt::format("{:.1f} [{:.1f}, {:.1f}]", Percent(sum, total),
                                 kPercent * interval.low, kPercent * interval.high);
  if (line.seeds.size() > 1) text += fmt::format(" ({:.1f} to {:.1f})", low, high);
  return text;
}

std::string BitsText(const Line& line) {
  double sum = 0;
  double low = line.seeds.front()->bits_per_byte;
  double high = low;
  for (const AblationResult* result : line.seeds) {
    sum += result->bits_per_byte;
    low = std::min(low, result->bits_per_byte);
    high = std::max(high, result->bits_per_byte);
  }
  std::string text = fmt::format("{:.3f}", sum / static_cast<double>(line.seeds.size()));
  if (line.seeds.size() > 1) text += fmt::format(" ({:.3f} to {:.3f})", low, high);
  return text;
}

// The lowest of the seeds, index by index; empty where they have not the same indexes.
std::vector<AblationIndex> WorstIndexes(const Line& line) {
  std::vector<AblationIndex> worst = line.seeds.front()->indexes;
  for (const AblationResult* result : line.seeds) {
    if (result->indexes.size() != worst.size()) return {};
    for (size_t i = 0; i < worst.size(); ++i) {
      const AblationIndex& one = result->indexes[i];
      worst[i].top1_recall = std::min(worst[i].top1_recall, one.top1_recall);
      worst[i].pool_recall = std::min(worst[i].pool_recall, one.pool_recall);
      worst[i].pool_topk_recall = std::min(worst[i].pool_topk_recall, one.pool_topk_recall);
    }
  }
  return worst;
}

// "2: 99, 4: 98": percent of the answers whose best row the index finds, by layer.
std::string IndexText(const Line& line) {
  constexpr double kPercent = 100;
  std::string text;
  for (const AblationIndex& index : WorstIndexes(line)) {
    text += fmt::format("{}{}: {:.0f}", text.empty() ? "" : ", ", index.layer,
                        kPercent * index.top1_recall);
  }
  return text.empty() ? "-" : text;
}

// "4: 100 / 87.5": percent of the answers whose best row the pool holds, and of the index_topk best
// rows that it holds, by layer.
std::string PoolText(const Line& line) {
  constexpr double kPercent = 100;
  std::string text;
  for (const AblationIndex& index : WorstIndexes(line)) {
    if (index.pool_recall < 0) continue;
    text += fmt::format("{}{}: {:.0f} / {:.1f}", text.empty() ? "" : ", ", index.layer,
                        kPercent * index.pool_recall, kPercent * index.pool_topk_recall);
  }
  return text.empty() ? "-" : text;
}

std::string TableText(const std::string& name, const std::vector<Line>& lines) {
  std::set<int64_t> lengths;
  for (const Line& line : lines) {
    for (const AblationResult* result : line.seeds) {
      for (const AblationRecall& recall : result->recall) lengths.insert(recall.length);
    }
  }
  std::string text = fmt::format("### {}\n\n| model | read as | seeds |", name);
  std::string rule = "|---|---|---|";
  for (const int64_t length : lengths) {
    text += fmt::format(" digits at {} | answer at {} |", length, length);
    rule += "---|---|";
  }
  text +=
      " index top-1 by layer | pool holds top-1 / top-k | bits/byte | cache B/token |"
      " keys/query |\n" +
      rule + "---|---|---|---|---|\n";
  for (const Line& line : lines) {
    text += fmt::format("| {} | {} | {} |", line.row, line.variant, line.seeds.size());
    for (const int64_t length : lengths) {
      text += fmt::format(" {} | {} |", ShareText(line, length, &AblationRecall::digits),
                          ShareText(line, length, &AblationRecall::answers));
    }
    const AblationResult& one = *line.seeds.front();
    text += fmt::format(" {} | {} | {} | {:.1f} | {:.0f} |\n", IndexText(line), PoolText(line),
                        BitsText(line), one.cache_bytes_per_token, one.indexed_keys_per_query);
  }
  return text;
}

Result<AblationRecall> ParseRecall(const Json& entry, const std::string& what) {
  AblationRecall recall;
  recall.length = TRY(JsonInt(entry, "length", what));
  recall.cases = TRY(JsonInt(entry, "cases", what));
  recall.digits = TRY(JsonInt(entry, "digits", what));
  recall.answers = TRY(JsonInt(entry, "answers", what));
  if (recall.length < 1 || recall.cases < 1) {
    return Fail(fmt::format("{}: length and cases of recall must be at least 1, found {} and {}.",
                            what, recall.length, recall.cases));
  }
  for (const auto& [name, right] :
       {std::pair("digits", recall.digits), std::pair("answers", recall.answers)}) {
    if (right >= 0 && right <= recall.cases) continue;
    return Fail(
        fmt::format("{}: {} at length {} must be from 0 to {}, the number of cases, found "
                    "{}.",
                    what, name, recall.length, recall.cases, right));
  }
  return recall;
}

Result<AblationResult> ParseLine(const Json& json, const std::string& what) {
  AblationResult result;
  result.table = TRY(JsonString(json, "table", what));
  result.row = TRY(JsonString(json, "row", what));
  result.variant = TRY(JsonString(json, "variant", what));
  result.seed = static_cast<uint64_t>(TRY(JsonInt(json, "seed", what)));
  result.trained_tokens = TRY(JsonInt(json, "trained_tokens", what));
  result.bits_per_byte = TRY(JsonDouble(json, "bits_per_byte", what));
  result.cache_bytes_per_token = TRY(JsonDouble(json, "cache_bytes_per_token", what));
  result.indexed_keys_per_query = TRY(JsonDouble(json, "indexed_keys_per_query", what));
  for (const Json& entry : *TRY(JsonList(json, "recall", what))) {
    AblationRecall recall = TRY(ParseRecall(entry, what));
    if (RecallAt(result, recall.length) != nullptr) {
      return Fail(fmt::format("{}: recall has the length {} twice.", what, recall.length));
    }
    result.recall.push_back(recall);
  }
  if (json.Find("steps") != nullptr) result.steps = TRY(JsonInt(json, "steps", what));
  if (json.Find("setup") != nullptr) result.setup = TRY(JsonString(json, "setup", what));
  for (const Json& entry : *TRY(JsonList(json, "indexes", what))) {
    AblationIndex index;
    index.layer = TRY(JsonInt(entry, "layer", what));
    index.top1_recall = TRY(JsonDouble(entry, "top1_recall", what));
    index.mass_recall = TRY(JsonDouble(entry, "mass_recall", what));
    index.pool_recall = TRY(JsonDouble(entry, "pool_recall", what));
    index.pool_topk_recall = TRY(JsonDouble(entry, "pool_topk_recall", what));
    result.indexes.push_back(index);
  }
  return result;
}

bool SameResult(const AblationResult& a, const AblationResult& b) {
  return a.table == b.table && a.row == b.row && a.variant == b.variant && a.seed == b.seed;
}

std::string StepsText(int64_t steps) {
  return steps == 0 ? "the plan's lengths of stages" : fmt::format("{} steps a stage", steps);
}

}  // namespace

std::string ResultLine(const AblationResult& result) {
  JsonArray recall;
  for (const AblationRecall& one : result.recall) {
    recall.emplace_back(JsonObject{{"length", one.length},
                                   {"cases", one.cases},
                                   {"digits", one.digits},
                                   {"answers", one.answers}});
  }
  JsonArray indexes;
  for (const AblationIndex& one : result.indexes) {
    indexes.emplace_back(JsonObject{{"layer", one.layer},
                                    {"top1_recall", one.top1_recall},
                                    {"mass_recall", one.mass_recall},
                                    {"pool_recall", one.pool_recall},
                                    {"pool_topk_recall", one.pool_topk_recall}});
  }
  Json line(JsonObject{{"table", result.table},
                       {"row", result.row},
                       {"variant", result.variant},
                       {"seed", result.seed},
                       {"trained_tokens", result.trained_tokens},
                       {"bits_per_byte", result.bits_per_byte},
                       {"cache_bytes_per_token", result.cache_bytes_per_token},
                       {"indexed_keys_per_query", result.indexed_keys_per_query},
                       {"recall", std::move(recall)},
                       {"indexes", std::move(indexes)}});
  if (result.steps) line.Set("steps", *result.steps);
  if (!result.setup.empty()) line.Set("setup", result.setup);
  return DumpJson(line, JsonStyle::kCompact) + '\n';
}

Status CheckRequest(const AblationResult& known, const AblationRequest& asked,
                    std::string_view what) {
  std::set<int64_t> lengths;
  std::set<int64_t> cases;
  for (const AblationRecall& recall : known.recall) {
    lengths.insert(recall.length);
    cases.insert(recall.cases);
  }
  const std::set<int64_t> wanted(asked.lengths.begin(), asked.lengths.end());
  std::string found;
  std::string expected;
  if (lengths != wanted) {
    found = fmt::format("prompts of {} tokens", fmt::join(lengths, ", "));
    expected = fmt::format("{} tokens", fmt::join(wanted, ", "));
  } else if (cases != std::set<int64_t>{asked.cases}) {
    found = fmt::format("{} cases of each length", fmt::join(cases, ", "));
    expected = fmt::to_string(asked.cases);
  } else if (known.steps && *known.steps != asked.steps) {
    found = StepsText(*known.steps);
    expected = StepsText(asked.steps);
  } else if (!known.setup.empty() && known.setup != asked.setup) {
    found = fmt::format("another plan or trunk (setup {})", known.setup);
    expected = asked.setup;
  } else {
    return {};
  }
  return Fail(
      fmt::format("Line {} of {} has the result of \"{}\" read as \"{}\", seed {}, with {}, but "
                  "asked for is {}. Name another --results file, or remove the line to make it "
                  "anew.",
                  known.line, what, known.row, known.variant, known.seed, found, expected));
}

Result<std::vector<AblationResult>> ParseResults(std::string_view text, std::string_view what) {
  std::vector<AblationResult> results;
  size_t begin = 0;
  int64_t number = 1;
  // A line without its newline was being written when its process ended.
  for (size_t end = text.find('\n'); end != std::string_view::npos;
       end = text.find('\n', begin), ++number) {
    const std::string name = fmt::format("line {} of {}", number, what);
    const Json line = TRY(ParseJson(text.substr(begin, end - begin), name));
    AblationResult result = TRY(ParseLine(line, name));
    result.line = number;
    for (const AblationResult& earlier : results) {
      if (!SameResult(earlier, result)) continue;
      return Fail(
          fmt::format("Lines {} and {} of {} both are of \"{}\" read as \"{}\", seed {}; "
                      "remove one of them.",
                      earlier.line, number, what, result.row, result.variant, result.seed));
    }
    results.push_back(std::move(result));
    begin = end + 1;
  }
  return results;
}

std::string MarkdownTables(const std::vector<AblationResult>& results) {
  std::vector<std::pair<std::string, std::vector<Line>>> tables;
  for (const AblationResult& result : results) {
    auto table = std::find_if(tables.begin(), tables.end(),
                              [&result](const auto& one) { return one.first == result.table; });
    if (table == tables.end()) table = tables.insert(table, {result.table, {}});
    std::vector<Line>& lines = table->second;
    auto line = std::find_if(lines.begin(), lines.end(), [&result](const Line& one) {
      return one.row == result.row && one.variant == result.variant;
    });
    if (line == lines.end()) line = lines.insert(line, Line{result.row, result.variant, {}});
    line->seeds.push_back(&result);
  }
  std::string text;
  for (const auto& [name, lines] : tables) {
    text += (text.empty() ? "" : "\n") + TableText(name, lines);
  }
  return text;
}

}  // namespace minke::train

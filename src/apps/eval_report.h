// What minke eval recall says: a table for a person, JSON for a program, a plot for a document.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "recall/scoring.h"

namespace minke {

// Right answers among cases of one length, and of one distance of the needle.
struct RecallCount {
  int64_t cases = 0;
  int64_t digits_exact = 0;
  int64_t answer_exact = 0;

  void Add(const AnswerScore& score);
  double digits_share() const;
  double answer_share() const;
};

// Of one kind of cases, by length.
class RecallTable {
 public:
  // distance: tokens from the value to the end of the prompt.
  void Add(int64_t length, int64_t distance, const AnswerScore& score);

  // REQUIRES cases of that length.
  const RecallCount& OfLength(int64_t length) const { return lengths_.at(length); }
  const std::map<int64_t, RecallCount>& lengths() const { return lengths_; }
  // results[]: of each length, the whole with distance null, then by distance.
  Json ToJson() const;
  std::string ToText(const std::string& heading) const;

 private:
  std::map<int64_t, RecallCount> lengths_;
  // By length, then by the distance rounded up to a power of two.
  std::map<int64_t, std::map<int64_t, RecallCount>> distances_;
};

// A plot of exact digits over the length, a line for each table that has cases.
std::string RecallPlot(const std::string& model,
                       const std::vector<std::pair<std::string, const RecallTable*>>& tables);

}  // namespace minke

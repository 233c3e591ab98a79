#include "recall/scoring.h"

#include <algorithm>
#include <cmath>

namespace minke {

namespace {

bool IsDigit(char c) {
  return c >= '0' && c <= '9';
}
bool IsLetter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}

std::string_view FirstNumber(std::string_view text) {
  size_t begin = 0;
  while (begin < text.size() && !IsDigit(text[begin])) ++begin;
  size_t end = begin;
  while (end < text.size() && IsDigit(text[end])) ++end;
  return text.substr(begin, end - begin);
}

std::string_view LastWord(std::string_view text) {
  size_t end = text.size();
  while (end > 0 && !IsLetter(text[end - 1])) --end;
  size_t begin = end;
  while (begin > 0 && IsLetter(text[begin - 1])) --begin;
  return text.substr(begin, end - begin);
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = text.find_first_not_of(" \n\t\r");
  if (begin == std::string_view::npos) return {};
  return text.substr(begin, text.find_last_not_of(" \n\t\r") + 1 - begin);
}

}  // namespace

AnswerScore ScoreAnswer(const FactSet& facts, const Question& question, std::string_view answer) {
  const Fact& fact = facts.facts[question.fact];
  AnswerScore score;
  score.digits_exact =
      (IsDigit(fact.value[0]) ? FirstNumber(answer) : LastWord(answer)) == fact.value;
  score.answer_exact = Trimmed(answer) == question.answer;
  return score;
}

ShareInterval IntervalOf(int64_t right, int64_t total) {
  constexpr double kZ = 1.959964;  // of the normal distribution, 97.5 %
  if (total == 0) return {};
  const auto n = static_cast<double>(total);
  const double share = static_cast<double>(right) / n;
  const double middle = share + kZ * kZ / (2 * n);
  const double half = kZ * std::sqrt(share * (1 - share) / n + kZ * kZ / (4 * n * n));
  const double scale = 1 + kZ * kZ / n;
  return {std::max(0.0, (middle - half) / scale), std::min(1.0, (middle + half) / scale)};
}

}  // namespace minke

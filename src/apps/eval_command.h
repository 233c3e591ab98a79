// minke eval: how good a model is, measured through the engine.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "apps/commands.h"
#include "core/result.h"

namespace minke {

inline constexpr int64_t kEvalLengthMin = 128;  // tokens: facts, a question and some text
inline constexpr int64_t kEvalLengthMax = int64_t{1} << 20;
inline constexpr int64_t kEvalCasesMax = 1'000'000;
inline constexpr size_t kEvalLengthsMax = 64;

struct EvalRecallFlags {
  ModelFlags model;
  std::string prefill = "exact";
  std::vector<int64_t> lengths = {512, 1024, 2048, 4096};  // tokens of a prompt
  int64_t cases = 100;                                     // questions of each length
  int64_t questions = 4;                                   // about each document
  uint64_t seed = 1;
  std::string thinking = "off";
  std::string filler;   // a text file; empty: eval_text.txt of the model, or made-up sentences
  std::string require;  // "1024=0.95,2048=0.85"
  bool json = false;
  std::string plot;  // an SVG file
};

struct EvalPerplexityFlags {
  ModelFlags model;
  std::string file;
  int64_t window = 1024;  // tokens that are scored together
  bool json = false;
};

struct EvalFlags {
  EvalRecallFlags recall;
  EvalPerplexityFlags perplexity;
};

// "1024=0.95,2048=0.85": lengths, each with the least share of exact digits. Errors say what is
// wrong: the form, a share outside 0..1, a length that is not in `lengths`, one named twice.
Result<std::vector<std::pair<int64_t, double>>> ParseRequirements(
    const std::string& text, const std::vector<int64_t>& lengths);

int RunEvalRecall(const EvalRecallFlags& flags);
int RunEvalPerplexity(const EvalPerplexityFlags& flags);
// Adds the command with its own commands. `flags` outlives the app.
CLI::App* AddEval(CLI::App& app, EvalFlags* flags);

}  // namespace minke

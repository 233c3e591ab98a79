// Stands in for the model in tests and load tests: answers from a script. What it writes is a
// function of the tokens before it alone, so that everything around the arithmetic stays true:
// batches, preemption, the cache. The scheduler, the cache, the tokenizer and the parser are real.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "text/tokenizer.h"

namespace minke::testing {

// Text with the tokens of the control strings in it (text/control_tokens.h) in their places.
std::vector<int32_t> ScriptIds(const Tokenizer& tokenizer, std::string_view text);

struct Script {
  // A part of the last user turn (what tools gave is in it, between its tags); empty: any. Of a
  // plain text, what stands before its last line break: there the answer begins, which must then
  // have no line break itself.
  std::string pattern;
  // The exact text: reasoning, `</think>`, content, tags of calls. Where the prompt closed the
  // reasoning itself, what follows the first `</think>`. The end of the sequence comes by itself.
  std::string answer;
};

struct ScriptedModelOptions {
  std::vector<Script> scripts;  // the first that fits; none: the answer is empty
  std::chrono::microseconds step_delay{0};
  std::chrono::microseconds row_delay{0};  // for each new token of a step
};

class ScriptedModel {
 public:
  // Reads tokenizer.json and config.json of the directory.
  static Result<std::unique_ptr<ScriptedModel>> Create(const std::string& model_dir,
                                                       ScriptedModelOptions options);

  // For EngineOptions::forward. The object outlives the engine; one engine at a time.
  ForwardFunction function();
  // The token that follows.
  int32_t Next(std::span<const int32_t> history);

 private:
  struct Answer {
    std::string pattern;
    std::vector<int32_t> thinking;
    std::vector<int32_t> plain;  // where the prompt closed the reasoning
  };
  ScriptedModel(Tokenizer tokenizer, ScriptedModelOptions options);
  const Answer* Choose(std::span<const int32_t> turn);
  // Where the prompt is plain text.
  int32_t NextOfText(std::span<const int32_t> history);

  Tokenizer tokenizer_;
  ScriptedModelOptions options_;
  std::vector<Answer> answers_;
  int32_t user_ = -1;
  int32_t assistant_ = -1;
  int32_t think_start_ = -1;
  int32_t think_end_ = -1;
  int32_t eos_ = -1;
  int32_t line_break_ = -1;
  std::unordered_map<uint64_t, const Answer*> chosen_;  // by a digest of the turn
};

}  // namespace minke::testing

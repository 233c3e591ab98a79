// The conversation of `minke chat`. Its history is token ids, exactly those that the model read
// and wrote: each turn appends, so the cache of the session always fits, also after an answer that
// was stopped half way or that is no well-formed text.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "engine/engine.h"

namespace minke {

class Conversation {
 public:
  // `engine` outlives it. `system` may be empty.
  Conversation(const Engine& engine, std::string system, ChatOptions options);

  // Asks and waits for the answer. On an error the question is not part of the history. A stopped
  // answer is: up to its last shown token, then closed as the format demands.
  Result<GenerationResult> Ask(const std::string& question, const GenerationOptions& options);
  void Reset();

  const Session& session() const { return *session_; }
  int64_t token_count() const { return static_cast<int64_t>(ids_.size()); }

 private:
  void CloseAnswer(bool thinking, const GenerationResult& result);

  const Engine& engine_;
  std::string system_;
  ChatOptions options_;
  std::unique_ptr<Session> session_;
  JsonArray messages_;        // those whose tokens are in ids_
  std::vector<int32_t> ids_;  // the history
};

}  // namespace minke

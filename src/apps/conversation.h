// The conversation of `minke chat`. Its history is token ids, exactly those that the model read
// and wrote: each turn appends, so the cache of the session always fits, also after an answer that
// was stopped half way or that is no well-formed text.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "engine/engine.h"

namespace minke {

inline constexpr uint64_t kConversationBytesMax = uint64_t{256} << 20;

// Where the last conversation of a tenant is kept in a cache directory.
std::string ConversationPath(const std::string& directory, const std::string& tenant);
// Overwrites and removes it, if there is one.
Status EraseConversation(const std::string& directory, const std::string& tenant);

class Conversation {
 public:
  // `engine` outlives it. `system` may be empty.
  Conversation(const Engine& engine, std::string system, ChatOptions options);

  // Asks and waits for the answer. On an error the question is not part of the history. A stopped
  // answer is: up to its last shown token, then closed as the format demands.
  Result<GenerationResult> Ask(const std::string& question, const GenerationOptions& options);
  void Reset();

  // The history as a file that only its owner may read, and back. Load() replaces the history, the
  // system message included; errors name the file: there is none, it is damaged, it is of another
  // model.
  Status Save(const std::string& path) const;
  Status Load(const std::string& path);
  // The last question and its answer; empty where there is none.
  const JsonArray& messages() const { return messages_; }

  const Session& session() const { return *session_; }
  int64_t token_count() const { return static_cast<int64_t>(ids_.size()); }

 private:
  Status ParseSaved(const Json& saved, const std::string& path);
  void CloseAnswer(bool thinking, const GenerationResult& result);

  const Engine& engine_;
  std::string system_;
  ChatOptions options_;
  std::unique_ptr<Session> session_;
  JsonArray messages_;        // those whose tokens are in ids_
  std::vector<int32_t> ids_;  // the history
};

}  // namespace minke

// The prompts of the kill test, for the process that is killed and for the one that judges it.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace minke::testing {

inline constexpr int kTrafficPrompts = 12;
inline constexpr int64_t kTrafficAnswerTokens = 3;

// Three families that share a beginning each; lengths odd and even, around blocks and windows.
inline std::vector<int32_t> TrafficPrompt(int index) {
  const int family = index % 3;
  std::vector<int32_t> ids(static_cast<size_t>(100 + 60 * family), 7 + family);
  for (int i = 0; i < 20 + 37 * (index / 3); ++i) ids.push_back(3 + (index * 31 + i * 17) % 400);
  return ids;
}

struct TrafficAnswer {
  uint64_t digest = 0;  // of the logits of every drawn token
  CacheUse cache;
  std::string error;  // empty if it was answered
};

inline TrafficAnswer AskTraffic(const Engine& engine, int index) {
  TrafficAnswer answer;
  answer.digest = 14695981039346656037U;  // FNV-1a
  GenerationOptions options;
  options.max_tokens = kTrafficAnswerTokens;
  options.ignore_eos = true;
  options.on_token = [&](const TokenEvent& event) {
    for (const float logit : event.logits) {
      uint32_t bits = 0;
      std::memcpy(&bits, &logit, sizeof(bits));
      answer.digest = (answer.digest ^ bits) * 1099511628211U;
    }
  };
  const auto session = engine.NewSession();
  const auto result = engine.Generate(*session, TrafficPrompt(index), options);
  if (!result) {
    answer.error = result.error().message;
  } else {
    answer.cache = result->cache;
  }
  return answer;
}

inline EngineOptions TrafficOptions(const std::string& model_dir, const std::string& disk_dir) {
  EngineOptions options;
  options.model_dir = model_dir;
  options.threads = 1;
  options.cache.disk_dir = disk_dir;
  return options;
}

}  // namespace minke::testing

// The conversations of the service's kill test, for the process that is killed and for the one that
// judges it.
#pragma once

#include <cstdint>
#include <fstream>
#include <sstream>
#include <string>
#include <utility>
#include <vector>

#include "engine/engine.h"
#include "engine/service.h"

namespace minke::testing {

inline constexpr int kConversations = 8;
inline constexpr int64_t kTurnAnswerTokens = 4;

// What its user says in a turn.
inline std::vector<int32_t> TurnQuestion(int conversation, size_t turn) {
  std::vector<int32_t> ids;
  // All begin alike, so that they share what is on disk.
  if (turn == 0) ids.assign(140, 7);
  for (size_t i = 0; i < 12 + turn % 5; ++i) {
    ids.push_back(3 + (conversation * 31 + static_cast<int>(turn) * 7 + static_cast<int>(i)) % 400);
  }
  return ids;
}

inline ServiceRequest TurnRequest(std::vector<int32_t> prompt) {
  ServiceRequest request;
  request.prompt = std::move(prompt);
  request.max_tokens = kTurnAnswerTokens;
  request.ignore_eos = true;
  return request;
}

// The answers so far of every conversation, one line each, kTurnAnswerTokens ids a turn.
using Transcripts = std::vector<std::vector<int32_t>>;

inline Transcripts ReadTranscripts(const std::string& path) {
  Transcripts transcripts(kConversations);
  std::ifstream file(path);
  std::string line;
  for (std::vector<int32_t>& answers : transcripts) {
    std::getline(file, line);
    std::istringstream words(line);
    int32_t id = 0;
    while (words >> id) answers.push_back(id);
  }
  return transcripts;
}

inline void WriteTranscripts(const std::string& path, const Transcripts& transcripts) {
  std::ofstream file(path);
  for (const std::vector<int32_t>& answers : transcripts) {
    for (const int32_t id : answers) file << id << ' ';
    file << '\n';
  }
}

// The prompt that follows `turns` answered turns.
inline std::vector<int32_t> TurnPrompt(int conversation, const std::vector<int32_t>& answers,
                                       size_t turns) {
  std::vector<int32_t> prompt;
  for (size_t turn = 0; turn <= turns; ++turn) {
    const std::vector<int32_t> question = TurnQuestion(conversation, turn);
    prompt.insert(prompt.end(), question.begin(), question.end());
    if (turn == turns) break;
    const auto begin = answers.begin() + static_cast<ptrdiff_t>(turn * kTurnAnswerTokens);
    prompt.insert(prompt.end(), begin, begin + kTurnAnswerTokens);
  }
  return prompt;
}

}  // namespace minke::testing

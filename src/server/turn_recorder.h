// What one answer was, as its client got it and as the model wrote it, for the replay map.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/api.h"
#include "text/answer_parser.h"
#include "text/replay_map.h"

namespace minke {

// The conversation that a turn answers, and how it is found again.
struct TurnPlace {
  bool kept = false;  // the family and the request let the turn be kept
  std::string tenant;
  std::string answer_id;  // of AnswerIds
  ConversationDigest conversation;
  std::vector<int32_t> prompt_end;  // from the last `<｜Assistant｜>` on
  TurnTokens tokens;
};

class TurnRecorder {
 public:
  void AddToken(int32_t id) { drawn_.push_back(id); }
  void AddPiece(const AnswerPiece& piece);
  // To be called once, after all else.
  WrittenTurn Finish(const TurnPlace& place, const ApiRequest& request);

 private:
  std::vector<int32_t> drawn_;
  WrittenTurn turn_;  // arguments and ids of its calls come at the end
  std::vector<std::string> arguments_;
};

}  // namespace minke

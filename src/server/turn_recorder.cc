#include "server/turn_recorder.h"

#include <utility>

#include "server/tool_list.h"

namespace minke {

void TurnRecorder::AddPiece(const AnswerPiece& piece) {
  switch (piece.kind) {
    case AnswerPiece::Kind::kReasoning:
      turn_.reasoning += piece.text;
      break;
    case AnswerPiece::Kind::kContent:
      turn_.content += piece.text;
      break;
    case AnswerPiece::Kind::kToolCall: {
      ToolCall call;
      call.name = QualifiedToolName(piece.tool_namespace, piece.name);
      turn_.tool_calls.push_back(std::move(call));
      arguments_.emplace_back();
      break;
    }
    case AnswerPiece::Kind::kToolArguments:
      if (!arguments_.empty()) arguments_.back() += piece.text;
      break;
    case AnswerPiece::Kind::kToolCallEnd:
      break;
  }
}

WrittenTurn TurnRecorder::Finish(const TurnPlace& place, const ApiRequest& request) {
  for (size_t i = 0; i < turn_.tool_calls.size(); ++i) {
    turn_.tool_calls[i].arguments = Json(std::move(arguments_[i]));
    turn_.tool_calls[i].id = AnswerCallId(request.family, place.answer_id, static_cast<int>(i));
  }
  turn_.thinking = request.opens_reasoning();
  turn_.ids =
      WrittenIds(place.prompt_end, drawn_, place.tokens, turn_.thinking, !turn_.tool_calls.empty());
  return std::move(turn_);
}

}  // namespace minke

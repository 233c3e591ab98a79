// Shared by the tests of the agents' families: answers as they come, and streams as a client reads
// them.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "server/api.h"
#include "tests/server/openai_support.h"

namespace minke::testing {

AnswerPiece TextPiece(AnswerPiece::Kind kind, std::string text);
// The pieces of a whole call.
std::vector<AnswerPiece> CallPieces(int index, std::string tool_namespace, std::string name,
                                    std::string arguments);
// Reasoning, a text, a call of the function read_file, one of team::ask and one of the custom tool
// apply_patch, with characters of all lengths.
std::vector<AnswerPiece> PiecesOfAllKinds();
// A request of the Responses family that declares these tools.
Json RequestWithAllTools(bool stream);

// The events of a whole stream. Expects that each has its type as its name.
std::vector<Json> StreamEvents(std::string_view bytes);
std::string TypeOf(const Json& event);

// The member at a path of members and indices, e.g. "response.output.0.id". CHECKs that it is
// there.
const Json& At(const Json& value, std::string_view path);
std::string TextAt(const Json& value, std::string_view path);

// The whole text of a request's prompt.
std::string PromptTextOf(const ApiRequest& request);

}  // namespace minke::testing

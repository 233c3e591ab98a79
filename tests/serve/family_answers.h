// The same question in every family, and what of an answer is its text.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "server/api.h"

namespace minke::testing {

inline constexpr std::array<ApiFamily, 4> kFamilies = {ApiFamily::kChat, ApiFamily::kCompletions,
                                                       ApiFamily::kResponses, ApiFamily::kMessages};

const char* PathOf(ApiFamily family);
// Thinking is off. A completion's prompt is the question and a line break, where scripts begin.
std::string QuestionBody(ApiFamily family, std::string_view question, bool stream);
// The text of a whole answer, its reasoning and calls left out; what is wrong with it otherwise,
// behind "BAD: ".
std::string AnswerTextOf(ApiFamily family, std::string_view body);
// The same of the events of a stream, which must end as the family's streams do.
std::string StreamedTextOf(ApiFamily family, std::string_view events);

}  // namespace minke::testing

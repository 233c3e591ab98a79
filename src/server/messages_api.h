// What of the Messages API is not an answer.
#pragma once

#include <cstdint>
#include <string>

namespace minke {

// The body of an answer to POST /v1/messages/count_tokens. Its request is read by
// ReadMessagesRequest(); `input_tokens` is the length of the prompt that it makes.
std::string CountTokensBody(int64_t input_tokens);

}  // namespace minke

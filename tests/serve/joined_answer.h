// What a client has of an answer once all of it has come: the same, whether it came as a stream or
// as one body.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "server/api.h"

namespace minke::testing {

struct SentEvent {
  std::string name;  // empty where there is none
  std::string data;
};
// The events of a stream, without its comments.
std::vector<SentEvent> EventsOf(std::string_view stream);

// One line each: "thinking TEXT", "text TEXT", "call NAME ID ARGUMENTS" in the order in which they
// came, and "end REASON". What cannot be read is a line "BAD ...".
std::string JoinBody(ApiFamily family, std::string_view body);
std::string JoinEvents(ApiFamily family, const std::vector<SentEvent>& events);

}  // namespace minke::testing

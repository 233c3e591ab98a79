// What a client makes of the answers of Chat Completions.
#pragma once

#include <string>
#include <vector>

#include "core/json.h"

namespace minke::testing {

struct ChatAnswer {
  std::string reasoning;
  std::string content;
  std::vector<std::string> calls;  // id, name and arguments
  std::string finish_reason;
  Json usage;

  bool operator==(const ChatAnswer& other) const;
};

// The data of the events of a stream. Checks the order of its chunks (serving.md 1.5).
ChatAnswer ReadChatStream(const std::vector<std::string>& events);
ChatAnswer ReadChatBody(const std::string& body);

}  // namespace minke::testing

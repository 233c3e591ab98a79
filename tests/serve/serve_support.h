// What a client of the whole server sends, and what of its answers must not depend on company.
#pragma once

#include <cstdint>
#include <string>

#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/server/raw_client.h"

namespace minke::testing {

// The parts of a completion that another run must repeat.
struct Completion {
  std::string choices;  // as they came: text, every token with its log probability, the reason
  int64_t prompt_tokens = 0;
  int64_t cached_tokens = 0;
  int64_t answer_tokens = 0;
};

inline uint16_t PortOf(const std::string& url) {
  return static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
}

// The choices are the bytes between two members whose order the server keeps.
inline void ReadCompletion(const test::RawAnswer& answer, Completion* completion) {
  ASSERT_TRUE(answer.complete);
  ASSERT_EQ(answer.status, 200) << answer.body;
  const Result<Json> body = ParseJson(answer.body, "the answer");
  ASSERT_TRUE(body.has_value()) << body.error().message;
  const Json* usage = body->Find("usage");
  ASSERT_NE(usage, nullptr) << answer.body;
  completion->prompt_tokens = usage->Find("prompt_tokens")->as_int();
  completion->answer_tokens = usage->Find("completion_tokens")->as_int();
  completion->cached_tokens = usage->Find("prompt_tokens_details")->Find("cached_tokens")->as_int();
  const Json* choices = body->Find("choices");
  ASSERT_EQ(choices->as_array().size(), 1U);
  completion->choices = DumpJson(*choices, JsonStyle::kCompact);
}

// The server refuses hosts that it does not know (serving.md 5), so the request names this one.
inline std::string PostTo(const std::string& path, const std::string& body) {
  return "POST " + path +
         " HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
         "Content-Length: " +
         std::to_string(body.size()) + "\r\n\r\n" + body;
}

inline std::string CompletionRequest(const std::string& body) {
  return PostTo("/v1/completions", body);
}

inline Completion AskCompletion(uint16_t port, const std::string& body) {
  Completion completion;
  test::RawClient client(port);
  ReadCompletion(client.Ask(CompletionRequest(body)), &completion);
  return completion;
}

}  // namespace minke::testing

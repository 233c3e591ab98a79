// Requests that no honest client sends: valid ones of all families, changed at random as trees of
// JSON, as bytes of a body, and as bytes of HTTP.
#pragma once

#include <cstdint>
#include <random>
#include <string>

#include "core/json.h"

namespace minke::testing {

// "POST PATH HTTP/1.1" with the headers of a client of this server.
std::string PostBody(const std::string& path, const std::string& body);

class HostileRequests {
 public:
  explicit HostileRequests(uint32_t seed) : random_(seed) {}

  // Well-framed HTTP with a body in which values, members or bytes are not what they should be.
  std::string MutatedBody();
  // A valid request whose bytes were changed, head and body alike.
  std::string MutatedHttp();
  // A valid one, often one that is answered with a stream.
  std::string Valid();
  std::string Noise();

  uint32_t Below(uint32_t limit) { return random_() % limit; }

 private:
  Json NastyValue();
  std::string NastyBytes();
  // The value with its countdown-th part, counted from the outside, replaced or taken away.
  Json Rewrite(const Json& value, int64_t* countdown);
  void ChangeBytes(std::string* bytes, uint32_t changes_max);

  std::mt19937 random_;
};

}  // namespace minke::testing

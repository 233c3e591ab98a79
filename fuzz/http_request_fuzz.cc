// The bytes of a connection: whatever they are, they read as the same requests in one piece and
// byte by byte, within the limits, or are refused with a status of their own.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "server/http_server_reader.h"

namespace {

using minke::HttpRequest;
using minke::HttpRequestReader;

constexpr minke::HttpReadLimits kFuzzLimits = {
    .header_bytes_max = 2000, .headers_max = 20, .body_bytes_max = 1000};

void CheckRequest(const HttpRequest& request) {
  CHECK(!request.method.empty() && request.path.substr(0, 1) == "/", request.path);
  CHECK(std::none_of(request.path.begin(), request.path.end(),
                     [](char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7F; }));
  CHECK(static_cast<int64_t>(request.headers.size()) <= kFuzzLimits.headers_max);
  CHECK(static_cast<int64_t>(request.body.size()) <= kFuzzLimits.body_bytes_max);
  for (const auto& header : request.headers) {
    CHECK(!header.first.empty() && header.second.find_first_of("\r\n") == std::string::npos,
          header.first);
  }
}

// All requests as one text, read in pieces of at most so many bytes.
std::string ReadAll(std::string_view bytes, size_t piece_bytes) {
  HttpRequestReader reader(kFuzzLimits);
  std::string text;
  while (!bytes.empty() && !reader.refused()) {
    bytes.remove_prefix(reader.Read(bytes.substr(0, piece_bytes)));
    if (!reader.done()) continue;
    const HttpRequest request = reader.Take();
    CheckRequest(request);
    text += request.method + ' ' + request.path + '?' + request.query + '\n';
    for (const auto& header : request.headers) text += header.first + ':' + header.second + '\n';
    text += request.body + '\n';
  }
  if (reader.refused()) {
    const int status = reader.refusal().status;
    CHECK(status >= 400 && status <= 505 && !reader.refusal().message.empty());
    return text + std::to_string(status);
  }
  return text + (reader.begun() ? "begun" : "");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const std::string whole = ReadAll(bytes, std::max<size_t>(size, 1));
  CHECK(ReadAll(bytes, 1) == whole, whole);
  return 0;
}

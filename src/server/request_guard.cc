#include "server/request_guard.h"

#include <algorithm>
#include <utility>

namespace minke {
namespace {

constexpr size_t kRequestIdBytesMax = 128;

bool IsWordCharacter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
         c == '_' || c == '.' || c == ':';
}

std::string Lower(std::string_view text) {
  std::string lower(text);
  for (char& c : lower) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return lower;
}

// "127.0.0.1" and all of 127.0.0.0/8: four numbers, the first 127.
bool IsLoopbackIpv4(std::string_view host) {
  if (!host.starts_with("127.")) return false;
  const auto is_part = [](char c) { return c == '.' || (c >= '0' && c <= '9'); };
  return std::all_of(host.begin(), host.end(), is_part) &&
         std::count(host.begin(), host.end(), '.') == 3;
}

}  // namespace

bool IsLoopbackAddress(std::string_view address) {
  return IsLoopbackIpv4(address) || address == "::1" || address == "localhost";
}

bool IsLoopbackHost(std::string_view host_header) {
  std::string host = Lower(host_header);
  if (host.starts_with('[')) {
    const size_t end = host.find(']');
    return end != std::string::npos && host.substr(0, end + 1) == "[::1]";
  }
  const size_t colon = host.find(':');
  if (colon != std::string::npos) host.resize(colon);
  return host == "localhost" || IsLoopbackIpv4(host);
}

PresentedKey KeyOf(const HttpRequest& request) {
  PresentedKey presented;
  const std::string_view authorization = request.Header("authorization");
  constexpr std::string_view kScheme = "bearer ";
  if (Lower(authorization.substr(0, kScheme.size())) == kScheme) {
    presented.key = authorization.substr(kScheme.size());
    return presented;
  }
  presented.key = request.Header("x-api-key");
  presented.malformed = presented.key.empty() && !authorization.empty();
  return presented;
}

HttpHeaders CorsHeaders(const HttpRequest& request, const std::vector<std::string>& origins) {
  const std::string_view origin = request.Header("origin");
  if (origin.empty()) return {};
  if (std::find(origins.begin(), origins.end(), origin) == origins.end()) return {};
  return {{"access-control-allow-origin", std::string(origin)},
          {"access-control-allow-methods", "GET, POST, OPTIONS"},
          {"access-control-allow-headers",
           "authorization, content-type, x-api-key, anthropic-version, anthropic-beta, "
           "x-request-id"},
          {"access-control-expose-headers", "x-request-id, retry-after"},
          {"vary", "origin"}};
}

std::string RequestIdOf(const HttpRequest& request, std::string fresh) {
  const std::string_view given = request.Header("x-request-id");
  if (given.empty() || given.size() > kRequestIdBytesMax) return fresh;
  if (!std::all_of(given.begin(), given.end(), IsWordCharacter)) return fresh;
  return std::string(given);
}

}  // namespace minke

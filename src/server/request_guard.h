// Who may ask: the Host header on loopback (DNS rebinding), cross-origin requests, API keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/http_server.h"

namespace minke {

// Whether the name in a Host header is one of this machine itself: localhost, 127.x.y.z, [::1].
bool IsLoopbackHost(std::string_view host_header);
// Whether an address to bind to is reachable from this machine only.
bool IsLoopbackAddress(std::string_view address);

// The value of an Authorization: Bearer header, or of x-api-key; empty if there is none.
// `malformed`: there is an Authorization header of another form.
struct PresentedKey {
  std::string key;
  bool malformed = false;
};
PresentedKey KeyOf(const HttpRequest& request);

// Headers that let a page of the origin read the answer, if it is on the list; otherwise none.
HttpHeaders CorsHeaders(const HttpRequest& request, const std::vector<std::string>& origins);

// The id by which a request is known in log and answer: the client's x-request-id if it is a short
// word, otherwise `fresh`.
std::string RequestIdOf(const HttpRequest& request, std::string fresh);

}  // namespace minke

// What to set in each client so that it asks this server.
#pragma once

#include <cstdint>
#include <string>

namespace minke {

// Text for people, in sections that begin with a client's name; what stands below a file's name can
// be copied into it. `url` without a slash at its end. `keys`: the server asks for one.
std::string ClientSettings(const std::string& url, int64_t context_tokens_max, bool keys);

}  // namespace minke

// What the commands of minke eval share.
#include "apps/eval_command.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>

namespace minke {
namespace {

template <typename Number>
bool ParseWhole(const std::string& text, Number* value) {
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, *value);
  return error == std::errc() && stop == end && !text.empty();
}

}  // namespace

Result<std::vector<std::pair<int64_t, double>>> ParseRequirements(
    const std::string& text, const std::vector<int64_t>& lengths) {
  std::vector<std::pair<int64_t, double>> requirements;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    const std::string part = text.substr(at, end - at);
    const size_t equals = part.find('=');
    int64_t length = 0;
    double share = 0;
    const bool valid = equals != std::string::npos && ParseWhole(part.substr(0, equals), &length) &&
                       ParseWhole(part.substr(equals + 1), &share) && share >= 0 && share <= 1;
    if (!valid) {
      return Fail(
          fmt::format("--require takes LENGTH=SHARE, separated by commas, with shares from "
                      "0 to 1, such as 1024=0.95; \"{}\" is not that.",
                      part));
    }
    if (std::find(lengths.begin(), lengths.end(), length) == lengths.end()) {
      return Fail(
          fmt::format("--require names the length {}, which --lengths does not have.", length));
    }
    for (const auto& known : requirements) {
      if (known.first == length) {
        return Fail(fmt::format("--require names the length {} twice.", length));
      }
    }
    requirements.emplace_back(length, share);
    at = end + 1;
  }
  return requirements;
}

}  // namespace minke

// Checks of flag values that CLI11 has no right ones for. Each returns what is wrong, or nothing.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace minke {

inline constexpr int64_t kTokensMax = int64_t{1} << 40;  // far above any context, against typos

// A number between low and high; not one of the values that are none, which CLI::Range lets by.
std::function<std::string(const std::string&)> NumberIn(double low, double high);
// A size such as 8GiB.
std::string CheckByteSize(const std::string& text);
// Any text but an empty one, such as an unset variable of a shell gives.
std::function<std::string(const std::string&)> NotEmpty(const std::string& what);

}  // namespace minke

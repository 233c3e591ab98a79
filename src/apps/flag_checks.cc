#include "apps/flag_checks.h"

#include <cstdlib>

#include <fmt/format.h>

#include "apps/cache_report.h"

namespace minke {

std::function<std::string(const std::string&)> NumberIn(double low, double high) {
  return [low, high](const std::string& text) {
    char* end = nullptr;
    const double value = std::strtod(text.c_str(), &end);
    const bool number = end != text.c_str() && *end == '\0' && value >= low && value <= high;
    return number ? std::string()
                  : fmt::format("must be a number from {:g} to {:g}, found \"{}\"", low, high,
                                text.substr(0, 40));
  };
}

std::string CheckByteSize(const std::string& text) {
  const Result<int64_t> bytes = ParseByteSize(text, "a size");
  return bytes ? std::string() : bytes.error().message;
}

std::function<std::string(const std::string&)> NotEmpty(const std::string& what) {
  return [what](const std::string& text) {
    return text.empty() ? fmt::format("must name {}, and is empty", what) : std::string();
  };
}

}  // namespace minke

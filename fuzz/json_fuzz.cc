// JSON from requests, configs and tokenizers: parsed in both modes, and whatever is accepted must
// be written and read back without change.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "core/json.h"

namespace {

using minke::DumpJson;
using minke::JsonStyle;
using minke::ParseJson;

void CheckErrorIsShort(const minke::Error& error) {
  constexpr size_t kErrorBytesMax = 400;
  CHECK(!error.message.empty() && error.message.size() <= kErrorBytesMax, error.message);
}

void RoundTrip(const minke::Json& json) {
  const std::string compact = DumpJson(json, JsonStyle::kCompact);
  for (const JsonStyle style : {JsonStyle::kCompact, JsonStyle::kPython, JsonStyle::kPretty}) {
    const auto again = ParseJson(DumpJson(json, style), "what was written");
    CHECK(again.has_value(), again.error().message);
    CHECK(DumpJson(*again, JsonStyle::kCompact) == compact, compact);
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  minke::JsonParseOptions merge;
  merge.reject_duplicate_keys = false;
  const auto strict = ParseJson(text, "input");
  const auto merged = ParseJson(text, "input", merge);
  // Refusing duplicates is the only difference between the modes.
  CHECK(!strict.has_value() || merged.has_value());
  if (!strict) CheckErrorIsShort(strict.error());
  if (merged) RoundTrip(*merged);
  return 0;
}

// JSON values with bounded parsing. The one place that includes nlohmann is json.cc; everybody
// else sees this value type, whose objects keep the order of their keys.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/result.h"

namespace minke {

inline constexpr int kJsonDepthLimit = 64;  // nesting levels; deeper input is an error

class Json;
using JsonArray = std::vector<Json>;
using JsonMember = std::pair<std::string, Json>;
using JsonObject = std::vector<JsonMember>;  // in input order; duplicate keys are an error

class Json {
 public:
  Json() = default;                                         // null
  Json(std::nullptr_t) {}                                   // NOLINT
  Json(bool value) : value_(value) {}                       // NOLINT
  Json(int value) : value_(static_cast<int64_t>(value)) {}  // NOLINT
  Json(int64_t value) : value_(value) {}                    // NOLINT
  Json(uint64_t value) : value_(value) {}                   // NOLINT
  Json(double value) : value_(value) {}                     // NOLINT
  Json(const char* value) : value_(std::string(value)) {}   // NOLINT
  Json(std::string value) : value_(std::move(value)) {}     // NOLINT
  Json(JsonArray value) : value_(std::move(value)) {}       // NOLINT
  Json(JsonObject value) : value_(std::move(value)) {}      // NOLINT

  // Out of line: inlined moves of the variant make g++ 12 warn of members that no path reads.
  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  bool is_bool() const { return std::holds_alternative<bool>(value_); }
  bool is_integer() const;  // int64 or uint64
  bool is_number() const;   // integer or double
  bool is_string() const { return std::holds_alternative<std::string>(value_); }
  bool is_array() const { return std::holds_alternative<JsonArray>(value_); }
  bool is_object() const { return std::holds_alternative<JsonObject>(value_); }

  // REQUIRES the matching is_...().
  bool as_bool() const { return std::get<bool>(value_); }
  int64_t as_int() const;  // REQUIRES is_integer() and within int64
  double as_double() const;
  const std::string& as_string() const { return std::get<std::string>(value_); }
  const JsonArray& as_array() const { return std::get<JsonArray>(value_); }
  const JsonObject& as_object() const { return std::get<JsonObject>(value_); }
  JsonArray& as_array() { return std::get<JsonArray>(value_); }
  JsonObject& as_object() { return std::get<JsonObject>(value_); }

  // The member of that name, or null if there is none or this is no object.
  const Json* Find(std::string_view key) const;
  // Appends a member (or replaces the one of that name). Makes an object of null.
  void Set(std::string key, Json value);

  // "null", "boolean", "integer", "number", "string", "array", "object": for error texts.
  const char* TypeName() const;

  const std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, JsonArray,
                     JsonObject>&
  value() const {
    return value_;
  }

 private:
  std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, JsonArray, JsonObject>
      value_;
};

// What a parse accepts beyond RFC 8259 or gives up.
struct JsonParseOptions {
  bool reject_duplicate_keys = true;  // otherwise the last one wins, in the place of the first
};

// `what` names the source in errors ("config.json", "line 3 of ..."). Nesting above
// kJsonDepthLimit, duplicate keys, trailing text and invalid UTF-8 are errors with byte offsets.
Result<Json> ParseJson(std::string_view text, std::string_view what,
                       const JsonParseOptions& options = {});

enum class JsonStyle {
  kCompact,  // {"a":1}
  kPython,   // {"a": 1, "b": 2}: json.dumps(..., ensure_ascii=False), floats as repr() gives them
  kPretty,   // two spaces of indentation
};
std::string DumpJson(const Json& value, JsonStyle style);

// Typed members with errors that name `what`, the key, expected and found.
Result<int64_t> JsonInt(const Json& object, std::string_view key, std::string_view what);
Result<double> JsonDouble(const Json& object, std::string_view key, std::string_view what);
Result<bool> JsonBool(const Json& object, std::string_view key, std::string_view what);
Result<std::string> JsonString(const Json& object, std::string_view key, std::string_view what);
Result<const JsonArray*> JsonList(const Json& object, std::string_view key, std::string_view what);
Result<const JsonObject*> JsonMembers(const Json& object, std::string_view key,
                                      std::string_view what);

}  // namespace minke

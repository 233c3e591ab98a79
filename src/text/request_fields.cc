#include "text/request_fields.h"

#include <fmt/format.h>

namespace minke {

namespace {

std::string Join(std::string_view path, std::string_view key) {
  return path.empty() ? std::string(key) : fmt::format("{}.{}", path, key);
}

}  // namespace

tl::unexpected<Error> RequestFields::RefuseText(std::string_view path, std::string_view expected,
                                                std::string_view found) const {
  return Fail(fmt::format("{}: {} must be {}, but it is {}.", what_, path, expected, found));
}

tl::unexpected<Error> RequestFields::Refuse(std::string_view path, std::string_view expected,
                                            const Json& found) const {
  return RefuseText(path, expected, fmt::format("of type {}", found.TypeName()));
}

const Json* RequestFields::Present(const Json& object, std::string_view key) {
  const Json* value = object.Find(key);
  return value == nullptr || value->is_null() ? nullptr : value;
}

Status RequestFields::ReadText(const Json& object, std::string_view path, std::string_view key,
                               std::string* text) const {
  const Json* value = Present(object, key);
  if (value == nullptr) return {};
  if (!value->is_string()) return Refuse(Join(path, key), "a string", *value);
  *text = value->as_string();
  return {};
}

Status RequestFields::ReadFlag(const Json& object, std::string_view path, std::string_view key,
                               bool* flag) const {
  const Json* value = Present(object, key);
  if (value == nullptr) return {};
  if (!value->is_bool()) return Refuse(Join(path, key), "a boolean", *value);
  *flag = value->as_bool();
  return {};
}

std::string RequestFields::Quote(std::string_view text) {
  constexpr size_t kShownBytesMax = 60;
  if (text.size() > kShownBytesMax) return fmt::format("a text of {} bytes", text.size());
  return fmt::format("\"{}\"", text);
}

}  // namespace minke

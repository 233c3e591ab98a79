// The members of one JSON object of a plan, read by name, with errors that name file, place, what
// is accepted and what was found.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/json.h"
#include "core/result.h"

namespace minke::train {

// Members of one object, by name; what nobody asked for is an unknown key at the end.
class KeyReader {
 public:
  static Result<KeyReader> Open(const Json& value, std::string_view what, std::string place) {
    if (!value.is_object()) {
      return Fail(fmt::format("{}: {} must be an object, found {}.", what,
                              place.empty() ? "the file" : place, value.TypeName()));
    }
    return KeyReader(value, what, std::move(place));
  }

  bool Has(std::string_view key) const { return object_->Find(key) != nullptr; }
  std::string Name(std::string_view key) const {
    return place_.empty() ? std::string(key) : fmt::format("{}.{}", place_, key);
  }
  const std::string& what() const { return what_; }

  const Json* Take(std::string_view key) {
    known_.emplace_back(key);
    return object_->Find(key);
  }

  Status Number(std::string_view key, double low, double high, double* value) {
    const Json* found = Take(key);
    if (found == nullptr) return {};
    if (!found->is_number() || !(found->as_double() >= low && found->as_double() <= high)) {
      return Fail(fmt::format("{}: {} must be a number from {} to {}, found {}.", what_, Name(key),
                              low, high, DumpJson(*found, JsonStyle::kCompact)));
    }
    *value = found->as_double();
    return {};
  }

  Status Integer(std::string_view key, int64_t low, int64_t high, int64_t* value) {
    const Json* found = Take(key);
    if (found == nullptr) return {};
    const bool fits = found->is_integer() && found->as_double() >= static_cast<double>(low) &&
                      found->as_double() <= static_cast<double>(high);
    if (!fits) {
      return Fail(fmt::format("{}: {} must be an integer from {} to {}, found {}.", what_,
                              Name(key), low, high, DumpJson(*found, JsonStyle::kCompact)));
    }
    *value = found->as_int();
    return {};
  }

  Status Boolean(std::string_view key, bool* value) {
    const Json* found = Take(key);
    if (found == nullptr) return {};
    if (!found->is_bool()) {
      return Fail(fmt::format("{}: {} must be true or false, found {}.", what_, Name(key),
                              DumpJson(*found, JsonStyle::kCompact)));
    }
    *value = found->as_bool();
    return {};
  }

  // One of `words`; *choice is its position.
  Status Word(std::string_view key, const std::vector<std::string>& words, size_t* choice) {
    const Json* found = Take(key);
    if (found == nullptr) return {};
    const auto at = found->is_string() ? std::find(words.begin(), words.end(), found->as_string())
                                       : words.end();
    if (at == words.end()) {
      return Fail(fmt::format("{}: {} must be one of \"{}\", found {}.", what_, Name(key),
                              fmt::join(words, "\", \""), DumpJson(*found, JsonStyle::kCompact)));
    }
    *choice = static_cast<size_t>(at - words.begin());
    return {};
  }

  // Two integers [low, high] in order.
  Status Range(std::string_view key, int64_t low, int64_t high, int64_t* first, int64_t* last) {
    const Json* found = Take(key);
    if (found == nullptr) return {};
    bool fits = found->is_array() && found->as_array().size() == 2;
    for (size_t i = 0; fits && i < 2; ++i) {
      const Json& end = found->as_array()[i];
      fits = end.is_integer() && end.as_double() >= static_cast<double>(low) &&
             end.as_double() <= static_cast<double>(high);
    }
    if (!fits || found->as_array()[0].as_int() > found->as_array()[1].as_int()) {
      return Fail(fmt::format("{}: {} must be [least, most] with integers from {} to {}, found {}.",
                              what_, Name(key), low, high, DumpJson(*found, JsonStyle::kCompact)));
    }
    *first = found->as_array()[0].as_int();
    *last = found->as_array()[1].as_int();
    return {};
  }

  // REQUIRES: every known key was asked for.
  Status RefuseUnknown() const {
    for (const auto& [key, value] : object_->as_object()) {
      if (std::find(known_.begin(), known_.end(), key) != known_.end()) continue;
      return Fail(fmt::format("{}: {} is not a key that is known here; known are {}.", what_,
                              Name(key), fmt::join(known_, ", ")));
    }
    return {};
  }

 private:
  KeyReader(const Json& object, std::string_view what, std::string place)
      : object_(&object), what_(what), place_(std::move(place)) {}

  const Json* object_;
  std::string what_;
  std::string place_;
  std::vector<std::string> known_;
};

}  // namespace minke::train

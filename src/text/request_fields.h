// Members of request JSON with errors that name their place, e.g. messages[3].content.
#pragma once

#include <string>
#include <string_view>

#include "core/json.h"
#include "core/result.h"

namespace minke {

// Reads for one source, `what`, which begins every error. `path` is the place of the object.
class RequestFields {
 public:
  explicit RequestFields(std::string_view what) : what_(what) {}

  std::string_view what() const { return what_; }

  // "WHAT: PATH must be EXPECTED, but it is FOUND."
  tl::unexpected<Error> RefuseText(std::string_view path, std::string_view expected,
                                   std::string_view found) const;
  tl::unexpected<Error> Refuse(std::string_view path, std::string_view expected,
                               const Json& found) const;

  // A member that is there and not null; nullptr otherwise.
  static const Json* Present(const Json& object, std::string_view key);
  // Members that may be missing or null, which leaves the value as it is.
  Status ReadText(const Json& object, std::string_view path, std::string_view key,
                  std::string* text) const;
  Status ReadFlag(const Json& object, std::string_view path, std::string_view key,
                  bool* flag) const;

  // A short text in quotes, a long one by its size: errors are logged, requests are private.
  static std::string Quote(std::string_view text);

 private:
  std::string_view what_;
};

}  // namespace minke

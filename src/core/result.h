// Errors as values. Input from outside (files, requests, flags) yields Result<T>; a broken
// invariant of our own is a CHECK, which stays on in release builds (CONVENTIONS.md 13).
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include <tl/expected.hpp>

namespace minke {

enum class ErrorCode {
  kInvalidInput,  // the caller's bytes, fields or flags are wrong
  kNotFound,      // a named file, tensor or id does not exist
  kLimit,         // a named limit was exceeded
  kIo,            // the operating system refused a read, write or mapping
  kCancelled,     // the caller asked to stop
  kModel,         // the model computes what is no number: no fault of the caller
};

// `message` is a whole sentence for a person: it names the file, field or flag, what was
// expected, what was found, and the way out where there is one.
struct Error {
  ErrorCode code = ErrorCode::kInvalidInput;
  std::string message;
};

template <typename T>
using Result = tl::expected<T, Error>;
using Status = tl::expected<void, Error>;

inline tl::unexpected<Error> Fail(ErrorCode code, std::string message) {
  return tl::unexpected<Error>(Error{code, std::move(message)});
}
inline tl::unexpected<Error> Fail(std::string message) {
  return Fail(ErrorCode::kInvalidInput, std::move(message));
}

// Prints "file:line: CHECK failed: condition: detail" to stderr and aborts.
[[noreturn]] void CheckFailed(const char* file, int line, const char* condition,
                              std::string_view detail = {});

}  // namespace minke

// auto value = TRY(MakeResult());   returns the error from the enclosing function.
#define TRY(expression)                                                      \
  ({                                                                         \
    auto try_result_ = (expression);                                         \
    if (!try_result_) return tl::unexpected(std::move(try_result_).error()); \
    std::move(try_result_).value();                                          \
  })

// TRY_STATUS(DoSomething());   the same for a Status.
#define TRY_STATUS(expression)                                               \
  do {                                                                       \
    auto try_status_ = (expression);                                         \
    if (!try_status_) return tl::unexpected(std::move(try_status_).error()); \
  } while (false)

#define CHECK(condition, ...)                                                          \
  do {                                                                                 \
    if (!(condition)) [[unlikely]]                                                     \
      ::minke::CheckFailed(__FILE__, __LINE__, #condition __VA_OPT__(, ) __VA_ARGS__); \
  } while (false)

#ifdef NDEBUG
#define DCHECK(condition) \
  do {                    \
  } while (false)
#else
#define DCHECK(condition) CHECK(condition)
#endif

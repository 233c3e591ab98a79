#include "core/thread_start.h"

#include <exception>
#include <utility>

#include <fmt/format.h>

namespace minke {

Result<std::jthread> StartThread(std::string_view purpose,
                                 std::function<void(const std::stop_token&)> body) {
  try {
    return std::jthread(std::move(body));
  } catch (const std::exception& error) {
    // kLimit and not kIo: no disk and no network is to blame.
    return Fail(ErrorCode::kLimit,
                fmt::format("The system starts no thread for {}: {}. Raise the limit of processes "
                            "(ulimit -u, or the container's limit of pids) or of address space "
                            "(ulimit -v), or end other programs.",
                            purpose, error.what()));
  }
}

}  // namespace minke

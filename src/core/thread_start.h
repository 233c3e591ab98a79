// Threads of their own, beside those of a ThreadPool: for what waits instead of computing.
#pragma once

#include <functional>
#include <stop_token>
#include <string_view>
#include <thread>

#include "core/result.h"

namespace minke {

// Runs `body`, which throws nothing, in a thread of its own. `purpose` names what the thread is for
// ("reading weights"): the system refuses threads under a limit of processes or of memory, and the
// error says for what it did and what helps.
Result<std::jthread> StartThread(std::string_view purpose,
                                 std::function<void(const std::stop_token&)> body);

}  // namespace minke

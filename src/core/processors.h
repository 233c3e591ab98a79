// The processors that this process may use and where they are, for threads that stay on one each.
#pragma once

#include <pthread.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace minke {

inline constexpr int kProcessorsMax = 8192;  // of Linux on x86-64

struct Processor {
  int id = 0;
  int node = 0;  // of memory that is near
  int core = 0;  // the lowest id of those that share a core with it
};

// Ids of the processors that the calling thread may run on, ascending. Empty if the system does not
// say.
std::vector<int> AllowedProcessors();

// Lists as Linux writes them, such as "0-3,8": ascending ids. Empty for what is no such list, and
// beyond kProcessorsMax.
std::vector<int> ParseProcessorList(std::string_view text);

// Nodes and cores of the processors. What the system does not say is node 0 and a core each.
std::vector<Processor> LocateProcessors(std::span<const int> ids,
                                        const std::string& system_dir = "/sys/devices/system");

// A processor for each thread: the same number from every node as far as they go, for all nodes
// together have the most bandwidth, and one of every core before a second of any. Threads of a node
// follow each other. Empty if there are fewer processors than threads.
std::vector<int> PlaceThreads(std::span<const Processor> processors, int threads);

// From now on the thread runs on these processors only. Errors: the system's.
Status BindThread(pthread_t thread, std::span<const int> processors);

}  // namespace minke

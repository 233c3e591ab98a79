// How much memory can still be taken.
#pragma once

#include <cstdint>
#include <string>

namespace minke {

// Bytes that can still be taken without pushing others out: what the system calls available, or
// what the limits of this process's control groups (version 2) leave where that is less. Memory of
// the page cache counts as available. 0 where the system does not say. `root`: where /proc and
// /sys are.
int64_t AvailableMemoryBytes(const std::string& root = "");

}  // namespace minke

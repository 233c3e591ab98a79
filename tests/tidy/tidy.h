// The rules of CONVENTIONS.md that a machine can hold, as functions from a file to findings. Pure:
// tidy_test.cc feeds them the repository, and planted bad lines to show that each rule fires.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minke::tidy {

struct Finding {
  std::string file;    // relative to the root of the repository
  int line = 0;        // 1-based; 0 for the file as a whole
  std::string rule;    // "include-table", "banned-call", ...
  std::string detail;  // what was found, and what to do instead
};

// Every rule that applies to the file, by its path: C++ rules for .h and .cc, the size limits for
// code and scripts, left-over marks and machine paths for every text.
std::vector<Finding> CheckFile(std::string_view path, std::string_view text);

// Every src/**/*.cc must be listed in cmake/sources.cmake. `sources`: paths below src/.
std::vector<Finding> CheckSourceLists(const std::vector<std::string>& sources,
                                      std::string_view cmake_text);

// The same length and lines as `text`, with comments and the inside of literals blanked.
std::string CodeOnly(std::string_view text);

}  // namespace minke::tidy

// The bytes of a file of the repository.
#pragma once

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

namespace minke::tidy {

// Nothing where it cannot be read.
inline std::string ReadText(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

}  // namespace minke::tidy

#include "apps/train/output_files.h"

#include <filesystem>
#include <span>
#include <system_error>

#include <fmt/format.h>

#include "core/file.h"

namespace minke::train {

Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return {};
  return Fail(ErrorCode::kIo, fmt::format("Cannot make {}: {}.", path, error.message()));
}

Status WriteText(const std::string& path, std::string_view text) {
  return WriteFile(path, std::as_bytes(std::span(text.data(), text.size())));
}

}  // namespace minke::train

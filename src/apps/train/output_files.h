// Folders and small text files that the commands of minke-train write.
#pragma once

#include <string>
#include <string_view>

#include "core/result.h"

namespace minke::train {

// The folder and those above it, where they are missing.
Status MakeFolder(const std::string& path);
// The whole file, or nothing of it.
Status WriteText(const std::string& path, std::string_view text);

}  // namespace minke::train

// Which paragraphs a small model learns from.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace minke::train {

// The paragraph with plain quotation marks and single blanks, or nothing where it is no running
// English text: too short or long, no whole sentence, less than 85 % letters and blanks, tables,
// code, other languages or characters outside ASCII.
std::optional<std::string> CleanParagraph(std::string_view paragraph);

}  // namespace minke::train

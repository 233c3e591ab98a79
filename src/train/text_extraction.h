// Documentation as it is packaged to its paragraphs.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace minke::train {

enum class Markup {
  kHtml,        // and XML vocabularies whose names say what a block is
  kPod,         // of Perl
  kTroff,       // manual pages
  kDictionary,  // dictd: entries of indented text
  kWml,         // of the Battle for Wesnoth: translatable strings
};

// The paragraphs of a file in order, markup and listings removed. Any bytes are accepted.
std::vector<std::string> ExtractParagraphs(std::string_view text, Markup markup);

}  // namespace minke::train

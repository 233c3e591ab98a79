// The text that a small model learns from: documentation of Debian packages with free licences,
// cleaned to paragraphs (docs/nano.md, "Text").
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "train/text_extraction.h"

namespace minke::train {

// Files of a corpus folder.
inline constexpr std::string_view kCorpusTextFile = "train.txt";
inline constexpr std::string_view kHeldOutTextFile = "heldout.txt";
inline constexpr std::string_view kEvalTextFile = "eval_text.txt";  // a part of the held-out text
inline constexpr std::string_view kManifestFile = "manifest.json";

inline constexpr uint64_t kCorpusFileBytesMax = uint64_t{64} << 20;  // larger files are left out
inline constexpr uint64_t kPackageTextBytesMax = uint64_t{5} << 20;  // no package outweighs others
inline constexpr uint64_t kEvalTextBytesMax = uint64_t{256} << 10;
inline constexpr double kHeldOutShare = 0.03;  // of the documents

// A package and what of it is text.
struct CorpusSource {
  std::string_view package;
  std::string_view licence;    // of the text, as the package's copyright file says
  std::string_view path_part;  // only files whose path contains it
  std::string_view suffix;     // and ends with it
  Markup markup = Markup::kHtml;
};
std::span<const CorpusSource> CorpusSources();

struct CorpusReport {
  int64_t documents = 0;
  int64_t training_bytes = 0;
  int64_t held_out_bytes = 0;
  int64_t duplicate_paragraphs = 0;
};

// Reads `packages_dir`/PACKAGE/..., the unpacked packages (compressed files unpacked too), with
// their versions in `packages_dir`/PACKAGE.version, and writes the files above to `out_dir`, which
// must exist. The same packages give the same bytes. Whole documents are held out; a paragraph that
// occurred before is left out. An error where no package is there; single ones may be missing, and
// the manifest says so. `progress`: called with the name of each package.
Result<CorpusReport> MakeCorpus(const std::string& packages_dir, const std::string& out_dir,
                                const std::function<void(std::string_view)>& progress);

}  // namespace minke::train

#include "train/corpus.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <filesystem>
#include <optional>
#include <unordered_set>
#include <utility>

#include "core/file.h"
#include "core/json.h"
#include "recall/filler.h"
#include "train/ascii_text.h"
#include "train/text_cleaning.h"

namespace minke::train {

namespace {

namespace fs = std::filesystem;

constexpr std::string_view kGpl2 = "GPL-2+";
constexpr std::string_view kPublicDomain = "public domain";

constexpr std::array kSources = {
    CorpusSource{"apache2-doc", "Apache-2.0", "/manual/en/", ".html", Markup::kHtml},
    CorpusSource{"aptitude-doc-en", kGpl2, "/html/en/", ".html", Markup::kHtml},
    CorpusSource{"bash-doc", "GFDL-1.3+, no invariant sections", "/doc/", ".html", Markup::kHtml},
    CorpusSource{"debian-faq", kGpl2, "/FAQ/", ".en.html", Markup::kHtml},
    CorpusSource{"debian-handbook", "GPL-2+ or CC-BY-SA-3.0+", "/en-US/", ".html", Markup::kHtml},
    CorpusSource{"debian-history", kGpl2, "/docs/", ".en.html", Markup::kHtml},
    CorpusSource{"debian-policy", kGpl2, "/doc/", ".html", Markup::kHtml},
    CorpusSource{"debian-reference-en", kGpl2, "/debian-reference/", ".en.html", Markup::kHtml},
    CorpusSource{"developers-reference", kGpl2, "/developers-reference/", ".html", Markup::kHtml},
    CorpusSource{"dict-devil", kPublicDomain, "/dictd/", ".dict", Markup::kDictionary},
    CorpusSource{"dict-foldoc", "GFDL-1.1+, no invariant sections", "/dictd/", ".dict",
                 Markup::kDictionary},
    CorpusSource{"dict-jargon", kPublicDomain, "/dictd/", ".dict", Markup::kDictionary},
    CorpusSource{"exim4-doc-html", kGpl2, "/doc/", ".html", Markup::kHtml},
    CorpusSource{"git-doc", "GPL-2", "/doc/git-doc/", ".html", Markup::kHtml},
    CorpusSource{"gnome-user-docs", "CC-BY-SA-3.0", "/help/C/", ".page", Markup::kHtml},
    CorpusSource{"installation-guide-amd64", kGpl2, "/en/", ".html", Markup::kHtml},
    CorpusSource{"linux-doc-6.1", "GPL-2", "/html/", ".html", Markup::kHtml},
    CorpusSource{"manpages", "GPL-2+, BSD and Linux-man-pages-copyleft", "/man/man", "",
                 Markup::kTroff},
    CorpusSource{"octave-doc", "GPL-3+", "/doc/", ".html", Markup::kHtml},
    CorpusSource{"perl-doc", "Artistic or GPL-1+", "/pod/", ".pod", Markup::kPod},
    CorpusSource{"postgresql-doc-15", "PostgreSQL", "/html/", ".html", Markup::kHtml},
    CorpusSource{"python3.11-doc", "PSF-2", "/html/", ".html", Markup::kHtml},
    CorpusSource{"wesnoth-1.16-did", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-dm", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-dw", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-ei", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-httt", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-l", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-low", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-nr", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-sof", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-sota", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-sotbe", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-thot", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-trow", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-tsg", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-ttb", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
    CorpusSource{"wesnoth-1.16-utbs", kGpl2, "/campaigns/", ".cfg", Markup::kWml},
};

// FNV-1a.
uint64_t HashText(std::string_view text) {
  uint64_t hash = 0xCBF29CE484222325;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001B3;
  return hash;
}

// Letters alone, so that paragraphs that differ in numbers, case or spacing count as one.
uint64_t ParagraphHash(std::string_view paragraph) {
  std::string letters;
  for (const char c : paragraph) {
    if (IsLetter(c)) letters += Lower(c);
  }
  return HashText(letters);
}

Result<std::vector<std::string>> SourceFiles(const std::string& root, const CorpusSource& source) {
  std::vector<std::string> files;
  std::error_code error;
  for (fs::recursive_directory_iterator it(root, error), end; it != end && !error;
       it.increment(error)) {
    if (it->is_symlink(error) || !it->is_regular_file(error)) continue;
    const std::string path = it->path().string().substr(root.size());
    if (path.find(source.path_part) == std::string::npos || !EndsWith(path, source.suffix))
      continue;
    files.push_back(path);
  }
  if (error) {
    return Fail(ErrorCode::kIo,
                fmt::format("The folder {} could not be read: {}.", root, error.message()));
  }
  std::sort(files.begin(), files.end());
  return files;
}

// A dictionary is one file of many entries: each is a document, found by its head word at the left
// edge. Other files are one document.
std::vector<std::string_view> Documents(std::string_view text, Markup markup) {
  if (markup != Markup::kDictionary) return {text};
  std::vector<std::string_view> documents;
  size_t begin = 0;
  for (size_t at = text.find("\n\n"); at != std::string_view::npos;
       at = text.find("\n\n", at + 1)) {
    const size_t next = at + 2;
    if (next >= text.size() || text[next] == ' ' || text[next] == '\n') continue;
    documents.push_back(text.substr(begin, next - begin));
    begin = next;
  }
  documents.push_back(text.substr(begin));
  return documents;
}

class CorpusMaker {
 public:
  Status AddPackage(const std::string& root, const CorpusSource& source) {
    package_bytes_ = 0;
    const std::vector<std::string> files = TRY(SourceFiles(root, source));
    for (const std::string& file : files) {
      const Result<std::string> text = ReadFile(root + file, kCorpusFileBytesMax);
      if (!text && text.error().code == ErrorCode::kLimit) continue;
      if (!text) return tl::unexpected(text.error());
      size_t index = 0;
      for (const std::string_view document : Documents(*text, source.markup)) {
        AddDocument(document, source, fmt::format("{}{}:{}", source.package, file, index++));
      }
    }
    return {};
  }

  CorpusReport Report() const {
    CorpusReport report = report_;
    report.training_bytes = static_cast<int64_t>(training_.size());
    report.held_out_bytes = static_cast<int64_t>(held_out_.size());
    return report;
  }
  uint64_t package_bytes() const { return package_bytes_; }
  const std::string& training() const { return training_; }
  const std::string& held_out() const { return held_out_; }
  const std::string& eval() const { return eval_; }

 private:
  void AddDocument(std::string_view document, const CorpusSource& source, const std::string& name) {
    std::string text;
    for (const std::string& paragraph : ExtractParagraphs(document, source.markup)) {
      std::optional<std::string> clean = CleanParagraph(paragraph);
      if (!clean.has_value()) continue;
      if (!seen_.insert(ParagraphHash(*clean)).second) {
        ++report_.duplicate_paragraphs;
        continue;
      }
      text += *clean + "\n\n";
    }
    if (text.empty() || package_bytes_ + text.size() > kPackageTextBytesMax) return;
    ++report_.documents;
    package_bytes_ += text.size();
    // By name, so that adding a package moves no document of another one.
    constexpr uint64_t kParts = 10'000;
    const uint64_t part = HashText(name) % kParts;
    const bool held_out = part < static_cast<uint64_t>(kHeldOutShare * kParts);
    std::string& out = held_out ? held_out_ : training_;
    out += text + std::string(kDocumentBorder) + "\n\n";
    // A quarter of what is held out, so that every package has its part in a small file.
    constexpr uint64_t kEvalParts = 4;
    if (held_out && part % kEvalParts == 0 && eval_.size() + text.size() < kEvalTextBytesMax) {
      eval_ += text + std::string(kDocumentBorder) + "\n\n";
    }
  }

  std::string training_;
  std::string held_out_;
  std::string eval_;
  std::unordered_set<uint64_t> seen_;
  uint64_t package_bytes_ = 0;
  CorpusReport report_;
};

Status WriteText(const std::string& dir, std::string_view name, const std::string& text) {
  return WriteFile(JoinPath(dir, std::string(name)), std::as_bytes(std::span(text)));
}

}  // namespace

std::span<const CorpusSource> CorpusSources() {
  return kSources;
}

Result<CorpusReport> MakeCorpus(const std::string& packages_dir, const std::string& out_dir,
                                const std::function<void(std::string_view)>& progress) {
  constexpr uint64_t kVersionBytesMax = 256;
  CorpusMaker maker;
  JsonArray packages;
  bool any = false;
  for (const CorpusSource& source : kSources) {
    const std::string root = JoinPath(packages_dir, std::string(source.package));
    std::error_code error;
    const bool present = fs::is_directory(root, error);
    any = any || present;
    if (present) progress(source.package);
    if (present) TRY_STATUS(maker.AddPackage(root, source));
    Result<std::string> version = ReadFile(root + ".version", kVersionBytesMax);
    if (version && !version->empty() && version->back() == '\n') version->pop_back();
    packages.push_back(Json(
        JsonObject{{"package", std::string(source.package)},
                   {"version", version && present ? Json(*version) : Json()},
                   {"licence", std::string(source.licence)},
                   {"bytes", present ? static_cast<int64_t>(maker.package_bytes()) : int64_t{0}}}));
  }
  if (!any) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} has none of the packages of the corpus; tools/make_corpus.sh "
                            "fetches and unpacks them.",
                            packages_dir));
  }
  const CorpusReport report = maker.Report();
  TRY_STATUS(WriteText(out_dir, kCorpusTextFile, maker.training()));
  TRY_STATUS(WriteText(out_dir, kHeldOutTextFile, maker.held_out()));
  TRY_STATUS(WriteText(out_dir, kEvalTextFile, maker.eval()));
  const Json manifest(JsonObject{{"packages", std::move(packages)},
                                 {"documents", report.documents},
                                 {"training_bytes", report.training_bytes},
                                 {"held_out_bytes", report.held_out_bytes},
                                 {"held_out_share", kHeldOutShare}});
  TRY_STATUS(WriteText(out_dir, kManifestFile, DumpJson(manifest, JsonStyle::kPretty) + "\n"));
  return report;
}

}  // namespace minke::train

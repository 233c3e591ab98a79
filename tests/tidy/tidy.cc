#include "tests/tidy/tidy.h"

#include <algorithm>
#include <array>
#include <cctype>

namespace minke::tidy {
namespace {

constexpr int kFileLinesMax = 500;     // CONVENTIONS.md 5
constexpr int kFunctionLinesMax = 70;  // CONVENTIONS.md 5
constexpr int kColumnsMax = 100;       // CONVENTIONS.md 5
constexpr int kReadmeLinesMax = 199;   // one sitting

// The include table of CONVENTIONS.md 8: a folder of src and the folders it may include.
struct IncludeRow {
  std::string_view folder;
  std::string_view allowed;  // blank-separated, with blanks at both ends
};
constexpr std::array<IncludeRow, 13> kIncludeTable = {{
    {"core", " core "},
    {"kernels", " core kernels "},
    {"checkpoint", " core checkpoint "},
    {"text", " core text "},
    {"recall", " core text recall "},
    {"model", " core kernels checkpoint model "},
    {"planner", " core checkpoint model planner "},
    {"prefix_cache", " core prefix_cache "},
    {"simulator", " core prefix_cache simulator "},
    {"engine", " core kernels checkpoint model text prefix_cache engine "},
    {"train", " core kernels checkpoint text model recall train "},
    {"server", " core text engine server "},
    {"bench", " core kernels checkpoint model text recall engine bench "},
}};

// Third-party headers and the files through which they enter (CONVENTIONS.md 9).
struct WrapperRow {
  std::string_view header;  // prefix of what stands between < and >
  std::string_view files;   // prefixes of the only paths that may, separated by blanks
};
constexpr std::array<WrapperRow, 11> kWrappers = {{
    {"nlohmann/", "src/core/json.cc"},
    {"CLI/", "src/apps/"},
    {"pcre2", "src/text/tokenizer"},
    {"utf8proc", "src/text/"},
    {"hwy/", "src/kernels/"},
    {"openssl/", "src/prefix_cache/block_key.cc src/server/api_keys.cc"},
    {"sqlite3", "src/prefix_cache/store_index src/server/ledger"},
    {"boost/", "src/server/http_server"},
    {"xxhash", "src/prefix_cache/record_format.cc src/train/digest.cc"},
    {"torch/", "src/train/"},
    {"cblas.h", "src/train/gemm.cc"},
}};

struct BannedRow {
  std::string_view word;
  bool call;  // only when a parenthesis follows
  std::string_view instead;
};
// Below src/apps nothing prints or ends the process (CONVENTIONS.md 14).
constexpr std::array<BannedRow, 16> kBannedBelowApps = {{
    {"printf", true, "return a Result"},
    {"fprintf", true, "return a Result"},
    {"puts", true, "return a Result"},
    {"fputs", true, "return a Result"},
    {"putchar", true, "return a Result"},
    {"perror", true, "return a Result"},
    {"std::cout", false, "return the text"},
    {"std::cerr", false, "return a Result"},
    {"std::clog", false, "return a Result"},
    {"fmt::print", true, "return the text"},
    {"exit", true, "return a Result"},
    {"_exit", true, "return a Result"},
    {"abort", true, "use CHECK()"},
    {"terminate", true, "use CHECK()"},
    {"assert", true, "use CHECK() or DCHECK()"},
    {"random_device", false, "take a seed; only a program may choose one"},
}};
// Memory has owners (CONVENTIONS.md 16, 17).
constexpr std::array<BannedRow, 7> kBannedMemory = {{
    {"new", false, "use make_unique, a container or AlignedBytes"},
    {"delete", false, "use unique_ptr"},
    {"malloc", true, "use AlignedBytes"},
    {"calloc", true, "use AlignedBytes"},
    {"realloc", true, "use a vector"},
    {"aligned_alloc", true, "use AlignedBytes"},
    {"free", true, "use unique_ptr with a deleter"},
}};
// An answer of the server is made by one thread and sent by another: both hold it.
constexpr BannedRow kBannedOutsideServer = {"shared_ptr", false, "name one owner"};
// Missing on one of the two compilers, or against determinism (CONVENTIONS.md 4, 11, 12, 20).
constexpr std::array<BannedRow, 10> kBannedEverywhere = {{
    {"std::format", false, "use fmt::format"},
    {"std::expected", false, "use Result"},
    {"std::views", false, "clang 14 lacks it"},
    {"std::ranges::views", false, "clang 14 lacks it"},
    {"std::source_location", false, "clang 14 lacks it"},
    {"std::move_only_function", false, "both compilers lack it"},
    {"thread_local", false, "pass state explicitly"},
    {"std::async", false, "use ThreadPool"},
    {"rand", true, "use a seeded generator"},
    {"srand", true, "use a seeded generator"},
}};

bool IsWordChar(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_';
}

bool StartsWith(std::string_view text, std::string_view prefix) {
  return text.substr(0, prefix.size()) == prefix;
}

bool EndsWith(std::string_view text, std::string_view suffix) {
  return text.size() >= suffix.size() && text.substr(text.size() - suffix.size()) == suffix;
}

// prefixes: separated by single blanks.
bool StartsWithOneOf(std::string_view text, std::string_view prefixes) {
  while (true) {
    const size_t end = prefixes.find(' ');
    if (StartsWith(text, prefixes.substr(0, end))) return true;
    if (end == std::string_view::npos) return false;
    prefixes.remove_prefix(end + 1);
  }
}

std::string_view Trim(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) {
    text.remove_prefix(1);
  }
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) {
    text.remove_suffix(1);
  }
  return text;
}

std::vector<std::string_view> Lines(std::string_view text) {
  std::vector<std::string_view> lines;
  while (!text.empty()) {
    const size_t end = text.find('\n');
    lines.push_back(text.substr(0, end));
    if (end == std::string_view::npos) break;
    text.remove_prefix(end + 1);
  }
  return lines;
}

// Position of `word` as a whole word in `line` from `from` on, or npos.
size_t FindWord(std::string_view line, std::string_view word, size_t from = 0) {
  for (size_t at = line.find(word, from); at != std::string_view::npos;
       at = line.find(word, at + 1)) {
    const bool starts = at == 0 || (!IsWordChar(line[at - 1]) && line[at - 1] != '.' &&
                                    (at < 2 || line.substr(at - 2, 2) != "->"));
    const size_t end = at + word.size();
    if (starts && (end == line.size() || !IsWordChar(line[end]))) return at;
  }
  return std::string_view::npos;
}

bool Matches(std::string_view line, const BannedRow& row) {
  for (size_t at = FindWord(line, row.word); at != std::string_view::npos;
       at = FindWord(line, row.word, at + 1)) {
    const std::string_view rest = Trim(line.substr(at + row.word.size()));
    const std::string_view before = Trim(line.substr(0, at));
    if (row.word == "delete" && EndsWith(before, "=")) continue;  // a deleted function
    // make_unique cannot call a private constructor, so its owner may be named on the same line.
    const bool owned = EndsWith(before, ">(") && before.find("unique_ptr<") != before.npos;
    if (row.word == "new" && owned) continue;
    if (!row.call || StartsWith(rest, "(")) return true;
  }
  return false;
}

int Columns(std::string_view line) {
  int columns = 0;
  for (const char c : line) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80 ? 1 : 0;
  return columns;
}

bool IsCpp(std::string_view path) {
  return EndsWith(path, ".h") || EndsWith(path, ".cc");
}

bool IsScript(std::string_view path) {
  return EndsWith(path, ".sh") || EndsWith(path, ".cmake") || EndsWith(path, "CMakeLists.txt") ||
         EndsWith(path, ".mjs") || path == "quickstart" || path == "test" || path == ".ci/run";
}

bool IsData(std::string_view path) {
  return (StartsWith(path, "tests/golden/") && !EndsWith(path, ".md")) ||
         StartsWith(path, "fuzz/corpus/") || StartsWith(path, "models/");
}

// Collects findings of one file.
class Checker {
 public:
  Checker(std::string_view path, std::string_view text)
      : path_(path), lines_(Lines(text)), code_(CodeOnly(text)), code_lines_(Lines(code_)) {}

  std::vector<Finding> Run() {
    if (!IsData(path_)) CheckMarksAndPaths();
    if (path_ == "README.md" && lines_.size() > kReadmeLinesMax) {
      Add(0, "readme-length",
          std::to_string(lines_.size()) + " lines, at most " + std::to_string(kReadmeLinesMax) +
              "; move detail to docs/");
    }
    if (IsCpp(path_) || IsScript(path_)) CheckSizes();
    if (IsCpp(path_)) CheckCpp();
    return std::move(findings_);
  }

 private:
  void Add(size_t line, std::string_view rule, std::string detail) {
    findings_.push_back(
        {std::string(path_), static_cast<int>(line), std::string(rule), std::move(detail)});
  }

  void CheckMarksAndPaths();
  void CheckSizes();
  void CheckCpp();
  void CheckInclude(size_t line, std::string_view text);
  void CheckBanned(size_t line, std::string_view code);
  void CheckGlobal(size_t line, std::string_view code);
  void CheckFunctionLengths();

  template <size_t N>
  void CheckRows(size_t line, std::string_view code, const std::array<BannedRow, N>& rows) {
    for (const BannedRow& row : rows) {
      if (!Matches(code, row)) continue;
      Add(line, "banned-call", std::string(row.word) + ": " + std::string(row.instead));
    }
  }

  std::string_view path_;
  std::vector<std::string_view> lines_;
  std::string code_;
  std::vector<std::string_view> code_lines_;
  std::vector<Finding> findings_;
};

void Checker::CheckMarksAndPaths() {
  // Put together from parts, so that this file does not contain what it looks for.
  static const std::array<std::string, 4> kMarks = {
      std::string("TO") + "DO", std::string("FIX") + "ME", std::string("X") + "XX",
      std::string("HA") + "CK"};
  static const std::array<std::string, 4> kRoots = {
      std::string("/wo") + "rk/", std::string("/ro") + "ot/", std::string("/ho") + "me/",
      std::string("/fa") + "rm/"};
  static const std::string kFastMath = std::string("-ffast") + "-math";
  for (size_t i = 0; i < lines_.size(); ++i) {
    for (const std::string& mark : kMarks) {
      if (FindWord(lines_[i], mark) != std::string_view::npos) {
        Add(i + 1, "left-over", mark + ": do it, or write what holds today");
      }
    }
    for (const std::string& root : kRoots) {
      const size_t at = lines_[i].find(root);
      if (at == std::string_view::npos) continue;
      const char before = at == 0 ? ' ' : lines_[i][at - 1];
      if (!IsWordChar(before) && before != '.' && before != '}' && before != '/') {
        Add(i + 1, "machine-path", root + "... names one machine; use a relative path");
      }
    }
    // Prose may name the flag to forbid it; build files and code may not contain it.
    if (!EndsWith(path_, ".md") && lines_[i].find(kFastMath) != std::string_view::npos) {
      Add(i + 1, "fast-math", "the order of operations is part of the result");
    }
  }
}

void Checker::CheckSizes() {
  if (lines_.size() > kFileLinesMax) {
    Add(0, "file-length",
        std::to_string(lines_.size()) + " lines, at most " + std::to_string(kFileLinesMax) +
            "; split by idea");
  }
  for (size_t i = 0; i < lines_.size(); ++i) {
    const int columns = Columns(lines_[i]);
    if (columns > kColumnsMax) {
      Add(i + 1, "line-length",
          std::to_string(columns) + " columns, at most " + std::to_string(kColumnsMax));
    }
  }
}

void Checker::CheckCpp() {
  bool has_pragma = EndsWith(path_, "-inl.h");  // Highway includes those once a target
  for (size_t i = 0; i < lines_.size(); ++i) {
    if (lines_[i] == "#pragma once") has_pragma = true;
    // The name between the quotes of an include is a literal, so it is read from the raw line.
    if (StartsWith(code_lines_[i], "#include")) CheckInclude(i + 1, lines_[i]);
    CheckBanned(i + 1, code_lines_[i]);
    CheckGlobal(i + 1, code_lines_[i]);
  }
  if (EndsWith(path_, ".h") && !has_pragma) Add(0, "pragma-once", "a header needs #pragma once");
  CheckFunctionLengths();
}

void Checker::CheckInclude(size_t line, std::string_view text) {
  const size_t open = text.find_first_of("<\"");
  if (open == std::string_view::npos) return;
  const bool ours = text[open] == '"';
  const std::string_view name =
      text.substr(open + 1, text.find_first_of(">\"", open + 1) - open - 1);
  if (!ours) {
    for (const WrapperRow& row : kWrappers) {
      if (StartsWith(name, row.header) && !StartsWithOneOf(path_, row.files)) {
        Add(line, "wrapper",
            std::string(name) + " enters through " + std::string(row.files) + " only");
      }
    }
    return;
  }
  if (!StartsWith(path_, "src/")) return;
  const std::string_view below_src = path_.substr(4);
  const std::string_view folder = below_src.substr(0, below_src.find('/'));
  const std::string_view target = name.substr(0, name.find('/'));
  if (folder == "apps") {
    if (target == "tests" || target == "fuzz") Add(line, "include-table", "a program in tests");
    return;
  }
  for (const IncludeRow& row : kIncludeTable) {
    if (row.folder != folder) continue;
    const std::string padded = " " + std::string(target) + " ";
    if (row.allowed.find(padded) != std::string_view::npos) return;
    Add(line, "include-table",
        "src/" + std::string(folder) + " may not include " + std::string(name) +
            "; allowed:" + std::string(row.allowed));
    return;
  }
  Add(line, "include-table", "src/" + std::string(folder) + " has no row in the include table");
}

void Checker::CheckBanned(size_t line, std::string_view code) {
  CheckRows(line, code, kBannedEverywhere);
  if (code.find("using namespace") != std::string_view::npos) {
    Add(line, "using-namespace", "name what you use");
  }
  if (!StartsWith(path_, "src/")) return;
  if (!StartsWith(path_, "src/core/tensor.")) {
    // A wrapped line is read together with the one before it, so that its owner is seen.
    const bool wrapped = line > 1 && StartsWith(Trim(code), "new ");
    const std::string joined =
        (wrapped ? std::string(Trim(code_lines_[line - 2])) : std::string()) + std::string(code);
    CheckRows(line, joined, kBannedMemory);
    if (!StartsWith(path_, "src/server/"))
      CheckRows(line, joined, std::array{kBannedOutsideServer});
  }
  const bool may_print = StartsWith(path_, "src/apps/") || path_ == "src/core/result.cc";
  if (!may_print) CheckRows(line, code, kBannedBelowApps);
}

// A heuristic on formatted code: a variable at namespace scope starts in column 0, a static local
// is indented; both must be const.
void Checker::CheckGlobal(size_t line, std::string_view code) {
  // A signal handler has nothing but a global to write to, so programs are exempt.
  if (!StartsWith(path_, "src/") || StartsWith(path_, "src/apps/")) return;
  const std::string_view trimmed = Trim(code);
  if (trimmed.empty() || trimmed.find('(') != std::string_view::npos) return;
  for (const std::string_view word : {"const", "constexpr", "using", "typedef", "struct", "class",
                                      "enum", "friend", "return", "template", "namespace"}) {
    if (FindWord(trimmed, word) != std::string_view::npos) return;
  }
  const bool indented = code.front() == ' ';
  const bool is_static = StartsWith(trimmed, "static ");
  const bool declares = trimmed.find(' ') != std::string_view::npos &&
                        (IsWordChar(trimmed.front())) &&
                        (EndsWith(trimmed, ";") || EndsWith(trimmed, "{") ||
                         trimmed.find('=') != std::string_view::npos);
  if (declares && (is_static || !indented)) {
    Add(line, "mutable-global", "state belongs to an object that somebody owns");
  }
}

// A function is a block whose head holds a parenthesis and stands in a namespace or a class.
void Checker::CheckFunctionLengths() {
  struct Block {
    size_t head_line;
    bool is_function;
  };
  std::vector<Block> blocks;
  std::string head;
  size_t head_line = 0;
  for (size_t i = 0; i < code_lines_.size(); ++i) {
    if (StartsWith(code_lines_[i], "#")) continue;
    for (const char c : code_lines_[i]) {
      if (c == '{') {
        const bool inside_function =
            std::any_of(blocks.begin(), blocks.end(), [](const Block& b) { return b.is_function; });
        const bool has_parenthesis = head.find('(') != std::string::npos;
        blocks.push_back({head_line, has_parenthesis && !inside_function});
        head.clear();
      } else if (c == '}') {
        if (!blocks.empty()) {
          const Block block = blocks.back();
          blocks.pop_back();
          const size_t length = i - block.head_line + 1;
          if (block.is_function && length > kFunctionLinesMax) {
            Add(block.head_line + 1, "function-length",
                std::to_string(length) + " lines, at most " + std::to_string(kFunctionLinesMax));
          }
        }
        head.clear();
      } else if (c == ';') {
        head.clear();
      } else if (std::isspace(static_cast<unsigned char>(c)) == 0) {
        if (head.empty()) head_line = i;
        head += c;
      }
    }
  }
}

// Where a scan of C++ text is: in code, in one of the two comments, or in a literal.
enum class Mode { kCode, kLine, kBlock, kString, kChar, kRaw };

// The length of the raw string's opening R"delimiter( at `at`, or 0; sets the closing sequence.
size_t RawStringOpening(std::string_view text, size_t at, std::string& closing) {
  if (text.substr(at, 2) != "R\"" || (at > 0 && IsWordChar(text[at - 1]))) return 0;
  const size_t open = text.find('(', at + 2);
  if (open == std::string_view::npos) return 0;
  closing = ")" + std::string(text.substr(at + 2, open - at - 2)) + "\"";
  return open - at + 1;
}

}  // namespace

std::string CodeOnly(std::string_view text) {
  std::string code(text);
  std::string closing;
  Mode mode = Mode::kCode;
  const auto blank = [&code](size_t at) {
    if (at < code.size() && code[at] != '\n') code[at] = ' ';
  };
  for (size_t i = 0; i < text.size(); ++i) {
    const std::string_view pair = text.substr(i, 2);
    if (mode == Mode::kCode) {
      if (const size_t opening = RawStringOpening(text, i, closing); opening > 0) {
        mode = Mode::kRaw;
        i += opening - 1;
      } else if (pair == "//" || pair == "/*") {
        mode = pair == "//" ? Mode::kLine : Mode::kBlock;
        blank(i);
        blank(++i);
      } else if (text[i] == '"') {
        mode = Mode::kString;
      } else if (text[i] == '\'' && (i == 0 || !IsWordChar(text[i - 1]))) {
        mode = Mode::kChar;  // otherwise a digit separator
      }
      continue;
    }
    if (mode == Mode::kLine && text[i] == '\n') mode = Mode::kCode;
    if (mode == Mode::kBlock && pair == "*/") {
      mode = Mode::kCode;
      blank(i);
      blank(++i);
      continue;
    }
    if (mode == Mode::kRaw && text.substr(i, closing.size()) == closing) {
      mode = Mode::kCode;
      i += closing.size() - 1;
      continue;
    }
    const char quote = mode == Mode::kString ? '"' : '\'';
    if ((mode == Mode::kString || mode == Mode::kChar) && text[i] == quote) {
      mode = Mode::kCode;
      continue;
    }
    if ((mode == Mode::kString || mode == Mode::kChar) && text[i] == '\\') blank(i++);
    blank(i);
  }
  return code;
}

std::vector<Finding> CheckFile(std::string_view path, std::string_view text) {
  return Checker(path, text).Run();
}

std::vector<Finding> CheckSourceLists(const std::vector<std::string>& sources,
                                      std::string_view cmake_text) {
  std::vector<Finding> findings;
  for (const std::string& path : sources) {
    if (!StartsWith(path, "src/") || !EndsWith(path, ".cc")) continue;
    const std::string name = path.substr(path.rfind('/') + 1);
    bool listed = false;
    for (size_t at = cmake_text.find(name); at != std::string_view::npos && !listed;
         at = cmake_text.find(name, at + 1)) {
      const bool starts = at == 0 || !IsWordChar(cmake_text[at - 1]);
      const size_t end = at + name.size();
      listed = starts && (end == cmake_text.size() || !IsWordChar(cmake_text[end]));
    }
    if (!listed) {
      findings.push_back(
          {path, 0, "source-list", "not listed in cmake/sources.cmake or cmake/train.cmake"});
    }
  }
  return findings;
}

}  // namespace minke::tidy

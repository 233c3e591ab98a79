// Holds the repository to the rules of CONVENTIONS.md that a machine can check, and shows with a
// planted bad line that each of those checks can fail.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <vector>

#include "tests/tidy/read_text.h"
#include "tests/tidy/tidy.h"

namespace minke::tidy {
namespace {

namespace fs = std::filesystem;

// Texts worth checking, by name; everything else is data.
bool IsText(const fs::path& path) {
  const std::string extension = path.extension().string();
  const std::string name = path.filename().string();
  if (name == "quickstart" || name == "test" || name == "run" || name == "LICENSE") return true;
  for (const char* known : {".h", ".cc", ".md", ".txt", ".cmake", ".sh", ".json", ".in", ".mjs",
                            ".js", ".clang-format", ".clang-tidy", ".gitignore"}) {
    if (extension == known || name == known) return true;
  }
  return false;
}

// Paths of the repository's texts relative to its root. Walks the folders instead of asking git,
// so that it also holds in an unpacked archive.
std::vector<std::string> RepositoryTexts() {
  const fs::path root = MINKE_SOURCE_DIR;
  std::vector<std::string> paths;
  for (const auto& top : fs::directory_iterator(root)) {
    const std::string name = top.path().filename().string();
    if (top.is_regular_file() && IsText(top.path())) paths.push_back(name);
    if (!top.is_directory() || name == "build" || name == ".git" || name == ".cache") continue;
    for (const auto& entry : fs::recursive_directory_iterator(top.path())) {
      if (!entry.is_regular_file() || !IsText(entry.path())) continue;
      paths.push_back(fs::relative(entry.path(), root).generic_string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

std::string Describe(const std::vector<Finding>& findings) {
  std::string text;
  for (const Finding& finding : findings) {
    text += finding.file + ":" + std::to_string(finding.line) + ": " + finding.rule + ": " +
            finding.detail + "\n";
  }
  return text;
}

TEST(Tidy, RepositoryFollowsTheConventions) {
  const std::vector<std::string> paths = RepositoryTexts();
  ASSERT_GT(paths.size(), 50U) << "The walk found too little to prove anything.";
  std::vector<Finding> findings;
  for (const std::string& path : paths) {
    for (Finding& finding : CheckFile(path, ReadText(fs::path(MINKE_SOURCE_DIR) / path))) {
      findings.push_back(std::move(finding));
    }
  }
  EXPECT_TRUE(findings.empty()) << Describe(findings);
}

TEST(Tidy, EverySourceIsListed) {
  const std::string lists = ReadText(fs::path(MINKE_SOURCE_DIR) / "cmake/sources.cmake") +
                            ReadText(fs::path(MINKE_SOURCE_DIR) / "cmake/train.cmake");
  ASSERT_FALSE(lists.empty());
  const std::vector<Finding> findings = CheckSourceLists(RepositoryTexts(), lists);
  EXPECT_TRUE(findings.empty()) << Describe(findings);
}

// A text that must give exactly one kind of finding, and its twin that must give none.
struct Planted {
  std::string path;
  std::string rule;
  std::string bad;
  std::string good;
};

std::string Repeat(const std::string& line, int count) {
  std::string text;
  for (int i = 0; i < count; ++i) text += line;
  return text;
}

// Marks and paths are put together from parts: the repository must not contain them.
const std::vector<Planted>& PlantedTexts() {
  static const std::vector<Planted> kPlanted = {
      {"src/core/a.cc", "include-table", "#include \"model/config.h\"\n",
       "#include \"core/json.h\"\n"},
      {"src/text/a.cc", "include-table", "#include \"model/config.h\"\n",
       "// #include \"model/config.h\"\n"},
      {"src/model/a.cc", "include-table", "#include \"tests/support/golden.h\"\n",
       "#include \"kernels/kernels.h\"\n"},
      {"src/engine/a.cc", "include-table", "#include \"planner/inspect.h\"\n",
       "#include \"text/tokenizer.h\"\n"},
      {"src/apps/a.cc", "include-table", "#include \"tests/support/golden.h\"\n",
       "#include \"planner/inspect.h\"\n"},
      {"src/unheard_of/a.cc", "include-table", "#include \"core/json.h\"\n", "int F();\n"},
      {"src/model/a.cc", "wrapper", "#include <nlohmann/json.hpp>\n", "#include <vector>\n"},
      {"src/engine/a.cc", "wrapper", "#include <CLI/CLI.hpp>\n", "#include <string>\n"},
      {"src/model/a.cc", "wrapper", "#include <hwy/highway.h>\n", "#include <array>\n"},
      {"src/text/chat.cc", "wrapper", "#include <pcre2.h>\n", "#include <utf8proc.h>\n"},
      {"src/core/a.cc", "file-length", Repeat("int F();\n", 501), Repeat("int F();\n", 500)},
      {"test", "file-length", Repeat("true\n", 501), Repeat("true\n", 500)},
      {"README.md", "readme-length", Repeat("word\n", 200), Repeat("word\n", 199)},
      {"src/core/a.cc", "line-length", "// " + std::string(98, 'x') + "\n",
       "// " + std::string(97, 'x') + "\n"},
      {"src/core/a.cc", "line-length", "// " + Repeat("\xC3\xA4", 98) + "\n",
       "// " + Repeat("\xC3\xA4", 97) + "\n"},
      {"src/core/a.cc", "function-length", "void F(int x) {\n" + Repeat("  x;\n", 69) + "}\n",
       "void F(int x) {\n" + Repeat("  x;\n", 68) + "}\n"},
      {"src/core/a.h", "function-length",
       "#pragma once\nclass A {\n  void F() {\n" + Repeat("    if (x) { y; }\n", 69) + "  }\n};\n",
       "#pragma once\nclass A {\n" + Repeat("  void F() { y; }\n", 80) + "};\n"},
      {"src/core/a.h", "pragma-once", "int F();\n", "#pragma once\nint F();\n"},
      {"src/model/a.cc", "banned-call", "  printf(\"x\");\n", "  // printf(\"x\");\n"},
      {"src/model/a.cc", "banned-call", "  std::cout << 1;\n", "  Say(\"std::cout\");\n"},
      {"src/model/a.cc", "banned-call", "  std::exit(1);\n", "  loop.exit(1);\n"},
      {"src/model/a.cc", "banned-call", "  abort();\n", "  int abort_count = 0;\n"},
      {"src/model/a.cc", "banned-call", "  auto p = new int;\n", "  auto p = renew(3);\n"},
      {"src/model/a.cc", "banned-call", "  a(new A);\n",
       "  return std::unique_ptr<A>(new A(1));\n"},
      {"src/model/a.cc", "banned-call", "  delete p;\n", "  A(const A&) = delete;\n"},
      {"src/apps/a.cc", "banned-call", "  void* p = malloc(3);\n", "  printf(\"fine here\");\n"},
      {"src/model/a.cc", "banned-call", "  std::shared_ptr<int> p;\n",
       "  std::unique_ptr<int> p;\n"},
      {"src/server/a.cc", "banned-call", "  std::unique_ptr<int> p(new int);\n",
       "  std::shared_ptr<int> p;\n"},
      {"tests/a.cc", "banned-call", "  std::format(\"x\");\n", "  fmt::format(\"x\");\n"},
      {"tests/a.cc", "banned-call", "  thread_local int x = 0;\n", "  int x = 0;\n"},
      {"tests/a.cc", "banned-call", "  std::async(F);\n", "  pool.Run(F);\n"},
      {"tests/a.cc", "banned-call", "  int x = rand();\n", "  int x = generator.rand();\n"},
      {"tests/a.cc", "using-namespace", "using namespace std;\n", "using std::string;\n"},
      {"src/model/a.cc", "mutable-global", "int counter = 0;\n", "constexpr int kCount = 0;\n"},
      {"src/model/a.cc", "mutable-global", "std::vector<int> cache;\n",
       "  std::vector<int> local;\n"},
      {"src/model/a.cc", "mutable-global", "  static int calls = 0;\n",
       "  static const int kCalls = 0;\n"},
      {"src/model/a.cc", "fast-math", std::string("// -ffast") + "-math\n", "// -O2\n"},
      {"CMakeLists.txt", "fast-math", std::string("add(-ffast") + "-math)\n", "add(-O2)\n"},
      {"docs/a.md", "left-over", std::string("TO") + "DO: more\n", "mastodons\n"},
      {"src/a.md", "left-over", std::string("FIX") + "ME\n", "fixed\n"},
      {"docs/a.md", "machine-path", std::string("see /wo") + "rk/x\n", "see net/work/x\n"},
      {"test", "machine-path", std::string("cd /ro") + "ot/x\n", "cd \"$root\"/x\n"},
  };
  return kPlanted;
}

TEST(Tidy, EveryRuleFiresOnAPlantedLine) {
  for (const Planted& planted : PlantedTexts()) {
    SCOPED_TRACE(planted.path + ": " + planted.rule + ": " + planted.bad.substr(0, 60));
    const std::vector<Finding> findings = CheckFile(planted.path, planted.bad);
    ASSERT_FALSE(findings.empty());
    for (const Finding& finding : findings) EXPECT_EQ(finding.rule, planted.rule);
  }
}

TEST(Tidy, NoRuleFiresOnTheHarmlessTwin) {
  for (const Planted& planted : PlantedTexts()) {
    SCOPED_TRACE(planted.path + ": " + planted.rule + ": " + planted.good.substr(0, 60));
    EXPECT_EQ(Describe(CheckFile(planted.path, planted.good)), "");
  }
}

TEST(Tidy, FindingsNameTheLine) {
  const std::vector<Finding> findings = CheckFile("src/model/a.cc", "int F();\n\n  abort();\n");
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].line, 3);
  EXPECT_EQ(findings[0].file, "src/model/a.cc");
}

TEST(Tidy, AnUnlistedSourceIsFound) {
  const std::vector<std::string> sources = {"src/core/json.cc", "src/core/son.cc"};
  const std::vector<Finding> findings = CheckSourceLists(sources, "SOURCES json.cc file.cc");
  ASSERT_EQ(findings.size(), 1U);
  EXPECT_EQ(findings[0].file, "src/core/son.cc");
}

TEST(Tidy, CodeOnlyBlanksCommentsAndLiterals) {
  EXPECT_EQ(CodeOnly("a // b\nc"), "a     \nc");
  EXPECT_EQ(CodeOnly("a /* b\n*/ c"), "a     \n   c");
  EXPECT_EQ(CodeOnly("f(\"x\\\"y\");"), "f(\"    \");");
  EXPECT_EQ(CodeOnly("f('\\'', 1'000);"), "f('  ', 1'000);");
  EXPECT_EQ(CodeOnly("f(R\"(a\"b)\");"), "f(R\"(   )\");");
}

}  // namespace
}  // namespace minke::tidy

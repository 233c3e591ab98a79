// Every test that docs/reports.md names is there: a table cannot promise what nobody runs.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <regex>
#include <set>
#include <string>
#include <vector>

namespace minke::tidy {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReportsMin = 23;  // starred reports that have a test

std::string TextOf(const fs::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// "Suite.Name" of every gtest case in a source.
void CollectCases(const std::string& source, std::set<std::string>* cases) {
  static const std::regex kCase(R"(TEST(?:_F|_P)?\((\w+),\s*(\w+)\))");
  for (std::sregex_iterator it(source.begin(), source.end(), kCase), end; it != end; ++it) {
    cases->insert((*it)[1].str() + "." + (*it)[2].str());
  }
}

// The names in backquotes of a table.
std::vector<std::string> NamesIn(const std::string& document) {
  static const std::regex kName(R"(`([A-Z]\w+\.[A-Z]\w+)`)");
  std::vector<std::string> names;
  for (std::sregex_iterator it(document.begin(), document.end(), kName), end; it != end; ++it) {
    names.push_back((*it)[1].str());
  }
  return names;
}

std::set<std::string> CasesOfTheRepository() {
  std::set<std::string> cases;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MINKE_SOURCE_DIR) / "tests")) {
    if (entry.path().extension() == ".cc") CollectCases(TextOf(entry.path()), &cases);
  }
  return cases;
}

TEST(ReportsTable, NamesTestsThatExist) {
  const std::set<std::string> cases = CasesOfTheRepository();
  const std::vector<std::string> names =
      NamesIn(TextOf(fs::path(MINKE_SOURCE_DIR) / "docs" / "reports.md"));
  ASSERT_GE(names.size(), kReportsMin);
  for (const std::string& name : names) EXPECT_EQ(cases.count(name), 1U) << name;
}

TEST(ReportsTable, ANameWithoutATestIsSeen) {
  std::set<std::string> cases;
  CollectCases("TEST_F(Reports, IsThere) {\nTEST(Other,\n     Broken) {\n", &cases);
  EXPECT_EQ(cases, (std::set<std::string>{"Reports.IsThere", "Other.Broken"}));
  const std::vector<std::string> names = NamesIn("| x | `Reports.Gone`, `Reports.IsThere` |");
  ASSERT_EQ(names.size(), 2U);
  EXPECT_EQ(cases.count(names[0]), 0U);
  EXPECT_EQ(cases.count(names[1]), 1U);
}

}  // namespace
}  // namespace minke::tidy

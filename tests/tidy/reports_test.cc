// Every test that docs/reports.md names is there: a table cannot promise what nobody runs.
#include <gtest/gtest.h>

#include <cctype>
#include <filesystem>
#include <set>
#include <string>
#include <vector>

#include "tests/tidy/read_text.h"

namespace minke::tidy {
namespace {

namespace fs = std::filesystem;

constexpr size_t kReportsMin = 23;  // starred reports that have a test

// The longest word of letters, digits and underscores from *at on, which moves behind it.
std::string WordAt(const std::string& text, size_t* at) {
  const size_t begin = *at;
  while (*at < text.size() &&
         (std::isalnum(static_cast<unsigned char>(text[*at])) != 0 || text[*at] == '_')) {
    ++*at;
  }
  return text.substr(begin, *at - begin);
}

// "Suite.Name" of every gtest case in a source.
void CollectCases(const std::string& source, std::set<std::string>* cases) {
  for (size_t at = source.find("TEST"); at != std::string::npos; at = source.find("TEST", at)) {
    const std::string macro = WordAt(source, &at);
    if ((macro != "TEST" && macro != "TEST_F" && macro != "TEST_P") || source[at] != '(') continue;
    ++at;
    const std::string suite = WordAt(source, &at);
    if (source[at] != ',') continue;
    at = source.find_first_not_of(" \n", at + 1);
    if (at == std::string::npos) return;
    cases->insert(suite + "." + WordAt(source, &at));
  }
}

// The names in backquotes of a table.
std::vector<std::string> NamesIn(const std::string& document) {
  std::vector<std::string> names;
  for (size_t at = document.find('`'); at != std::string::npos; at = document.find('`', at + 1)) {
    ++at;
    const std::string suite = WordAt(document, &at);
    if (at >= document.size() || document[at] != '.' || suite.empty()) continue;
    ++at;
    const std::string name = WordAt(document, &at);
    const bool closed = at < document.size() && document[at] == '`';
    if (closed && std::isupper(static_cast<unsigned char>(suite[0])) != 0) {
      names.push_back(suite + "." + name);
    }
  }
  return names;
}

std::set<std::string> CasesOfTheRepository() {
  std::set<std::string> cases;
  for (const auto& entry : fs::recursive_directory_iterator(fs::path(MINKE_SOURCE_DIR) / "tests")) {
    if (entry.path().extension() == ".cc") CollectCases(ReadText(entry.path()), &cases);
  }
  return cases;
}

TEST(ReportsTable, NamesTestsThatExist) {
  const std::set<std::string> cases = CasesOfTheRepository();
  const std::vector<std::string> names =
      NamesIn(ReadText(fs::path(MINKE_SOURCE_DIR) / "docs" / "reports.md"));
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

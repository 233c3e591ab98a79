// From packaged documentation to paragraphs, and from packages to a corpus.
#include "train/corpus.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <random>
#include <set>
#include <string>

#include "core/file.h"
#include "core/json.h"
#include "tests/support/temp_directory.h"
#include "train/text_cleaning.h"
#include "train/text_extraction.h"

namespace minke::train {
namespace {

using List = std::vector<std::string>;

// Joined blanks, as the cleaner sees them.
List Extract(std::string_view text, Markup markup) {
  List list;
  for (const std::string& paragraph : ExtractParagraphs(text, markup)) {
    std::string joined;
    for (const char c : paragraph) {
      if (c != ' ' && c != '\n') {
        joined += c;
      } else if (!joined.empty() && joined.back() != ' ') {
        joined += ' ';
      }
    }
    while (!joined.empty() && joined.back() == ' ') joined.pop_back();
    if (!joined.empty()) list.push_back(joined);
  }
  return list;
}

TEST(ExtractParagraphs, Html) {
  EXPECT_EQ(Extract("<html><head><title>T</title><script>if (a < b) x();</script></head><body>"
                    "<p>One <b>bold</b> &amp; &lt;two&gt;&#8212;three.</p><pre>code</pre>"
                    "<ul><li>Item&nbsp;A</li><li>B<br/>C</li></ul><!-- gone --></body></html>",
                    Markup::kHtml),
            (List{"One bold & <two>-three.", "Item A", "B C"}));
  EXPECT_EQ(Extract("<table><tr><td>a<table>b</table></td></tr></table>After.", Markup::kHtml),
            (List{"After."}));
  EXPECT_EQ(Extract("<p>Open <b", Markup::kHtml), (List{"Open"}));
}

TEST(ExtractParagraphs, Pod) {
  EXPECT_EQ(Extract("=head1 NAME\n\nSee L<the manual|perl> and C<< $a->b >>, B<I<both>>.\n\n"
                    "    my $code;\n\n=over\n\nE<gt>Last X<index>one\nline.\n",
                    Markup::kPod),
            (List{"See the manual and $a->b, both.", ">Last one line."}));
}

TEST(ExtractParagraphs, Troff) {
  EXPECT_EQ(Extract(".TH x 7\n.SH NAME\nfirst \\- one\n.PP\nThe\n.B bold\nand\n.BR open (2)\n"
                    "is \\fIhere\\fP.\n.nf\ncode\n.fi\nAfter\\(aqs.\n",
                    Markup::kTroff),
            (List{"first - one", "The bold and open(2) is here.", "After's."}));
}

TEST(ExtractParagraphs, Dictionary) {
  EXPECT_EQ(Extract("actor\n\n   1. <programming> In {object} programming.\n\n   Second.\nword\n",
                    Markup::kDictionary),
            (List{"In object programming.", "Second."}));
}

TEST(ExtractParagraphs, Wml) {
  EXPECT_EQ(Extract("message= _ \"He said \"\"no\"\".\"\nname=_\"Two\"\nid=a_b", Markup::kWml),
            (List{"He said \"no\".", "Two"}));
}

TEST(ExtractParagraphs, TakesAnyBytes) {
  std::mt19937 generator(1);
  const std::string_view alphabet = "<>&;/\"'\\.\n _=aEBfX{}|-#1!";
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const size_t size = generator() % 60;
    for (size_t i = 0; i < size; ++i) text += alphabet[generator() % alphabet.size()];
    for (const Markup markup :
         {Markup::kHtml, Markup::kPod, Markup::kTroff, Markup::kDictionary, Markup::kWml}) {
      for (const std::string& paragraph : ExtractParagraphs(text, markup)) {
        CleanParagraph(paragraph);
      }
    }
  }
}

constexpr const char* kProse =
    "This is a paragraph of plain English that has more than ten words in it.";

TEST(CleanParagraph, KeepsProseAndMakesItPlain) {
  EXPECT_EQ(CleanParagraph(kProse), kProse);
  EXPECT_EQ(CleanParagraph("  \xE2\x80\x9CThis\xE2\x80\x9D is a\n paragraph\xE2\x80\x94of plain "
                           "English that it\xE2\x80\x99s good to have in the text.  "),
            "\"This\" is a paragraph-of plain English that it's good to have in the text.");
}

TEST(CleanParagraph, LeavesOutWhatIsNoProse) {
  const std::string prose = kProse;
  for (const std::string& text :
       {std::string("Too short."), prose.substr(0, prose.size() - 1), "t" + prose.substr(1),
        prose + " {x} == |y|.", prose + " na\xC3\xAFve.", prose + " 1234567890 1234567890 12345.",
        std::string("Der Hund und die Katze liefen durch den Wald, bis der Abend kam und alles "
                    "dunkel wurde."),
        std::string(5000, 'a'), std::string(100, '.'), std::string("\"\"\"\"(((("),
        std::string()}) {
    EXPECT_EQ(CleanParagraph(text), std::nullopt) << text;
  }
}

// A folder with packages of the table, each with many small documents.
class Packages {
 public:
  Packages() {
    Folder("packages");
    for (int i = 0; i < 300; ++i) {
      Write("git-doc/usr/share/doc/git-doc/page" + std::to_string(i) + ".html",
            "<p>This is the page with the name " + Name(i) + " of the manual that you have.</p>" +
                "<p>It is said on all of the pages that this is a part of the manual.</p>");
    }
    Write("git-doc/usr/share/doc/git-doc/other.txt", "<p>" + std::string(kProse) + "</p>");
    Write("git-doc.version", "1:2.3-4\n");
  }
  std::string path() const { return Folder("packages"); }
  // A folder for a corpus.
  std::string Folder(const std::string& name) const {
    const std::string path = folder_.Path(name);
    std::filesystem::create_directories(path);
    return path;
  }
  void Write(const std::string& name, const std::string& text) const {
    const std::filesystem::path path = folder_.Path("packages/" + name);
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path, std::ios::binary) << text;
  }

 private:
  static std::string Name(int number) {
    std::string name = "x";
    for (; number > 0; number /= 26) name += static_cast<char>('a' + number % 26);
    return name;
  }
  testing::TempDirectory folder_;
};

std::set<std::string> ParagraphsOf(const std::string& text) {
  std::set<std::string> paragraphs;
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find("\n\n", at), text.size());
    paragraphs.insert(text.substr(at, end - at));
    at = end + 2;
  }
  paragraphs.erase("\f");
  return paragraphs;
}

TEST(Corpus, HoldsOutWholeDocumentsAndRepeatsNothing) {
  const Packages packages;
  const std::string out = packages.Folder("out");
  const CorpusReport report = MakeCorpus(packages.path(), out, [](std::string_view) {}).value();
  EXPECT_EQ(report.documents, 300);
  EXPECT_EQ(report.duplicate_paragraphs, 299);
  const std::string training = ReadFile(out + "/train.txt", 1 << 20).value();
  const std::string held_out = ReadFile(out + "/heldout.txt", 1 << 20).value();
  const std::set<std::string> seen = ParagraphsOf(training);
  const std::set<std::string> unseen = ParagraphsOf(held_out);
  EXPECT_EQ(seen.size() + unseen.size(), 301U);
  EXPECT_GE(unseen.size(), 2U);
  EXPECT_LE(unseen.size(), 25U);
  for (const std::string& paragraph : unseen) EXPECT_EQ(seen.count(paragraph), 0U);
  for (const std::string& paragraph :
       ParagraphsOf(ReadFile(out + "/eval_text.txt", 1 << 20).value())) {
    EXPECT_EQ(unseen.count(paragraph), 1U);
  }
  const std::string manifest = ReadFile(out + "/manifest.json", 1 << 20).value();
  EXPECT_NE(manifest.find("1:2.3-4"), std::string::npos);
  EXPECT_NE(manifest.find("GPL-2"), std::string::npos);
}

TEST(Corpus, IsTheSameForTheSamePackages) {
  const Packages packages;
  const std::string one = packages.Folder("one");
  const std::string two = packages.Folder("two");
  for (const std::string& out : {one, two}) {
    ASSERT_TRUE(MakeCorpus(packages.path(), out, [](std::string_view) {}).has_value());
  }
  for (const char* name : {"/train.txt", "/heldout.txt", "/eval_text.txt", "/manifest.json"}) {
    EXPECT_EQ(ReadFile(one + name, 1 << 20).value(), ReadFile(two + name, 1 << 20).value());
  }
}

TEST(Corpus, SaysWhatToDoWithoutPackages) {
  const testing::TempDirectory empty;
  const auto report = MakeCorpus(empty.path(), empty.path(), [](std::string_view) {});
  ASSERT_FALSE(report.has_value());
  EXPECT_NE(report.error().message.find("make_corpus.sh"), std::string::npos);
}

TEST(Corpus, NamesALicenceForEveryPackage) {
  std::set<std::string_view> names;
  for (const CorpusSource& source : CorpusSources()) {
    EXPECT_FALSE(source.licence.empty());
    EXPECT_TRUE(names.insert(source.package).second) << source.package;
  }
}

}  // namespace
}  // namespace minke::train

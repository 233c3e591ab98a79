#include "core/file.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <string>
#include <utility>

#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::TempDirectory;

std::span<const std::byte> Bytes(std::string_view text) {
  return std::as_bytes(std::span(text));
}

std::string_view Text(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

TEST(File, WritesAndReadsBack) {
  const TempDirectory directory;
  const std::string path = directory.Path("file");
  const std::string content("a\0b\n", 4);
  ASSERT_TRUE(WriteFile(path, Bytes(content)).has_value());
  EXPECT_EQ(*ReadFile(path, 100), content);
  // A second write replaces the whole, and leaves no temporary file.
  ASSERT_TRUE(WriteFile(path, Bytes("x")).has_value());
  EXPECT_EQ(*ReadFile(path, 100), "x");
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(directory.path()),
                          std::filesystem::directory_iterator()),
            1);
}

TEST(File, WrittenFilesAreReadableByOthers) {
  const TempDirectory directory;
  ASSERT_TRUE(WriteFile(directory.Path("file"), {}).has_value());
  struct stat info = {};
  ASSERT_EQ(::stat(directory.Path("file").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0644u);
}

TEST(File, SizeLimitIsExact) {
  const TempDirectory directory;
  directory.Write("file", "12345678");
  EXPECT_TRUE(ReadFile(directory.Path("file"), 8).has_value());
  const auto refused = ReadFile(directory.Path("file"), 7);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_NE(refused.error().message.find("8 bytes; at most 7"), std::string::npos);
}

TEST(File, ErrorsNameThePath) {
  const TempDirectory directory;
  const auto missing = ReadFile(directory.Path("missing"), 8);
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find(directory.Path("missing")), std::string::npos);
  EXPECT_EQ(MappedFile::Open(directory.Path("missing")).error().code, ErrorCode::kNotFound);
  // A folder is no file, to read, to map or to replace.
  EXPECT_NE(ReadFile(directory.path(), 8).error().message.find("not a regular file"),
            std::string::npos);
  EXPECT_EQ(MappedFile::Open(directory.path()).error().code, ErrorCode::kIo);
  EXPECT_FALSE(WriteFile(directory.path(), {}).has_value());
  EXPECT_FALSE(WriteFile(directory.Path("no/such/folder"), {}).has_value());
}

TEST(File, APipeDoesNotBlock) {
  const TempDirectory directory;
  ASSERT_EQ(::mkfifo(directory.Path("pipe").c_str(), 0600), 0);
  EXPECT_FALSE(ReadFile(directory.Path("pipe"), 8).has_value());
  EXPECT_FALSE(MappedFile::Open(directory.Path("pipe")).has_value());
}

TEST(File, MapsTheWholeFile) {
  const TempDirectory directory;
  const std::string content(10'000, 'q');
  directory.Write("file", content);
  auto file = MappedFile::Open(directory.Path("file"));
  ASSERT_TRUE(file.has_value()) << file.error().message;
  EXPECT_EQ(Text(file->bytes()), content);
  EXPECT_EQ(file->path(), directory.Path("file"));
}

TEST(File, MappingsMoveWithTheirBytes) {
  const TempDirectory directory;
  directory.Write("one", "first");
  directory.Write("two", "second");
  auto opened = MappedFile::Open(directory.Path("one"));
  ASSERT_TRUE(opened.has_value());
  const std::byte* data = opened->bytes().data();
  MappedFile first = std::move(*opened);
  EXPECT_EQ(first.bytes().data(), data);
  EXPECT_TRUE(opened->bytes().empty());
  auto second = MappedFile::Open(directory.Path("two"));
  ASSERT_TRUE(second.has_value());
  first = std::move(*second);
  EXPECT_EQ(Text(first.bytes()), "second");
}

TEST(File, EmptyFilesMapToNothing) {
  const TempDirectory directory;
  directory.Write("empty", "");
  auto file = MappedFile::Open(directory.Path("empty"));
  ASSERT_TRUE(file.has_value());
  EXPECT_TRUE(file->bytes().empty());
  EXPECT_EQ(*ReadFile(directory.Path("empty"), 0), "");
}

TEST(File, JoinsPaths) {
  EXPECT_EQ(JoinPath("a", "b"), "a/b");
  EXPECT_EQ(JoinPath("a/", "b"), "a/b");
  EXPECT_EQ(JoinPath("", "b"), "b");
  EXPECT_EQ(JoinPath("/", "b"), "/b");
}

TEST(File, ExistsFollowsTheFileSystem) {
  const TempDirectory directory;
  EXPECT_TRUE(FileExists(directory.path()));
  EXPECT_FALSE(FileExists(directory.Path("file")));
  directory.Write("file", "");
  EXPECT_TRUE(FileExists(directory.Path("file")));
}

// Root may look everywhere, so the child becomes somebody else.
TEST(File, InAFolderThatNobodyMayReadIsNotToldAsMissing) {
  const TempDirectory directory;
  const std::string folder = directory.Path("folder");
  std::filesystem::create_directory(folder);
  std::filesystem::permissions(directory.path(), std::filesystem::perms::others_all,
                               std::filesystem::perm_options::add);
  std::filesystem::permissions(folder, std::filesystem::perms::none);
  const auto look = [&folder] {
    constexpr uid_t kNobody = 65534;
    if (::geteuid() == 0 && ::setuid(kNobody) != 0) std::_Exit(2);
    const Result<std::string> text = ReadFile(folder + "/file", 10);
    const bool told = !text && text.error().message.find("Permission denied") != std::string::npos;
    std::_Exit(FileExists(folder + "/file") && told ? 0 : 1);
  };
  EXPECT_EXIT(look(), ::testing::ExitedWithCode(0), "");
  std::filesystem::permissions(folder, std::filesystem::perms::owner_all);
}

}  // namespace
}  // namespace minke

// Runs one fuzz target over its committed seeds and over every prefix of the small ones. A prefix
// is the cheapest hostile input there is: each parser meets its end of input at every byte.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <vector>

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size);

namespace minke {
namespace {

// Prefixes cost the square of the size, so long seeds are cut in at most this many places.
constexpr size_t kPrefixesPerSeedMax = 600;

std::vector<std::filesystem::path> SeedFiles() {
  std::vector<std::filesystem::path> files;
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(MINKE_CORPUS_DIR, error)) {
    if (entry.is_regular_file()) files.push_back(entry.path());
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::vector<uint8_t> ReadBytes(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

// The target gets a copy of exactly that size, so that a read past the end is a read past an
// allocation, which AddressSanitizer sees.
void Feed(const std::vector<uint8_t>& bytes, size_t size) {
  const std::vector<uint8_t> copy(bytes.begin(), bytes.begin() + static_cast<ptrdiff_t>(size));
  EXPECT_EQ(LLVMFuzzerTestOneInput(copy.data(), copy.size()), 0);
}

TEST(FuzzCorpus, HasSeeds) {
  EXPECT_FALSE(SeedFiles().empty()) << "No seed in " << MINKE_CORPUS_DIR;
}

TEST(FuzzCorpus, EmptyInput) {
  const uint8_t nothing = 0;
  EXPECT_EQ(LLVMFuzzerTestOneInput(&nothing, 0), 0);
}

TEST(FuzzCorpus, EverySeed) {
  for (const auto& path : SeedFiles()) {
    SCOPED_TRACE(path.filename().string());
    const std::vector<uint8_t> bytes = ReadBytes(path);
    Feed(bytes, bytes.size());
  }
}

TEST(FuzzCorpus, PrefixesOfEverySeed) {
  for (const auto& path : SeedFiles()) {
    SCOPED_TRACE(path.filename().string());
    const std::vector<uint8_t> bytes = ReadBytes(path);
    const size_t step = std::max<size_t>(1, bytes.size() / kPrefixesPerSeedMax);
    for (size_t size = 1; size < bytes.size(); size += step) Feed(bytes, size);
  }
}

}  // namespace
}  // namespace minke

#include "prefix_cache/block_key.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <set>
#include <vector>

namespace minke {
namespace {

// The digests below were computed with Python's hashlib, from the definition: SHA-256 over fields
// of tag length and value length (64-bit, little-endian), tag and value; the first field is
// ("minke key", purpose).
constexpr const char* kTenantText =
    "e226102bfc8c06ed0d61b8c6e1091c4b26b22b63dd4e07258051b23d117ca822";
constexpr const char* kRootText =
    "f9d33c28e77af23ee3978983d5b801195ee1d16de5a07fa6526a4b2e4ef6207f";
constexpr const char* kBlockText =
    "dd9a029042517af64f1185e39f29507d94afb731dd45757e68cb118ec4601036";
constexpr const char* kImageBlockText =
    "b45ec4ee206cfafe93358c97b19b20f35e6d4a66cca443ec16758d0898ae1554";
constexpr const char* kSnapshotText =
    "8fd8dec5c1ec6f326053e0809f3001ffea4df00c9999917973811a4d48d22404";
constexpr const char* kContentText =
    "ac149f87b2f7baca757a090e677d3628e8e0a4a2021bff7aa9fb480d67966daa";

CacheKey CountingKey() {
  CacheKey key;
  std::iota(key.bytes.begin(), key.bytes.end(), uint8_t{0});
  return key;
}

std::vector<int32_t> CountingTokens(int32_t first, int64_t count = kCacheBlockTokens) {
  std::vector<int32_t> tokens(static_cast<size_t>(count));
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

TEST(BlockKey, DigestsAreThoseOfTheDefinition) {
  const CacheKey fingerprint = CountingKey();
  const CacheKey root = RootKey(fingerprint, TenantKey("alice"));
  const auto tokens = CountingTokens(1000);
  const CacheKey block = BlockKey(root, tokens, {}, 0);
  EXPECT_EQ(KeyText(TenantKey("alice")), kTenantText);
  EXPECT_EQ(KeyText(root), kRootText);
  EXPECT_EQ(KeyText(block), kBlockText);
  EXPECT_EQ(KeyText(SnapshotKey(block, CountingTokens(7, 3), {}, 128)), kSnapshotText);
  EXPECT_EQ(KeyText(ContentKey(tokens)), kContentText);
  const std::vector<ExtraInput> image = {{.position = 5, .content = fingerprint}};
  EXPECT_EQ(KeyText(BlockKey(root, tokens, image, 0)), kImageBlockText);
}

TEST(BlockKey, PositionsOfImagesCountFromTheBlock) {
  const auto tokens = CountingTokens(1000);
  const CacheKey root = RootKey(CountingKey(), TenantKey("alice"));
  const std::vector<ExtraInput> first = {{.position = 5, .content = CountingKey()}};
  const std::vector<ExtraInput> later = {{.position = 1285, .content = CountingKey()}};
  EXPECT_EQ(BlockKey(root, tokens, later, 1280), BlockKey(root, tokens, first, 0));
  EXPECT_NE(BlockKey(root, tokens, later, 1281), BlockKey(root, tokens, first, 0));
}

TEST(BlockKey, EveryInputChangesTheKey) {
  const CacheKey other = TenantKey("other");
  const auto tokens = CountingTokens(0);
  const std::vector<ExtraInput> image = {{.position = 3, .content = other}};
  const std::vector<ExtraInput> moved = {{.position = 4, .content = other}};
  const std::vector<ExtraInput> changed = {{.position = 3, .content = CountingKey()}};
  const std::vector<ExtraInput> two = {image[0], moved[0]};
  std::set<CacheKey> keys = {
      other,
      TenantKey(""),
      TenantKey("othe"),
      RootKey(other, other),
      RootKey(CountingKey(), other),
      RootKey(other, CountingKey()),
      ContentKey(tokens),
      ContentKey(CountingTokens(0, 127)),
      BlockKey(other, tokens, {}, 0),
      BlockKey(CountingKey(), tokens, {}, 0),
      BlockKey(other, tokens, image, 0),
      BlockKey(other, tokens, moved, 0),
      BlockKey(other, tokens, changed, 0),
      BlockKey(other, tokens, two, 0),
      SnapshotKey(other, tokens, {}, 0),
      SnapshotKey(other, {}, {}, 0),
      SnapshotKey(other, {}, image, 0),
      SnapshotKey(CountingKey(), {}, {}, 0),
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    auto edited = tokens;
    edited[i] += 1 << 20;
    keys.insert(BlockKey(other, edited, {}, 0));
  }
  EXPECT_EQ(keys.size(), 18 + tokens.size());
}

TEST(BlockKey, FieldsDoNotRunIntoEachOther) {
  const auto digest = [](std::string_view tag, std::string_view text, std::string_view next) {
    KeyHasher hasher("test");
    hasher.Add(tag, text);
    hasher.Add("next", next);
    return hasher.Finish();
  };
  EXPECT_NE(digest("a", "bc", "d"), digest("ab", "c", "d"));
  EXPECT_NE(digest("a", "bc", "d"), digest("a", "b", "cd"));
  EXPECT_NE(KeyHasher("a").Finish(), KeyHasher("b").Finish());
}

TEST(BlockKey, TextsOfKeysAreReadBack) {
  const CacheKey key = TenantKey("alice");
  EXPECT_EQ(ParseKey(KeyText(key)).value(), key);
  EXPECT_EQ(ParseKey(kTenantText).value(), key);
}

TEST(BlockKey, OtherTextsAreNoKeys) {
  const std::string text = kTenantText;
  for (const std::string& wrong : {std::string(), text.substr(1), text + "0", "E" + text.substr(1),
                                   " " + text.substr(1), text.substr(0, 63) + "g"}) {
    const auto key = ParseKey(wrong);
    ASSERT_FALSE(key.has_value()) << wrong;
    EXPECT_NE(key.error().message.find("hexadecimal"), std::string::npos);
  }
}

}  // namespace
}  // namespace minke

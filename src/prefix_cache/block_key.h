// Names of cached things: a chain of SHA-256 digests over token ids (serving.md 7.7). Two prompts
// share a key exactly if model, tenant, tokens and images up to that point are the same. Every
// input is tagged and has a length, so that no two different inputs hash the same bytes.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"

namespace minke {

// Tokens of a full block. The rows of shorter tails live in snapshots.
inline constexpr int64_t kCacheBlockTokens = 128;

struct CacheKey {
  std::array<uint8_t, 32> bytes{};
  auto operator<=>(const CacheKey&) const = default;  // NOLINT(modernize-use-nullptr): no pointer
};
struct CacheKeyHash {
  size_t operator()(const CacheKey& key) const;
};
std::string KeyText(const CacheKey& key);  // 64 hexadecimal digits
Result<CacheKey> ParseKey(std::string_view text);

// SHA-256 over tagged fields. Fields may be added until Finish().
class KeyHasher {
 public:
  explicit KeyHasher(std::string_view purpose);
  ~KeyHasher();
  KeyHasher(const KeyHasher&) = delete;
  KeyHasher& operator=(const KeyHasher&) = delete;
  void Add(std::string_view tag, std::span<const std::byte> bytes);
  void Add(std::string_view tag, std::string_view text);
  void Add(std::string_view tag, int64_t value);
  void Add(std::string_view tag, const CacheKey& key);
  void Add(std::string_view tag, std::span<const int32_t> tokens);
  CacheKey Finish();

 private:
  void* context_ = nullptr;  // EVP_MD_CTX of OpenSSL, which only block_key.cc includes
};

// Content that stands at a token position without being in the token ids: an image.
struct ExtraInput {
  int64_t position = 0;  // of its first placeholder token
  CacheKey content;
};

// What a tenant is called in records: a digest of the name, so that names are not on the disk.
CacheKey TenantKey(std::string_view tenant);
// The key before the first token.
CacheKey RootKey(const CacheKey& fingerprint, const CacheKey& tenant);
// Of a full block after `parent`. `extras`: those whose position is within the block; `start`: the
// position of its first token.
CacheKey BlockKey(const CacheKey& parent, std::span<const int32_t> tokens,
                  std::span<const ExtraInput> extras, int64_t start);
// Of a snapshot `tail.size()` tokens (0 to kCacheBlockTokens - 1) after the block `parent`.
CacheKey SnapshotKey(const CacheKey& parent, std::span<const int32_t> tail,
                     std::span<const ExtraInput> extras, int64_t start);
// Of the first block's tokens alone, for telling "another tenant or model" from "never seen".
CacheKey ContentKey(std::span<const int32_t> tokens);

}  // namespace minke

#include "prefix_cache/block_key.h"

#include <openssl/evp.h>

#include <cstring>

#include <fmt/format.h>

namespace minke {

namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

EVP_MD_CTX* Context(void* context) {
  return static_cast<EVP_MD_CTX*>(context);
}

// Without an I/O or key behind it, SHA-256 fails only for want of memory.
void Update(void* context, const void* bytes, size_t size) {
  CHECK(EVP_DigestUpdate(Context(context), bytes, size) == 1);
}

// What hangs below `parent` in a chain.
CacheKey LinkKey(std::string_view purpose, const CacheKey& parent, std::span<const int32_t> tokens,
                 std::span<const ExtraInput> extras, int64_t start) {
  KeyHasher hasher(purpose);
  hasher.Add("parent", parent);
  hasher.Add("tokens", tokens);
  for (const ExtraInput& extra : extras) {
    hasher.Add("extra position", extra.position - start);
    hasher.Add("extra content", extra.content);
  }
  return hasher.Finish();
}

}  // namespace

size_t CacheKeyHash::operator()(const CacheKey& key) const {
  size_t value = 0;
  std::memcpy(&value, key.bytes.data(), sizeof(value));
  return value;
}

std::string KeyText(const CacheKey& key) {
  std::string text;
  for (const uint8_t byte : key.bytes) {
    text += kDigits[byte >> 4];
    text += kDigits[byte & 15];
  }
  return text;
}

Result<CacheKey> ParseKey(std::string_view text) {
  CacheKey key;
  const bool sized = text.size() == 2 * key.bytes.size();
  for (size_t i = 0; sized && i < text.size(); ++i) {
    const size_t digit = kDigits.find(text[i]);
    if (digit == std::string_view::npos) return Fail("A key has hexadecimal digits only (0-9a-f).");
    uint8_t& byte = key.bytes[i / 2];
    byte = static_cast<uint8_t>(byte << 4 | digit);
  }
  if (!sized) {
    return Fail(fmt::format("A key has 64 hexadecimal digits, found {} characters.", text.size()));
  }
  return key;
}

KeyHasher::KeyHasher(std::string_view purpose) : context_(EVP_MD_CTX_new()) {
  CHECK(context_ != nullptr);
  CHECK(EVP_DigestInit_ex(Context(context_), EVP_sha256(), nullptr) == 1);
  Add("minke key", purpose);
}

KeyHasher::~KeyHasher() {
  EVP_MD_CTX_free(Context(context_));
}

void KeyHasher::Add(std::string_view tag, std::span<const std::byte> bytes) {
  const uint64_t sizes[2] = {tag.size(), bytes.size()};
  Update(context_, sizes, sizeof(sizes));
  Update(context_, tag.data(), tag.size());
  Update(context_, bytes.data(), bytes.size());
}

void KeyHasher::Add(std::string_view tag, std::string_view text) {
  Add(tag, std::as_bytes(std::span(text)));
}

void KeyHasher::Add(std::string_view tag, int64_t value) {
  Add(tag, std::as_bytes(std::span(&value, 1)));
}

void KeyHasher::Add(std::string_view tag, const CacheKey& key) {
  Add(tag, std::as_bytes(std::span(key.bytes)));
}

void KeyHasher::Add(std::string_view tag, std::span<const int32_t> tokens) {
  Add(tag, std::as_bytes(tokens));
}

CacheKey KeyHasher::Finish() {
  CacheKey key;
  unsigned int size = 0;
  CHECK(EVP_DigestFinal_ex(Context(context_), key.bytes.data(), &size) == 1);
  CHECK(size == key.bytes.size());
  return key;
}

CacheKey TenantKey(std::string_view tenant) {
  KeyHasher hasher("tenant");
  hasher.Add("name", tenant);
  return hasher.Finish();
}

CacheKey RootKey(const CacheKey& fingerprint, const CacheKey& tenant) {
  KeyHasher hasher("root");
  hasher.Add("fingerprint", fingerprint);
  hasher.Add("tenant", tenant);
  return hasher.Finish();
}

CacheKey BlockKey(const CacheKey& parent, std::span<const int32_t> tokens,
                  std::span<const ExtraInput> extras, int64_t start) {
  return LinkKey("block", parent, tokens, extras, start);
}

CacheKey SnapshotKey(const CacheKey& parent, std::span<const int32_t> tail,
                     std::span<const ExtraInput> extras, int64_t start) {
  return LinkKey("snapshot", parent, tail, extras, start);
}

CacheKey ContentKey(std::span<const int32_t> tokens) {
  KeyHasher hasher("content");
  hasher.Add("tokens", tokens);
  return hasher.Finish();
}

}  // namespace minke

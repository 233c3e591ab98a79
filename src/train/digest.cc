#include "train/digest.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <cstring>

#include <fmt/format.h>

namespace minke::train {

std::array<std::byte, kDigestBytes> DigestBytes(std::span<const std::byte> bytes) {
  XXH128_canonical_t canonical;
  XXH128_canonicalFromHash(&canonical, XXH3_128bits(bytes.data(), bytes.size()));
  static_assert(sizeof(canonical.digest) == kDigestBytes);
  std::array<std::byte, kDigestBytes> digest;
  std::memcpy(digest.data(), canonical.digest, kDigestBytes);
  return digest;
}

std::string Digest(std::string_view text) {
  std::string hex;
  for (const std::byte byte : DigestBytes(std::as_bytes(std::span(text.data(), text.size())))) {
    hex += fmt::format("{:02x}", static_cast<unsigned>(byte));
  }
  return hex;
}

}  // namespace minke::train

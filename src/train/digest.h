// The one checksum of the trainer: XXH3 with 128 bits, for whole files and for what a run is made
// of. It finds damage; it does not withstand an adversary.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <string>
#include <string_view>

namespace minke::train {

inline constexpr size_t kDigestBytes = 16;
std::array<std::byte, kDigestBytes> DigestBytes(std::span<const std::byte> bytes);
std::string Digest(std::string_view text);  // 32 hexadecimal digits

}  // namespace minke::train

// The keys that clients prove themselves with: a file of them, and the check of a request's headers
// (serving.md 1.6, 5.2). Keys are kept as digests only and compared in constant time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "server/api.h"

namespace minke {

inline constexpr uint64_t kApiKeyFileBytesMax = uint64_t{4} << 20;
inline constexpr size_t kApiKeysMax = 4096;
inline constexpr size_t kApiKeyNameBytesMax = 64;
inline constexpr size_t kApiKeyBytesMin = 8;
inline constexpr size_t kApiKeyBytesMax = 512;

// Immutable once read: may be used from any thread.
class ApiKeys {
 public:
  // Reads the file of --api-key-file: lines of a name and a key with blanks between them; empty
  // lines, and lines that begin with #, are comments. A name may have several keys. Errors name
  // file and line and repeat nothing of it: no keys, a key that another line has, lines of another
  // shape, and what is above the limits.
  static Result<ApiKeys> Read(const std::string& path);
  static Result<ApiKeys> Parse(std::string_view text, std::string_view what);

  // The name of the key in the headers `authorization` ("Bearer KEY") or `x_api_key`; either of
  // them may be empty, and where both are there, one valid key is enough. The error is the 401
  // answer. Without keys (an object made by default) everybody is let in, under the name "".
  ApiResult<std::string> Check(std::string_view authorization, std::string_view x_api_key) const;

  size_t size() const { return keys_.size(); }
  // What a person should know of the file, such as who can read it.
  const std::vector<std::string>& warnings() const { return warnings_; }

 private:
  using Digest = std::array<unsigned char, 32>;
  struct Key {
    Digest digest = {};
    std::string name;
    size_t line = 0;
  };
  static Digest DigestOf(std::string_view key);
  // The index of the key, or size().
  size_t Find(std::string_view key) const;

  std::vector<Key> keys_;
  std::vector<std::string> warnings_;
};

// The tenant of a request: whose cache it is. Made by the server of the key's name and the client's
// user_id, so that no user_id leads out of the key's own tenants (serving.md 6.G 105). At most
// kTenantBytesMax bytes.
std::string TenantOf(std::string_view key_name, std::string_view user_id);

}  // namespace minke

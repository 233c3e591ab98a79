#include "server/api_keys.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "core/storage_system.h"

namespace minke {

namespace {

constexpr std::string_view kBearer = "bearer ";
constexpr size_t kShownKeyBytes = 4;  // of a wrong key, in the answer (serving.md 1.6)
constexpr uint32_t kReadableByOthers = 04;

bool IsBlankChar(char c) {
  return c == ' ' || c == '\t';
}

std::string_view StripBlanks(std::string_view text) {
  while (!text.empty() && IsBlankChar(text.front())) text.remove_prefix(1);
  while (!text.empty() && IsBlankChar(text.back())) text.remove_suffix(1);
  return text;
}

bool IsVisible(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return c > ' ' && c < '\x7f'; });
}

bool IsKeyName(std::string_view text) {
  return !text.empty() && text.size() <= kApiKeyNameBytesMax &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                  c == '.' || c == '_' || c == '-' || c == '@';
         });
}

char LowerCase(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

// The key of "Bearer KEY", or empty.
std::string_view BearerKey(std::string_view authorization) {
  if (authorization.size() <= kBearer.size()) return {};
  for (size_t i = 0; i < kBearer.size(); ++i) {
    if (LowerCase(authorization[i]) != kBearer[i]) return {};
  }
  return StripBlanks(authorization.substr(kBearer.size()));
}

ApiError Unauthorized(std::string message) {
  ApiError error;
  error.status = 401;
  error.message = std::move(message);
  error.type = "authentication_error";
  error.code = "invalid_request_error";
  return error;
}

// Short keys show nothing, and neither do bytes that are no text.
ApiError WrongKey(std::string_view key) {
  const std::string_view end =
      key.size() >= kApiKeyBytesMin ? key.substr(key.size() - kShownKeyBytes) : std::string_view();
  return Unauthorized(fmt::format("Authentication Fails, Your api key: ****{} is invalid",
                                  IsVisible(end) ? end : std::string_view()));
}

// Nothing of the line is in the error: it may be the key.
Error LineError(std::string_view what, size_t line, std::string_view problem) {
  return {ErrorCode::kInvalidInput, fmt::format("{}, line {}: {}.", what, line, problem)};
}

}  // namespace

ApiKeys::Digest ApiKeys::DigestOf(std::string_view key) {
  Digest digest = {};
  // Without an I/O behind it, SHA-256 fails only for want of memory.
  CHECK(EVP_Digest(key.data(), key.size(), digest.data(), nullptr, EVP_sha256(), nullptr) == 1);
  return digest;
}

Result<ApiKeys> ApiKeys::Read(const std::string& path) {
  std::string text = TRY(ReadFile(path, kApiKeyFileBytesMax));
  Result<ApiKeys> keys = Parse(text, path);
  OPENSSL_cleanse(text.data(), text.size());
  if (!keys) return keys;
  const auto storage = MakePosixStorage();
  const std::string file = TRY(storage->RealPath(path));
  const auto status = TRY(storage->Inspect(file));
  if (status.has_value() && (status->mode & kReadableByOthers) != 0) {
    keys->warnings_.push_back(fmt::format(
        "The key file {} can be read by every user of this machine; chmod 600 {} changes that.",
        path, path));
  }
  return keys;
}

Result<ApiKeys> ApiKeys::Parse(std::string_view text, std::string_view what) {
  ApiKeys keys;
  for (size_t line = 1; !text.empty(); ++line) {
    const size_t end = text.find('\n');
    std::string_view rest = text.substr(0, end);
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
    if (!rest.empty() && rest.back() == '\r') rest.remove_suffix(1);
    rest = StripBlanks(rest);
    if (rest.empty() || rest.front() == '#') continue;
    const auto fail = [&](std::string_view problem) {
      return tl::unexpected<Error>(LineError(what, line, problem));
    };
    const size_t blank = rest.find_first_of(" \t");
    if (blank == std::string_view::npos) return fail("expected a name, a blank and a key");
    const std::string_view name = rest.substr(0, blank);
    const std::string_view key = StripBlanks(rest.substr(blank));
    if (!IsKeyName(name)) {
      return fail(
          fmt::format("the name in front of the key must be 1 to {} letters, digits, dots, "
                      "dashes, underscores or @",
                      kApiKeyNameBytesMax));
    }
    if (!IsVisible(key) || key.size() < kApiKeyBytesMin || key.size() > kApiKeyBytesMax) {
      return fail(
          fmt::format("the key behind the name must be {} to {} visible ASCII characters "
                      "without blanks",
                      kApiKeyBytesMin, kApiKeyBytesMax));
    }
    if (keys.keys_.size() >= kApiKeysMax) {
      return fail(fmt::format("there are more than {} keys", kApiKeysMax));
    }
    const size_t known = keys.Find(key);
    if (known < keys.keys_.size()) {
      return fail(fmt::format("line {} has the same key", keys.keys_[known].line));
    }
    keys.keys_.push_back({.digest = DigestOf(key), .name = std::string(name), .line = line});
  }
  if (keys.keys_.empty()) {
    return Fail(fmt::format("{} has no key; a line of it is a name, a blank and a key.", what));
  }
  return keys;
}

size_t ApiKeys::Find(std::string_view key) const {
  const Digest digest = DigestOf(key);
  // Every key is compared, whichever fits: the time says nothing.
  size_t found = keys_.size();
  for (size_t i = 0; i < keys_.size(); ++i) {
    const bool same = CRYPTO_memcmp(digest.data(), keys_[i].digest.data(), digest.size()) == 0;
    found = same ? i : found;
  }
  return found;
}

ApiResult<std::string> ApiKeys::Check(std::string_view authorization,
                                      std::string_view x_api_key) const {
  if (keys_.empty()) return std::string();
  const std::string_view bearer = BearerKey(authorization);
  const std::string_view other = StripBlanks(x_api_key);
  if (bearer.empty() && other.empty()) {
    return tl::unexpected(
        Unauthorized("Authentication Fails (auth header format should be Bearer sk-...)"));
  }
  for (const std::string_view key : {bearer, other}) {
    if (key.empty()) continue;
    const size_t found = Find(key);
    if (found < keys_.size()) return keys_[found].name;
  }
  return tl::unexpected(WrongKey(bearer.empty() ? other : bearer));
}

std::string TenantOf(std::string_view key_name, std::string_view user_id) {
  std::string tenant(key_name);
  if (user_id.empty()) return tenant;
  // No name of a key has a slash in it.
  tenant += '/';
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest = {};
  unsigned size = 0;
  CHECK(EVP_Digest(user_id.data(), user_id.size(), digest.data(), &size, EVP_sha256(), nullptr) ==
        1);
  for (unsigned i = 0; i < size; ++i) tenant += fmt::format("{:02x}", digest[i]);
  return tenant;
}

}  // namespace minke

// Keys of clients: the file, the check of headers, the answers, and tenants.
#include "server/api_keys.h"

#include <gtest/gtest.h>
#include <sys/stat.h>

#include <set>

#include "engine/engine.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::TempDirectory;

constexpr const char* kFile =
    "# who may come in\n"
    "alice  sk-alice-0123456789\n"
    "\n"
    "bob\tsk-bob-0123456789fcc2\r\n"
    "  alice sk-alice-second-key  \n";

ApiKeys Keys() {
  auto keys = ApiKeys::Parse(kFile, "keys.txt");
  CHECK(keys.has_value(), keys.error().message);
  return std::move(*keys);
}

std::string KeysErrorOf(std::string_view text) {
  const auto keys = ApiKeys::Parse(text, "keys.txt");
  return keys.has_value() ? "no error" : keys.error().message;
}

ApiError Refusal(std::string_view authorization, std::string_view x_api_key) {
  const auto name = Keys().Check(authorization, x_api_key);
  if (name.has_value()) return {.status = 200, .message = *name};
  return name.error();
}

TEST(ApiKeys, BearerAndXApiKeyGiveTheName) {
  const ApiKeys keys = Keys();
  EXPECT_EQ(keys.size(), 3U);
  EXPECT_EQ(keys.Check("Bearer sk-alice-0123456789", "").value_or("?"), "alice");
  EXPECT_EQ(keys.Check("bEARER   sk-alice-second-key ", "").value_or("?"), "alice");
  EXPECT_EQ(keys.Check("", "sk-bob-0123456789fcc2").value_or("?"), "bob");
  // One valid key is enough.
  EXPECT_EQ(keys.Check("Bearer sk-old-old-old", "sk-bob-0123456789fcc2").value_or("?"), "bob");
  EXPECT_EQ(keys.Check("Basic YWxpY2U6eA==", "sk-bob-0123456789fcc2").value_or("?"), "bob");
}

TEST(ApiKeys, WithoutKeysEverybodyComesIn) {
  EXPECT_EQ(ApiKeys().Check("", "").value_or("?"), "");
  EXPECT_EQ(ApiKeys().Check("Bearer anything", "").value_or("?"), "");
}

TEST(ApiKeys, OnlyTheWholeKeyIsRight) {
  for (const char* wrong :
       {"sk-bob-0123456789fcc", "sk-bob-0123456789fcc2x", "k-bob-0123456789fcc2",
        "SK-bob-0123456789fcc2", "sk-bob-0123456789fcc2 x", "bob", "bob sk-bob-0123456789fcc2"}) {
    EXPECT_EQ(Refusal(std::string("Bearer ") + wrong, "").status, 401) << wrong;
    EXPECT_EQ(Refusal("", wrong).status, 401) << wrong;
  }
}

TEST(ApiKeys, ARefusalHasTheWordsOfTheHostedService) {
  const ApiError wrong = Refusal("Bearer sk-wrong-0123456789fcc2", "");
  EXPECT_EQ(wrong.status, 401);
  EXPECT_EQ(wrong.message, "Authentication Fails, Your api key: ****fcc2 is invalid");
  EXPECT_EQ(wrong.type, "authentication_error");
  EXPECT_EQ(wrong.code, "invalid_request_error");
  EXPECT_EQ(wrong.param, "");
  for (const char* header : {"", "Bearer", "Bearer ", "Bearer    ", "sk-bob-0123456789fcc2",
                             "Basic YWxpY2U6eA==", "Bearersk-bob-0123456789fcc2"}) {
    const ApiError missing = Refusal(header, "");
    EXPECT_EQ(missing.status, 401) << header;
    EXPECT_EQ(missing.message, "Authentication Fails (auth header format should be Bearer sk-...)")
        << header;
  }
}

TEST(ApiKeys, ARefusalRepeatsFourCharactersAtMost) {
  const std::string secret = "sk-0123456789-abcdefghijkl";
  const ApiError wrong = Refusal("", secret);
  EXPECT_NE(wrong.message.find("****ijkl "), std::string::npos) << wrong.message;
  EXPECT_EQ(wrong.message.find("hijkl"), std::string::npos) << wrong.message;
  // Too short to show a part of, or no text.
  for (const std::string& key : {std::string("1234567"), std::string("sk-123456\x01\x02\x03"),
                                 std::string("sk-123456\xff\xfe\xfd\xfc")}) {
    EXPECT_EQ(Refusal("", key).message, "Authentication Fails, Your api key: **** is invalid");
  }
}

TEST(ApiKeys, WrongFilesAreNamedByLineWithoutTheirKeys) {
  struct Case {
    std::string text;
    std::string message;
  };
  const std::string long_name(kApiKeyNameBytesMax + 1, 'n');
  const std::string long_key(kApiKeyBytesMax + 1, 'k');
  const std::vector<Case> cases = {
      {"", "keys.txt has no key"},
      {"# nothing\n\n", "keys.txt has no key"},
      {"alice sk-good-0123456\nsk-lonely-secret\n", "keys.txt, line 2: expected a name"},
      {"sk/lonely/secret alice1234\n", "line 1: the name in front of the key must be"},
      {long_name + " sk-secret-0123456\n", "line 1: the name"},
      {"alice " + long_key + "\n", "line 1: the key behind the name must be"},
      {"alice secret7\n", "line 1: the key"},
      {"alice sk-secret-one two-secret\n", "without blanks"},
      {"alice sk-secret-\xc3\xa4\xc3\xb6\n", "line 1: the key"},
      {"alice sk-secret-0123456\n\nbob sk-secret-0123456\n", "line 3: line 1 has the same key"},
  };
  for (const Case& wrong : cases) {
    const std::string message = KeysErrorOf(wrong.text);
    EXPECT_NE(message.find(wrong.message), std::string::npos) << message;
    EXPECT_EQ(message.find("secret"), std::string::npos) << message;
    EXPECT_EQ(message.find("kkkkk"), std::string::npos) << message;
  }
}

TEST(ApiKeys, FilesHaveLimits) {
  EXPECT_EQ(
      KeysErrorOf(std::string(kApiKeyNameBytesMax, 'n') + " " + std::string(kApiKeyBytesMax, 'k') +
                  "\nb " + std::string(kApiKeyBytesMin, 'k')),
      "no error");
  std::string text;
  for (size_t i = 0; i < kApiKeysMax; ++i) text += "n sk-key-" + std::to_string(10'000 + i) + "\n";
  // Finding equal keys compares each with all before it.
  EXPECT_EQ(KeysErrorOf(text), "no error");
  EXPECT_NE(KeysErrorOf(text + "n sk-one-more\n").find("more than 4096 keys"), std::string::npos);
  const TempDirectory directory;
  directory.Write("keys.txt", std::string(kApiKeyFileBytesMax + 1, '#'));
  const auto keys = ApiKeys::Read(directory.Path("keys.txt"));
  ASSERT_FALSE(keys.has_value());
  EXPECT_EQ(keys.error().code, ErrorCode::kLimit);
}

TEST(ApiKeys, AFileThatOthersCanReadIsWarnedOf) {
  const TempDirectory directory;
  directory.Write("keys.txt", kFile);
  const std::string path = directory.Path("keys.txt");
  ASSERT_EQ(::chmod(path.c_str(), 0640), 0);
  auto keys = ApiKeys::Read(path);
  ASSERT_TRUE(keys.has_value()) << keys.error().message;
  EXPECT_TRUE(keys->warnings().empty());
  EXPECT_EQ(keys->size(), 3U);
  ASSERT_EQ(::chmod(path.c_str(), 0644), 0);
  keys = ApiKeys::Read(path);
  ASSERT_TRUE(keys.has_value()) << keys.error().message;
  ASSERT_EQ(keys->warnings().size(), 1U);
  EXPECT_NE(keys->warnings()[0].find("chmod 600"), std::string::npos);
  EXPECT_NE(keys->warnings()[0].find(path), std::string::npos);
  EXPECT_EQ(ApiKeys::Read(directory.Path("none")).error().code, ErrorCode::kNotFound);
}

// vllm#16016 (CVE-2025-46570): one user could tell from the time what another one had cached. A
// tenant comes from the server's key, and no user_id leads into another key's tenants.
TEST(Reports, Vllm16016NoUserIdReachesAnotherKeysTenants) {
  std::set<std::string> tenants;
  size_t count = 0;
  for (const char* name : {"", "a", "alice", "alice.a"}) {
    for (const std::string& user :
         {std::string(), std::string("a"), std::string("alice"), std::string("/a"),
          std::string("alice/"), std::string(512, 'u'), std::string("\0a", 2), std::string("a\n"),
          TenantOf("alice", "a"), TenantOf("", "a")}) {
      tenants.insert(TenantOf(name, user));
      ++count;
    }
  }
  EXPECT_EQ(tenants.size(), count);
  EXPECT_EQ(TenantOf("alice", ""), "alice");
  EXPECT_LE(TenantOf(std::string(kApiKeyNameBytesMax, 'n'), std::string(5000, 'u')).size(),
            kTenantBytesMax);
}

}  // namespace
}  // namespace minke

// What the whole server answers to requests of every family, field by field: tests/golden/server.
// MINKE_WRITE_GOLDEN=1 writes the answers there anew, for a person to read (its README.md).
#include <cstdlib>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/file.h"
#include "core/json.h"
#include "tests/serve/family_answers.h"
#include "tests/serve/joined_answer.h"
#include "tests/serve/whole_server.h"
#include "tests/server/raw_client.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

constexpr const char* kGoldenKey = "sk-golden";
constexpr int64_t kGoldenBodyBytesMax = 4096;
constexpr int64_t kGoldenContextTokens = 8192;
constexpr uint64_t kGoldenFileBytesMax = 1 << 20;

bool Rewriting() {
  const char* const value = std::getenv("MINKE_WRITE_GOLDEN");
  return value != nullptr && std::string_view(value) == "1";
}

std::string GoldenFile(const std::string& name) {
  return std::string(MINKE_GOLDEN_DIR) + "/server/" + name + ".json";
}

JsonArray ReadCases(const std::string& name) {
  const Result<std::string> text = ReadFile(GoldenFile(name), kGoldenFileBytesMax);
  EXPECT_TRUE(text.has_value()) << text.error().message;
  if (!text.has_value()) return {};
  Result<Json> json = ParseJson(*text, GoldenFile(name));
  EXPECT_TRUE(json.has_value() && json->is_array());
  return json.has_value() ? json->as_array() : JsonArray();
}

// A line for each member, and for each event.
void WriteCases(const std::string& name, const JsonArray& cases) {
  std::ofstream file(GoldenFile(name));
  const auto compact = [](const Json& json) { return DumpJson(json, JsonStyle::kPython); };
  for (size_t i = 0; i < cases.size(); ++i) {
    file << (i == 0 ? "[{" : ", {");
    std::string_view before = "\n ";
    for (const auto& [member, value] : cases[i].as_object()) {
      file << std::exchange(before, ",\n ") << compact(member) << ": ";
      if (member != "events") {
        file << compact(value);
        continue;
      }
      std::string_view between = "[\n  ";
      for (const Json& event : value.as_array()) {
        file << std::exchange(between, ",\n  ") << compact(event);
      }
      file << "]";
    }
    file << "}\n";
  }
  file << "]\n";
}

std::string TextOf(const Json& json, std::string_view name) {
  const Json* member = json.Find(name);
  return member != nullptr && member->is_string() ? member->as_string() : std::string();
}

// Takes out of an answer what differs from run to run, and collects its ids.
class Normaliser {
 public:
  Json Normal(const Json& value) {
    if (value.is_string()) return WithoutIds(value.as_string());
    if (value.is_array()) {
      JsonArray normal;
      for (const Json& element : value.as_array()) normal.push_back(Normal(element));
      return normal;
    }
    if (!value.is_object()) return value;
    JsonObject normal;
    for (const JsonMember& member : value.as_object()) {
      normal.emplace_back(member.first, IsOfTheMoment(member) ? Json(0) : Normal(member.second));
    }
    return normal;
  }
  // Of one answer there is one: everything in it is named after it.
  const std::set<std::string>& ids() const { return ids_; }

 private:
  static bool IsOfTheMoment(const JsonMember& member) {
    const std::string& name = member.first;
    return member.second.is_number() &&
           (name == "created" || name == "created_at" || name == "completed_at" || name == "cost" ||
            name.ends_with("_seconds"));
  }
  std::string WithoutIds(const std::string& text) {
    constexpr size_t kIdDigits = 32;
    constexpr std::string_view kDigits = "0123456789abcdef";
    for (size_t at = 0; at + kIdDigits <= text.size(); ++at) {
      const std::string id = text.substr(at, kIdDigits);
      if (id.find_first_not_of(kDigits) != std::string::npos) continue;
      ids_.insert(id);
      return text.substr(0, at) + "ID" + text.substr(at + kIdDigits);
    }
    return text;
  }

  std::set<std::string> ids_;
};

std::unique_ptr<WholeServer> StartGolden(const JsonArray& cases, const TempDirectory& directory) {
  directory.Write("keys", std::string("golden ") + kGoldenKey + "\n");
  WholeServerOptions options;
  options.model_dir = std::string(MINKE_GOLDEN_DIR) + "/chat";
  for (const Json& golden : cases) {
    options.script.scripts.push_back(
        {fmt::format("case {} now", TextOf(golden, "name")), TextOf(golden, "says")});
  }
  options.engine.threads = 1;
  options.engine.context_tokens_max = kGoldenContextTokens;
  options.server.api_key_file = directory.Path("keys");
  options.server.http.body_bytes_max = kGoldenBodyBytesMax;
  options.server.version = "1";
  auto server = WholeServer::Start(std::move(options));
  EXPECT_TRUE(server.has_value()) << server.error().message;
  return server.has_value() ? std::move(*server) : nullptr;
}

test::RawAnswer AskServer(uint16_t port, const std::string& method, const std::string& path,
                          const std::string& key, const std::string& body) {
  test::RawClient client(port);
  const std::string authorization = key.empty() ? "" : "Authorization: Bearer " + key + "\r\n";
  return client.Ask(
      fmt::format("{} {} HTTP/1.1\r\nHost: localhost\r\n{}Content-Length: {}\r\n\r\n{}", method,
                  path, authorization, body.size(), body));
}

Json EventsJson(std::string_view stream, Normaliser* normaliser) {
  JsonArray events;
  for (const SentEvent& event : EventsOf(stream)) {
    const Result<Json> data = ParseJson(event.data, "an event");
    Json json = data ? normaliser->Normal(*data) : Json(event.data);
    if (!event.name.empty()) {
      Json named;
      named.Set("event", event.name);
      named.Set("data", std::move(json));
      json = std::move(named);
    }
    events.push_back(std::move(json));
  }
  return events;
}

// Compares with the file, or puts what was answered in its place.
void CheckMember(Json* golden, const std::string& member, const Json& answered) {
  if (Rewriting()) return golden->Set(member, answered);
  const Json* expected = golden->Find(member);
  ASSERT_NE(expected, nullptr) << "there is no " << member << ": see the README of golden/server";
  EXPECT_EQ(DumpJson(answered, JsonStyle::kPretty), DumpJson(*expected, JsonStyle::kPretty));
}

void CheckAnswer(uint16_t port, ApiFamily family, Json* golden) {
  Json request = *golden->Find("request");
  const std::string path = PathOf(family);
  const test::RawAnswer whole =
      AskServer(port, "POST", path, kGoldenKey, DumpJson(request, JsonStyle::kCompact));
  ASSERT_EQ(whole.status, 200) << whole.body;
  EXPECT_EQ(whole.headers.at("content-type"), "application/json");
  const Result<Json> body = ParseJson(whole.body, "the answer");
  ASSERT_TRUE(body.has_value()) << body.error().message;
  Normaliser of_whole;
  CheckMember(golden, "answer", of_whole.Normal(*body));
  EXPECT_EQ(of_whole.ids().size(), 1U) << whole.body;

  request.Set("stream", true);
  const test::RawAnswer stream =
      AskServer(port, "POST", path, kGoldenKey, DumpJson(request, JsonStyle::kCompact));
  ASSERT_EQ(stream.status, 200) << stream.body;
  EXPECT_EQ(stream.headers.at("content-type"), "text/event-stream; charset=utf-8");
  Normaliser of_stream;
  CheckMember(golden, "events", EventsJson(stream.body, &of_stream));
  EXPECT_EQ(of_stream.ids().size(), 1U) << stream.body;
  // But for the ids, the stream is the answer.
  std::string events = stream.body;
  for (size_t at = events.find(*of_stream.ids().begin()); at != std::string::npos;
       at = events.find(*of_stream.ids().begin(), at)) {
    events.replace(at, of_stream.ids().begin()->size(), *of_whole.ids().begin());
  }
  EXPECT_EQ(JoinEvents(family, EventsOf(events)), JoinBody(family, whole.body));
}

void CheckFamily(ApiFamily family, const std::string& file) {
  const TempDirectory directory;
  JsonArray cases = ReadCases(file);
  ASSERT_FALSE(cases.empty());
  const auto server = StartGolden(cases, directory);
  ASSERT_NE(server, nullptr);
  for (Json& golden : cases) {
    SCOPED_TRACE(TextOf(golden, "name"));
    CheckAnswer(server->port(), family, &golden);
  }
  if (Rewriting()) WriteCases(file, cases);
}

TEST(ServerGolden, Chat) {
  CheckFamily(ApiFamily::kChat, "chat");
}

TEST(ServerGolden, Completions) {
  CheckFamily(ApiFamily::kCompletions, "completions");
}

TEST(ServerGolden, Responses) {
  CheckFamily(ApiFamily::kResponses, "responses");
}

TEST(ServerGolden, Messages) {
  CheckFamily(ApiFamily::kMessages, "messages");
}

void CheckError(uint16_t port, Json* golden) {
  const Json* bytes = golden->Find("body_bytes");
  const std::string body = bytes != nullptr ? std::string(static_cast<size_t>(bytes->as_int()), 'x')
                                            : TextOf(*golden, "body");
  const test::RawAnswer answer = AskServer(port, TextOf(*golden, "method"), TextOf(*golden, "path"),
                                           TextOf(*golden, "key"), body);
  ASSERT_TRUE(answer.complete);
  CheckMember(golden, "status", answer.status);
  Json headers;
  for (const char* name : {"content-type", "retry-after", "www-authenticate", "allow"}) {
    const auto header = answer.headers.find(name);
    if (header != answer.headers.end()) headers.Set(name, header->second);
  }
  CheckMember(golden, "headers", headers);
  Normaliser normaliser;
  const Result<Json> json = ParseJson(answer.body, "the answer");
  CheckMember(golden, "answer",
              json ? normaliser.Normal(*json) : EventsJson(answer.body, &normaliser));
}

TEST(ServerGolden, Errors) {
  const TempDirectory directory;
  JsonArray cases = ReadCases("errors");
  ASSERT_FALSE(cases.empty());
  const auto server = StartGolden({}, directory);
  ASSERT_NE(server, nullptr);
  for (Json& golden : cases) {
    SCOPED_TRACE(TextOf(golden, "name"));
    CheckError(server->port(), &golden);
  }
  if (Rewriting()) WriteCases("errors", cases);
}

}  // namespace
}  // namespace minke::testing

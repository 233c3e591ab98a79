// The names of the model (serving.md 1.1).
#include "server/model_table.h"

#include <gtest/gtest.h>

#include <string>

#include "core/file.h"
#include "tests/server/openai_support.h"
#include "tests/support/golden.h"

namespace minke {
namespace {

using testing::CanonicalJson;
using testing::MustParseJson;

std::string AnswersAs(const ModelTable& table, std::string_view name) {
  const ApiResult<const ModelEntry*> entry = table.Resolve(name);
  return entry.has_value() ? (*entry)->id : entry.error().message;
}

std::string TableError(std::string_view json) {
  const Result<ModelTable> table = ModelTable::Parse(MustParseJson(json), "models.json");
  return table.has_value() ? "no error" : table.error().message;
}

ModelTable MustTable(std::string_view json) {
  Result<ModelTable> table = ModelTable::Parse(MustParseJson(json), "models.json");
  CHECK(table.has_value(), table.error().message);
  return std::move(*table);
}

TEST(ModelTable, EveryAliasAnswersAsTheModel) {
  const ModelTable table = ModelTable::Default();
  for (const char* name :
       {"deepseek-flash", "deepseek-v4.1-flash", "deepseek-v4-flash", "deepseek-v4-pro",
        "deepseek-v4-flash-vision-exp", "deepseek-flash[1m]", "claude-opus-4-8", "claude-haiku-4-5",
        "claude-sonnet-4-6[1m]", "deepseek-ai/DeepSeek-V4.1-Flash"}) {
    EXPECT_EQ(AnswersAs(table, name), "deepseek-flash") << name;
  }
}

TEST(ModelTable, UnknownNamesAreRefusedInTheWordsOfTheService) {
  const ApiResult<const ModelEntry*> entry = ModelTable::Default().Resolve("gpt-9");
  ASSERT_FALSE(entry.has_value());
  EXPECT_EQ(entry.error().status, 400);
  EXPECT_EQ(entry.error().param, "model");
  EXPECT_EQ(entry.error().message,
            "The supported API model names are deepseek-flash, but you passed gpt-9");
  const ModelTable two = MustTable(
      R"({"models": [{"id": "deepseek-flash"}, {"id": "deepseek-v4-pro"},
                     {"id": "hidden", "listed": false}]})");
  EXPECT_EQ(AnswersAs(two, "NAME"),
            "The supported API model names are deepseek-flash, deepseek-v4-pro, but you passed "
            "NAME");
  EXPECT_EQ(AnswersAs(two, "hidden"), "hidden");
  EXPECT_NE(AnswersAs(two, "").find("you passed no name"), std::string::npos);
  EXPECT_EQ(AnswersAs(two, std::string(100'000, 'x')).size(),
            std::string("The supported API model names are deepseek-flash, deepseek-v4-pro, but "
                        "you passed a longer name")
                .size());
  for (const char* stopped : {"deepseek-chat", "deepseek-reasoner", "Claude-x", "[1m]"}) {
    EXPECT_FALSE(ModelTable::Default().Resolve(stopped).has_value()) << stopped;
  }
}

TEST(ModelTable, UnknownNamesAreServedIfTheTableSaysSo) {
  const ModelTable table =
      MustTable(R"({"models": [{"id": "a"}, {"id": "b"}], "unknown_names": "serve"})");
  EXPECT_EQ(AnswersAs(table, "gpt-9"), "a");
  EXPECT_EQ(AnswersAs(table, ""), "a");
  EXPECT_EQ(AnswersAs(table, "b"), "b");
}

TEST(ModelTable, TheLongestBeginningWins) {
  const ModelTable table = MustTable(
      R"({"models": [{"id": "flash", "aliases": ["claude-*", "claude-opus-mini"]},
                     {"id": "pro", "aliases": ["claude-opus*"]},
                     {"id": "rest", "aliases": ["*"]}]})");
  EXPECT_EQ(AnswersAs(table, "claude-haiku"), "flash");
  EXPECT_EQ(AnswersAs(table, "claude-opus-5"), "pro");
  EXPECT_EQ(AnswersAs(table, "claude-opus"), "pro");
  EXPECT_EQ(AnswersAs(table, "claude-opus-mini"), "flash");
  EXPECT_EQ(AnswersAs(table, "claude"), "rest");
}

TEST(ModelTable, ErrorsNameFileAndMember) {
  const std::pair<const char*, const char*> kCases[] = {
      {R"([])", "models"},
      {R"({})", "models"},
      {R"({"models": []})", "models must have 1 to"},
      {R"({"models": ["x"]})", "models[0] must be an object"},
      {R"({"models": [{"id": ""}]})", "models[0].id"},
      {R"({"models": [{}]})", "models[0]"},
      {R"({"models": [{"id": 5}]})", "models[0]"},
      {R"({"models": [{"id": "a*"}]})", "models[0].id"},
      {R"({"models": [{"id": "a", "alias": []}]})", "unknown member \"alias\""},
      {R"({"models": [{"id": "a", "listed": "no"}]})", "listed"},
      {R"({"models": [{"id": "a", "aliases": "b"}]})", "aliases"},
      {R"({"models": [{"id": "a", "aliases": [5]}]})", "models[0].aliases[0]"},
      {R"({"models": [{"id": "a", "aliases": ["b*c"]}]})", "models[0].aliases[0]"},
      {R"({"models": [{"id": "a", "aliases": ["a"]}]})", "models[0].aliases[0]"},
      {R"({"models": [{"id": "a"}, {"id": "a"}]})", "models[1].id"},
      {R"({"models": [{"id": "a"}], "unknown_names": "maybe"})", "unknown_names"},
      {R"({"models": [{"id": "a"}], "default": "a"})", "unknown member \"default\""},
  };
  for (const auto& [json, part] : kCases) {
    const std::string error = TableError(json);
    EXPECT_NE(error.find(part), std::string::npos) << json << "\n" << error;
    EXPECT_NE(error.find("models.json"), std::string::npos) << json << "\n" << error;
  }
}

TEST(ModelTable, Limits) {
  const auto entries = [](size_t count) {
    std::string list;
    for (size_t i = 0; i < count; ++i) {
      list += (i > 0 ? ", {\"id\": \"m" : "{\"id\": \"m") + std::to_string(i) + "\"}";
    }
    return "{\"models\": [" + list + "]}";
  };
  EXPECT_EQ(TableError(entries(kModelEntriesMax)), "no error");
  EXPECT_NE(TableError(entries(kModelEntriesMax + 1)).find("64"), std::string::npos);
  const auto aliases = [](size_t count) {
    std::string list;
    for (size_t i = 0; i < count; ++i) list += (i > 0 ? ", \"a" : "\"a") + std::to_string(i) + "\"";
    return "{\"models\": [{\"id\": \"m\", \"aliases\": [" + list + "]}]}";
  };
  EXPECT_EQ(TableError(aliases(kModelAliasesMax)), "no error");
  EXPECT_NE(TableError(aliases(kModelAliasesMax + 1)).find("at most 256"), std::string::npos);
  const auto name = [](size_t bytes) {
    return "{\"models\": [{\"id\": \"" + std::string(bytes, 'n') + "\"}]}";
  };
  EXPECT_EQ(TableError(name(kModelNameBytesMax)), "no error");
  EXPECT_NE(TableError(name(kModelNameBytesMax + 1)).find("129 bytes"), std::string::npos);
}

TEST(ModelTable, TheShippedFileIsTheDefault) {
  const Result<std::string> text =
      ReadFile(std::string(MINKE_SOURCE_DIR) + "/contrib/models/models.json", 1 << 16);
  ASSERT_TRUE(text.has_value()) << text.error().message;
  const Json file = MustParseJson(*text);
  EXPECT_EQ(CanonicalJson(file), CanonicalJson(ModelTable::Default().ToJson()));
  const Result<ModelTable> table = ModelTable::Parse(file, "models.json");
  ASSERT_TRUE(table.has_value()) << table.error().message;
  EXPECT_EQ(table->entries(), ModelTable::Default().entries());
}

// Both families' lists, the array that Codex asks for, and what the model does unless told
// otherwise (6.B 33).
TEST(ModelTable, List) {
  const Json golden = testing::GoldenJson("api/models/list.json");
  const Json& given = *golden.Find("facts");
  ModelFacts facts;
  facts.created = given.Find("created")->as_int();
  facts.context_tokens_max = given.Find("context_tokens_max")->as_int();
  const Json body = ModelTable::Default().ListBody(facts);
  EXPECT_EQ(body.Find("object")->as_string(), "list");
  EXPECT_EQ(CanonicalJson(*body.Find("data")), CanonicalJson(*golden.Find("data")));
  EXPECT_EQ(body.Find("first_id")->as_string(), "deepseek-flash");
  EXPECT_EQ(body.Find("last_id")->as_string(), "deepseek-flash");
  EXPECT_FALSE(body.Find("has_more")->as_bool());
  const Json& codex = body.Find("models")->as_array().at(0);
  EXPECT_EQ(codex.Find("slug")->as_string(), "deepseek-flash");
  EXPECT_EQ(codex.Find("context_window")->as_int(), facts.context_tokens_max);
  for (const JsonMember& member : golden.Find("codex_needs")->as_object()) {
    const Json* found = codex.Find(member.first);
    ASSERT_NE(found, nullptr) << member.first;
    EXPECT_EQ(found->TypeName(), member.second.as_string()) << member.first;
  }
  // An empty text would take Codex's own instructions away and put nothing in their place.
  EXPECT_NE(codex.Find("base_instructions")->as_string(), "");
  const ApiResult<Json> entry = ModelTable::Default().EntryBody("claude-opus-5", facts);
  ASSERT_TRUE(entry.has_value());
  EXPECT_EQ(CanonicalJson(*entry), CanonicalJson(golden.Find("data")->as_array()[0]));
  EXPECT_FALSE(ModelTable::Default().EntryBody("gpt-9", facts).has_value());
}

}  // namespace
}  // namespace minke

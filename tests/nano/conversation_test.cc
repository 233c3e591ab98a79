// Conversations about documents: every answer is exact, and everything read or written before a
// question comes out of the cache. What is asked and answered is in conversations.json.
#include "apps/conversation.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>

#include "model/config.h"
#include "tests/nano/nano_support.h"

namespace minke::testing {
namespace {

const std::string kConversations = std::string(MINKE_SOURCE_DIR) + "/tests/nano/conversations.json";
constexpr int64_t kAnswerTokensMax = 60;

Json Conversations() {
  return ParseJson(ReadFile(kConversations, kDocumentBytesMax).value(), kConversations).value();
}

bool Flag(const Json& json, const char* key) {
  const Json* value = json.Find(key);
  return value != nullptr && value->as_bool();
}

// The prompt that a test means is one on which top-k, pool and window all leave something out.
void ExpectThatEverythingPrunes(int64_t tokens) {
  const ModelConfig config = LoadConfig(JoinPath(kNano, "config.json")).value();
  EXPECT_GT(tokens, config.sliding_window);
  EXPECT_GT(tokens / 2, config.index_topk);
  EXPECT_GT(tokens, config.candidate_topk_blocks * config.candidate_block_size);
}

void Talk(const Engine& engine, const Json& script) {
  const bool thinking = Flag(script, "thinking");
  const bool in_system = Flag(script, "in_system");
  const std::string document =
      Document(static_cast<size_t>(script.Find("document_paragraphs")->as_int()));
  ChatOptions chat;
  chat.thinking = thinking;
  Conversation conversation(engine, in_system ? document : "", chat);
  GenerationOptions options;
  options.max_tokens = kAnswerTokensMax;
  int64_t known = 0;  // tokens of the conversation so far that have been read
  for (const Json& turn : script.Find("turns")->as_array()) {
    const std::string& question = turn.as_array()[0].as_string();
    const bool opens = known == 0 && !in_system;
    const Result<GenerationResult> asked =
        conversation.Ask(opens ? document + "\n\n" + question : question, options);
    ASSERT_TRUE(asked) << asked.error().message;
    EXPECT_EQ(asked->answer, turn.as_array()[1].as_string());
    EXPECT_EQ(asked->finish_reason, FinishReason::kStop);
    const CacheUse& use = asked->cache;
    EXPECT_EQ(use.cached_tokens, known) << question;
    EXPECT_EQ(use.computed_tokens, asked->prompt_tokens - known) << question;
    EXPECT_EQ(use.replayed_tokens, 0);
    if (known == 0) ExpectThatEverythingPrunes(asked->prompt_tokens);
    // The last token that was drawn has not been read yet.
    known = asked->prompt_tokens + static_cast<int64_t>(asked->ids.size()) - 1;
  }
}

TEST(NanoConversations, AnswersAreExactAndComeOutOfTheCache) {
  const std::unique_ptr<Engine> engine = OpenNano();
  EXPECT_FALSE(engine->info().random_weights);
  const Json scripts = Conversations();
  ASSERT_GE(scripts.as_array().size(), 3U);
  for (const Json& script : scripts.as_array()) {
    SCOPED_TRACE(script.Find("name")->as_string());
    // Another conversation about the same document must not be what is found.
    Talk(*OpenNano(), script);
  }
}

}  // namespace
}  // namespace minke::testing

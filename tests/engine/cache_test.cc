// The equivalences of the cache through the public header: whatever a prompt was continued from,
// the logits of its answer are those of an engine that never saw anything before.
#include <cstring>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/engine/engine_support.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

struct Answer {
  std::vector<float> logits;  // of every drawn token
  std::vector<int32_t> ids;
  CacheUse cache;
};

Answer Ask(const Engine& engine, Session& session, const std::vector<int32_t>& prompt,
           int64_t tokens = 3, const std::string& tenant = "") {
  Answer answer;
  GenerationOptions options = Greedy(tokens);
  options.tenant = tenant;
  options.on_token = [&](const TokenEvent& event) {
    answer.logits.insert(answer.logits.end(), event.logits.begin(), event.logits.end());
  };
  GenerationResult result = Generate(engine, session, prompt, options);
  answer.ids = result.ids;
  answer.cache = result.cache;
  EXPECT_EQ(
      result.cache.cached_tokens + result.cache.replayed_tokens + result.cache.computed_tokens,
      static_cast<int64_t>(prompt.size()));
  EXPECT_EQ(result.cache.ram_tokens + result.cache.disk_tokens, result.cache.cached_tokens);
  return answer;
}

Answer AskFresh(const Engine& engine, const std::vector<int32_t>& prompt, int64_t tokens = 3,
                const std::string& tenant = "") {
  return Ask(engine, *engine.NewSession(), prompt, tokens, tenant);
}

bool SameLogits(const Answer& a, const Answer& b) {
  return !a.logits.empty() && a.logits.size() == b.logits.size() &&
         std::memcmp(a.logits.data(), b.logits.data(), a.logits.size() * sizeof(float)) == 0;
}

EngineOptions WithDisk(const std::string& directory, PrefillMode mode = PrefillMode::kExact) {
  EngineOptions options = Options(kFullMini);
  options.cache.disk_dir = directory;
  options.prefill = mode;
  return options;
}

// The same question to an engine without any past.
Answer Cold(const std::vector<int32_t>& prompt, int64_t tokens = 3,
            PrefillMode mode = PrefillMode::kExact) {
  EngineOptions options = Options(kFullMini);
  options.prefill = mode;
  return AskFresh(*Open(options), prompt, tokens);
}

TEST(EngineCache, AnExactRepeatComputesOneTokenAtEveryLength) {
  const auto warm = Open(Options(kFullMini));
  const auto cold = Open(Options(kFullMini));
  for (size_t length = 1; length <= 140; length += kSanitized ? 29 : 3) {
    std::vector<int32_t> prompt = Prompt(length);
    prompt[0] = static_cast<int32_t>(length);  // nothing shared between lengths
    const Answer first = AskFresh(*warm, prompt);
    EXPECT_EQ(first.cache.cached_tokens, 0);
    const Answer again = AskFresh(*warm, prompt);
    EXPECT_EQ(again.cache.cached_tokens, static_cast<int64_t>(length) - 1) << length;
    EXPECT_EQ(again.cache.reason, "none");
    EXPECT_EQ(again.cache.tier, length > 1 ? "ram" : "none");
    EXPECT_TRUE(SameLogits(first, again)) << length;
    EXPECT_TRUE(SameLogits(AskFresh(*cold, prompt), again)) << length;
    cold->DropCacheMemory();
  }
}

TEST(EngineCache, EveryRouteGivesTheColdLogits) {
  const std::vector<int32_t> prompt = Prompt(300);
  const Answer cold = Cold(prompt);
  const TempDirectory disk;
  {
    const auto engine = Open(WithDisk(disk.path()));
    auto session = engine->NewSession();
    EXPECT_TRUE(SameLogits(Ask(*engine, *session, prompt), cold));
    const Answer ram = AskFresh(*engine, prompt);
    EXPECT_EQ(ram.cache.ram_tokens, 299);
    EXPECT_TRUE(SameLogits(ram, cold));
    engine->FlushCache();
    session->Reset();
    engine->DropCacheMemory();                          // evicted ...
    const Answer reloaded = AskFresh(*engine, prompt);  // ... and reloaded
    EXPECT_EQ(reloaded.cache.disk_tokens, 299);
    EXPECT_EQ(reloaded.cache.tier, "disk");
    EXPECT_TRUE(SameLogits(reloaded, cold));
  }
  for (const int64_t chunk : {1, 7, 64, 1000}) {  // another process, cut otherwise
    EngineOptions options = WithDisk(disk.path());
    options.prefill_chunk_tokens = chunk;
    const Answer restarted = AskFresh(*Open(options), prompt);
    EXPECT_EQ(restarted.cache.cached_tokens, 299);
    EXPECT_TRUE(SameLogits(restarted, cold)) << "chunk " << chunk;
  }
}

TEST(EngineCache, AFollowUpGoesOnAtTheEndOfTheOutput) {
  const TempDirectory disk;
  std::vector<int32_t> prompt = Prompt(150);
  for (int turn = 0; turn < 4; ++turn) {
    const auto engine = Open(WithDisk(disk.path()));  // a restart in every turn
    const Answer answer = AskFresh(*engine, prompt, 9);
    EXPECT_TRUE(SameLogits(answer, Cold(prompt, 9))) << "turn " << turn;
    // The last drawn token was never read, hence it is computed with the new ones.
    const int64_t computed = turn == 0 ? 150 : 30 + 1;
    EXPECT_EQ(answer.cache.computed_tokens, computed) << "turn " << turn;
    EXPECT_EQ(answer.cache.replayed_tokens, 0);
    prompt = Concat(Concat(prompt, answer.ids), Prompt(30));
  }
}

TEST(EngineCache, AThirdPromptHitsWhereTwoParted) {
  const auto engine = Open(Options(kFullMini));
  const std::vector<int32_t> shared = Prompt(260);
  const auto with = [&](int32_t id) { return Concat(shared, std::vector<int32_t>(70, id)); };
  AskFresh(*engine, with(5));
  const Answer second = AskFresh(*engine, with(6));
  EXPECT_EQ(second.cache.cached_tokens, 0);
  EXPECT_EQ(second.cache.replayed_tokens, 256);
  EXPECT_EQ(second.cache.first_difference, 260);
  EXPECT_TRUE(SameLogits(second, Cold(with(6))));
  const Answer third = AskFresh(*engine, with(7));
  EXPECT_EQ(third.cache.cached_tokens, 256);
  EXPECT_EQ(third.cache.reason, "diverged");
  EXPECT_EQ(third.cache.first_difference, 260);
  EXPECT_TRUE(SameLogits(third, Cold(with(7))));
}

TEST(EngineCache, AnEditedLastTurnHitsToItsBoundary) {
  const auto engine = Open(Options(kChatModel));
  const auto encode = [&](const std::string& before, const std::string& last) {
    const auto prompt = engine->EncodeChat(
        R"([{"role":"user","content":"one two three four five six seven eight nine ten )" + before +
            R"("},{"role":"assistant",)"
            R"("content":"A somewhat longer answer than the question was."},)"
            R"({"role":"user","content":")" +
            last + R"("}])",
        "test", {.thinking = false, .effort = "", .drop_thinking = false, .context_messages = 0});
    EXPECT_TRUE(prompt.has_value());
    return prompt->ids;
  };
  const int32_t user = *engine->ControlToken("<｜User｜>");
  // However short the turn is that is edited.
  for (const char* last : {"What about the other nine of them, please?", "Why?", "x"}) {
    const std::vector<int32_t> first = encode(last, last);
    const std::vector<int32_t> edited =
        encode(last, "Forget it; something else entirely, if you can.");
    const auto boundary = first.rend() - std::find(first.rbegin(), first.rend(), user) - 1;
    AskFresh(*engine, first);
    EXPECT_EQ(AskFresh(*engine, edited).cache.cached_tokens, boundary) << last;
    EXPECT_GT(boundary, 20);
  }
}

TEST(EngineCache, TenantsAndModelsShareNothing) {
  const TempDirectory disk;
  const std::vector<int32_t> prompt = Prompt(200);
  {
    const auto engine = Open(WithDisk(disk.path()));
    AskFresh(*engine, prompt, 3, "anna");
    const Answer other = AskFresh(*engine, prompt, 3, "bert");
    EXPECT_EQ(other.cache.cached_tokens, 0);
    EXPECT_EQ(other.cache.reason, "other_tenant");
    EXPECT_EQ(AskFresh(*engine, prompt, 3, "anna").cache.cached_tokens, 199);
  }
  EngineOptions other = WithDisk(disk.path());
  other.numerics = NumericMode::kF32CacheQuant;
  const Answer answer = AskFresh(*Open(other), prompt, 3, "anna");
  EXPECT_EQ(answer.cache.cached_tokens, 0);
  EXPECT_EQ(answer.cache.reason, "other_model");
  const Answer replay =
      AskFresh(*Open(WithDisk(disk.path(), PrefillMode::kReplay)), prompt, 3, "anna");
  EXPECT_EQ(replay.cache.reason, "other_model");
  EXPECT_EQ(AskFresh(*Open(WithDisk(disk.path())), prompt, 3, "anna").cache.cached_tokens, 199);
}

TEST(EngineCache, ForksOfASession) {
  const auto engine = Open(Options(kFullMini));
  auto trunk = engine->NewSession();
  const std::vector<int32_t> prompt = Prompt(133);
  Ask(*engine, *trunk, prompt);
  for (const int32_t way : {9, 10}) {
    auto fork = engine->Fork(*trunk);
    ASSERT_TRUE(fork.has_value());
    const std::vector<int32_t> continued =
        Concat({trunk->tokens().begin(), trunk->tokens().end()}, std::vector<int32_t>(40, way));
    const Answer answer = Ask(*engine, **fork, continued);
    EXPECT_EQ(answer.cache.tier, "session");
    EXPECT_EQ(answer.cache.computed_tokens, 40);
    EXPECT_TRUE(SameLogits(answer, Cold(continued)));
  }
}

// The room for a fork came from its source once, which was idle like any other session.
TEST(EngineCache, AForkLeavesItsSourceAloneWhereMemoryIsTight) {
  const std::vector<int32_t> prompt = Prompt(133);
  int made = 0;
  int refused = 0;
  const auto roomy = Open(Options(kFullMini));
  auto measured = roomy->NewSession();
  Ask(*roomy, *measured, prompt);
  const SessionMemory memory = measured->memory();
  const int64_t least = memory.capacity_bytes + memory.constant_bytes;
  for (int64_t more = memory.constant_bytes / 2; more < 3 * least; more *= 2) {
    EngineOptions options = Options(kFullMini);
    options.cache.ram_bytes = least + more;
    const auto engine = Open(options);
    auto trunk = engine->NewSession();
    Ask(*engine, *trunk, prompt);
    const std::vector<int32_t> timeline(trunk->tokens().begin(), trunk->tokens().end());
    ASSERT_GE(timeline.size(), prompt.size());
    const auto fork = engine->Fork(*trunk);
    EXPECT_EQ(std::vector<int32_t>(trunk->tokens().begin(), trunk->tokens().end()), timeline);
    if (fork.has_value()) {
      ++made;
      EXPECT_EQ(std::vector<int32_t>((*fork)->tokens().begin(), (*fork)->tokens().end()), timeline);
    } else {
      ++refused;
      EXPECT_NE(fork.error().message.find("--kv-ram"), std::string::npos);
    }
  }
  EXPECT_GT(made, 0);
  EXPECT_GT(refused, 0);
}

TEST(EngineCache, ReplayModeResumesByReplayAndCountsItAsAMiss) {
  const TempDirectory disk;
  const std::vector<int32_t> prompt = Prompt(290);
  const std::vector<int32_t> other = Concat(Prompt(270), std::vector<int32_t>(60, 7));
  const auto engine = Open(WithDisk(disk.path(), PrefillMode::kReplay));
  const Answer first = AskFresh(*engine, prompt);
  EXPECT_TRUE(SameLogits(first, Cold(prompt, 3, PrefillMode::kReplay)));
  EXPECT_FALSE(SameLogits(first, Cold(prompt)));  // it did leave something out
  // Diverges at 270: rows of 256 tokens are known, of which the last window (32) runs again.
  const Answer second = AskFresh(*engine, other);
  EXPECT_EQ(second.cache.cached_tokens, 256 - 32);
  EXPECT_EQ(second.cache.replayed_tokens, 32);
  EXPECT_EQ(second.cache.computed_tokens, 330 - 256);
  engine->FlushCache();
  engine->DropCacheMemory();
  const Answer third = AskFresh(*engine, other);  // by its own snapshot now
  EXPECT_EQ(third.cache.cached_tokens, 329);
  EXPECT_EQ(third.cache.tier, "disk");
  EXPECT_TRUE(SameLogits(second, third));
}

// In replay mode a conversation that comes back from disk goes on as if it had stayed.
TEST(EngineCache, ReplayModeRestoresWhatTheConversationWouldHaveGiven) {
  const TempDirectory disk;
  std::vector<int32_t> prompt = Prompt(150);
  const auto staying = Open([] {
    EngineOptions options = Options(kFullMini);
    options.prefill = PrefillMode::kReplay;
    return options;
  }());
  auto session = staying->NewSession();
  for (const size_t more : {size_t{90}, size_t{5}, size_t{31}, size_t{33}, size_t{64}}) {
    const Answer stayed = Ask(*staying, *session, prompt, 5);
    const Answer restored = AskFresh(*Open(WithDisk(disk.path(), PrefillMode::kReplay)), prompt, 5);
    EXPECT_TRUE(SameLogits(stayed, restored)) << prompt.size();
    prompt = Concat(Concat(prompt, stayed.ids), Prompt(more));
  }
}

TEST(EngineCache, SnapshotsAreForExactModeWhatItCannotDoWithout) {
  EngineOptions options = Options(kFullMini);
  options.cache.snapshot_bytes = 1;  // room for none
  const auto engine = Open(options);
  const std::vector<int32_t> prompt = Prompt(290);
  AskFresh(*engine, prompt);
  const Answer again = AskFresh(*engine, prompt);
  EXPECT_EQ(again.cache.cached_tokens, 0);
  EXPECT_EQ(again.cache.replayed_tokens, 256);
  EXPECT_EQ(again.cache.reason, "no_snapshot");
  EXPECT_TRUE(SameLogits(again, Cold(prompt)));
  EXPECT_NE(ExplainCacheUse(again.cache).find("--snapshot-budget"), std::string::npos);
}

TEST(EngineCache, ADifferenceDoesNotHideThatASnapshotWasMissing) {
  const auto engine = Open(Options(kFullMini));
  const std::vector<int32_t> shared = Prompt(260);
  const auto with = [&](int32_t id) { return Concat(shared, std::vector<int32_t>(70, id)); };
  AskFresh(*engine, with(5));
  const CacheUse within = engine->ExplainCache(Prompt(250), "").value();
  EXPECT_EQ(within.reason, "no_snapshot");  // nor does an end inside a block
  EXPECT_EQ(within.first_difference, -1);
  const CacheUse both = engine->ExplainCache(with(6), "").value();
  EXPECT_EQ(both.reason, "no_snapshot");
  EXPECT_EQ(both.first_difference, 260);
  EXPECT_EQ(AskFresh(*engine, with(6)).cache.reason, "no_snapshot");
  const std::string sentence = ExplainCacheUse(both);
  EXPECT_NE(sentence.find("the 260 tokens that are known"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("--snapshot-budget"), std::string::npos) << sentence;
  EXPECT_NE(sentence.find("From token 260 on a known prompt differs"), std::string::npos);
  // What granularity costs anyway is no lack of a snapshot: the last one is 24 tokens before.
  const auto near = Open(Options(kFullMini));
  AskFresh(*near, Prompt(105));
  AskFresh(*near, Concat(Prompt(200), std::vector<int32_t>(70, 5)));
  const CacheUse close =
      near->ExplainCache(Concat(Prompt(200), std::vector<int32_t>(70, 6)), "").value();
  EXPECT_EQ(close.cached_tokens, 104);
  EXPECT_EQ(close.replayed_tokens, 24);
  EXPECT_EQ(close.reason, "diverged");
  EXPECT_EQ(close.first_difference, 200);
}

TEST(EngineCache, ASegmentCutToTwoThirdsIsDamageAndNotAMissingSnapshot) {
  const TempDirectory disk;
  const std::vector<int32_t> prompt = Prompt(700);
  { AskFresh(*Open(WithDisk(disk.path())), prompt); }
  const std::string segment = disk.Path("segment-00000001.mks");
  std::filesystem::resize_file(segment, std::filesystem::file_size(segment) * 2 / 3);
  const auto engine = Open(WithDisk(disk.path()));
  const Answer damaged = AskFresh(*engine, prompt);
  EXPECT_EQ(damaged.cache.reason, "damaged");
  EXPECT_LT(damaged.cache.cached_tokens, 699);
  EXPECT_TRUE(SameLogits(damaged, Cold(prompt)));
  const Answer healed = AskFresh(*engine, prompt);
  EXPECT_EQ(healed.cache.cached_tokens, 699);
  EXPECT_EQ(healed.cache.reason, "none");
}

TEST(EngineCache, TheBudgetIsKeptAndAPromptThatDoesNotFitIsRefused) {
  EngineOptions options = Options(kFullMini);
  const int64_t block_bytes = 140 * 128;
  options.cache.ram_bytes = 8 * block_bytes;
  options.cache.snapshot_bytes = 1 << 20;
  const auto engine = Open(options);
  const int64_t budget = engine->info().cache_ram_bytes;
  std::vector<std::unique_ptr<Session>> idle;
  for (int32_t i = 0; i < (kSanitized ? 5 : 12); ++i) {
    std::vector<int32_t> prompt = Prompt(200);
    prompt[0] = i;
    idle.push_back(engine->NewSession());
    EXPECT_TRUE(SameLogits(Ask(*engine, *idle.back(), prompt), Cold(prompt))) << i;
    EXPECT_LE(engine->cache_status().ram_used_bytes, budget);
  }
  EXPECT_EQ(idle.front()->tokens().size(), 0u);  // its memory went to the later ones
  EXPECT_NE(idle.back()->tokens().size(), 0u);
  auto session = engine->NewSession();
  const auto refused = engine->Generate(*session, Prompt(2000), Greedy(1));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_NE(refused.error().message.find("--kv-ram"), std::string::npos) << refused.error().message;
  EXPECT_LE(engine->cache_status().ram_used_bytes, budget);
  const std::vector<int32_t> prompt = Prompt(210);
  EXPECT_TRUE(SameLogits(AskFresh(*engine, prompt), Cold(prompt)));
}

// An answer without a limit takes what memory there is and ends there, with what it has.
TEST(EngineCache, AnAnswerEndsWhereItsMemoryEnds) {
  EngineOptions options = Options(kFullMini);
  options.cache.ram_bytes = 6 * 140 * 128;
  options.cache.snapshot_bytes = 1 << 20;
  const auto engine = Open(options);
  const GenerationResult result = Generate(*engine, *engine->NewSession(), Prompt(100), Greedy(-1));
  EXPECT_EQ(result.finish_reason, FinishReason::kLength);
  EXPECT_TRUE(result.context_full);
  EXPECT_GT(result.ids.size(), 20u);
  EXPECT_LE(engine->cache_status().ram_used_bytes, options.cache.ram_bytes);
}

TEST(EngineCache, ExplainSaysWhatGenerateWillReport) {
  const TempDirectory disk;
  const std::vector<int32_t> prompt = Prompt(290);
  { AskFresh(*Open(WithDisk(disk.path())), prompt); }
  EngineOptions reader = WithDisk(disk.path());
  reader.cache.disk_read_only = true;
  for (const auto& asked :
       {prompt, Prompt(100), Concat(Prompt(200), std::vector<int32_t>(30, 4)), Prompt(400)}) {
    const auto explained = Open(reader)->ExplainCache(asked, "");
    ASSERT_TRUE(explained.has_value());
    const Answer answer = AskFresh(*Open(reader), asked);
    EXPECT_EQ(explained->cached_tokens, answer.cache.cached_tokens) << asked.size();
    EXPECT_EQ(explained->replayed_tokens, answer.cache.replayed_tokens);
    EXPECT_EQ(explained->reason, answer.cache.reason);
    EXPECT_EQ(explained->first_difference, answer.cache.first_difference);
    EXPECT_EQ(explained->tier, answer.cache.tier);
  }
}

// Criterion of use: after a restart nothing of a long conversation is computed again.
TEST(EngineCache, ARestartFindsTheWholeConversation) {
  const TempDirectory disk;
  const size_t length = kSanitized ? 500 : 8000;
  const std::vector<int32_t> prompt = Prompt(length);
  Answer first;
  {
    const auto engine = Open(WithDisk(disk.path()));
    first = AskFresh(*engine, prompt, 4);
  }
  const auto engine = Open(WithDisk(disk.path()));
  const Answer again = AskFresh(*engine, prompt, 4);
  EXPECT_EQ(again.cache.disk_tokens, static_cast<int64_t>(length) - 1);
  EXPECT_TRUE(SameLogits(first, again));
  const std::vector<int32_t> next = Concat(Concat(prompt, first.ids), Prompt(10));
  const Answer turn = AskFresh(*engine, next, 1);
  EXPECT_EQ(turn.cache.computed_tokens, 11);
}

}  // namespace
}  // namespace minke::testing

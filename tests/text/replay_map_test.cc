#include "text/replay_map.h"

#include <gtest/gtest.h>

#include <random>

#include "tests/text/text_support.h"
#include "text/answer_parser.h"

namespace minke {
namespace {

using testing::MiniTokenizer;
using testing::MustParse;

using Ids = std::vector<int32_t>;

int32_t Control(std::string_view name) {
  return MiniTokenizer().ControlToken(name).value();
}

TurnTokens Tokens() {
  return {Control(kAssistantToken), Control(kThinkEndToken), Control(kEosToken)};
}

ChatRequest Request(const std::string& json) {
  auto request = ParseChatRequest(MustParse(json), "body");
  CHECK(request.has_value(), request.error().message);
  return std::move(*request);
}

Ids IdsOf(const ChatRequest& request) {
  const auto prompt = EncodeChat(request);
  CHECK(prompt.has_value(), prompt.error().message);
  auto ids = PromptIds(*prompt, MiniTokenizer());
  CHECK(ids.has_value(), ids.error().message);
  return std::move(*ids);
}

// A model's ids: control tokens where the text names them, and between them tokens that plain BPE
// would have joined otherwise.
Ids ModelIds(std::string_view text) {
  Ids ids;
  while (!text.empty()) {
    bool is_control = false;
    for (const std::string_view name : {kThinkEndToken, kDsmlToken}) {
      if (!text.starts_with(name)) continue;
      ids.push_back(Control(name));
      text.remove_prefix(name.size());
      is_control = true;
    }
    if (is_control) continue;
    size_t bytes = 1;
    while (bytes < 5 && bytes < text.size() && !text.substr(bytes).starts_with(kThinkEndToken) &&
           !text.substr(bytes).starts_with(kDsmlToken)) {
      ++bytes;
    }
    const Ids part = MiniTokenizer().EncodePlain(text.substr(0, bytes));
    ids.insert(ids.end(), part.begin(), part.end());
    text.remove_prefix(bytes);
  }
  return ids;
}

// What a server does with an answer; the ids of its calls are "call_0" and so on.
struct Written {
  Ids prompt;
  Ids drawn;  // with the end-of-sequence token
  WrittenTurn turn;
};
Written Answered(const ChatRequest& request, std::string_view text) {
  Written written;
  written.prompt = IdsOf(request);
  written.drawn = ModelIds(text);
  AnswerParserOptions options;
  options.thinking = request.options.thinking_mode == ThinkingMode::kThinking;
  options.tools = true;
  options.in_calls = request.options.tool_choice.kind == ToolChoice::Kind::kRequired;
  AnswerParser parser(options);
  std::vector<AnswerPiece> pieces;
  for (const int32_t id : written.drawn) {
    parser.Push(MiniTokenizer().TokenBytes(id), MiniTokenizer().IsControl(id), &pieces);
  }
  parser.Finish(&pieces);
  WrittenTurn& turn = written.turn;
  for (const AnswerPiece& piece : pieces) {
    if (piece.kind == AnswerPiece::Kind::kReasoning) turn.reasoning += piece.text;
    if (piece.kind == AnswerPiece::Kind::kContent) turn.content += piece.text;
    if (piece.kind == AnswerPiece::Kind::kToolCall) {
      turn.tool_calls.push_back(
          {"call_" + std::to_string(piece.tool_index), piece.name, Json(std::string())});
    }
    if (piece.kind == AnswerPiece::Kind::kToolArguments) {
      ToolCall& call = turn.tool_calls.back();
      call.arguments = call.arguments.as_string() + piece.text;
    }
  }
  written.drawn.push_back(Control(kEosToken));
  turn.thinking = options.thinking;
  turn.ids =
      WrittenIds(written.prompt, written.drawn, Tokens(), turn.thinking, !turn.tool_calls.empty());
  return written;
}

bool BeginsWith(const Ids& ids, const Ids& first, const Ids& then) {
  if (ids.size() < first.size() + then.size()) return false;
  return std::equal(first.begin(), first.end(), ids.begin()) &&
         std::equal(then.begin(), then.end(), ids.begin() + static_cast<ptrdiff_t>(first.size()));
}

const std::string kTools =
    R"("tools": [{"type": "function", "function": {"name": "f", "parameters": {}}}], )";
const std::string kQuestion = R"({"role": "user", "content": "q"})";

std::string Body(const std::string& messages, const std::string& more = kTools) {
  return "{" + more + "\"messages\": [" + messages + "]}";
}

constexpr std::string_view kCallText =
    "I look.\n\n</think>\n\n\nOne moment.\n\n\n<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n"
    "<｜DSML｜ parameter name=\"path\" string=\"true\">a/b.c</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"range\" string=\"false\">[1,   20.0]</｜DSML｜ parameter>\n"
    "<｜DSML｜ parameter name=\"deep\" string=\"false\">{\"x\":{\"y\":null}, \"z\": true}"
    "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>";

// The turn as a client sends it back, and the tool's answer.
std::string Replayed(const std::string& arguments, const std::string& fields,
                     const std::string& id = "call_0") {
  return kQuestion + R"(, {"role": "assistant", )" + fields + R"("tool_calls": [{"id": ")" + id +
         R"(", "type": "function", "function": {"name": "f", "arguments": )" +
         DumpJson(Json(arguments), JsonStyle::kCompact) +
         R"(}}]}, {"role": "tool", "tool_call_id": ")" + id + R"(", "content": "ok"})";
}

const std::string kCompactArguments =
    R"({"path":"a/b.c","range":[1,20],"deep":{"x":{"y":null},"z":true}})";
const std::string kFields = R"("content": "One moment.", "reasoning_content": "I look.", )";

struct Conversation {
  Written written;
  ReplayMap map;
};
Conversation AfterOneCall() {
  const ChatRequest first = Request(Body(kQuestion));
  Conversation conversation{Answered(first, kCallText), ReplayMap()};
  conversation.map.Put("tenant", DigestOf(first), {"resp_1"}, conversation.written.turn);
  return conversation;
}

// Whether the second prompt begins with the first one and its answer.
bool Continues(Conversation* conversation, const std::string& messages,
               std::string_view tenant = "tenant", const std::string& more = kTools) {
  ChatRequest request = Request(Body(messages, more));
  const Ids rendered = IdsOf(request);
  EXPECT_FALSE(BeginsWith(rendered, conversation->written.prompt, conversation->written.drawn))
      << "the test must be able to fail";
  const int64_t applied = conversation->map.Apply(tenant, &request).found;
  const Ids ids = IdsOf(request);
  EXPECT_TRUE(applied > 0 || ids == rendered);
  return BeginsWith(ids, conversation->written.prompt, conversation->written.drawn);
}

// ds4#489: white space before the markup was lost, and every turn of a tool loop was read anew.
TEST(Reports, Ds4Pr489WhitespaceBeforeDsmlIsKept) {
  Conversation conversation = AfterOneCall();
  EXPECT_TRUE(Continues(&conversation, Replayed(kCompactArguments, kFields)));
}

TEST(ReplayMap, ClientsThatSayTheSameContinueExactly) {
  Conversation conversation = AfterOneCall();
  // OpenCode: compact JSON. Others: other order, spaces, escapes, numbers.
  EXPECT_TRUE(Continues(&conversation, Replayed(kCompactArguments, kFields)));
  EXPECT_TRUE(Continues(
      &conversation,
      Replayed(R"({ "deep": {"z": true, "x": {"y": null}}, "range": [1.0, 2e1], "path": "a\/b.c"})",
               kFields)));
  // Lost newlines, reasoning or both; a twice encoded object.
  EXPECT_TRUE(Continues(&conversation,
                        Replayed(kCompactArguments, R"("content": "\n\nOne moment.\n\n\n", )")));
  EXPECT_TRUE(Continues(
      &conversation,
      Replayed(kCompactArguments, R"("content": "One moment.", "reasoning_content": "", )")));
  EXPECT_TRUE(Continues(&conversation,
                        Replayed(DumpJson(Json(kCompactArguments), JsonStyle::kCompact), kFields)));
  // A client that gives its own ids to calls is known by the turn's text.
  EXPECT_TRUE(Continues(&conversation, Replayed(kCompactArguments, kFields, "other_id")));
}

TEST(ReplayMap, EditedTurnsAreRenderedAsTheyStand) {
  Conversation conversation = AfterOneCall();
  const std::vector<std::string> edited = {
      Replayed(R"({"path":"a/b.c","range":[1,21],"deep":{"x":{"y":null},"z":true}})", kFields),
      Replayed(R"({"path":"a/b.c","range":[1,20]})", kFields),
      Replayed(R"({"path":"a/b.c","range":[20,1],"deep":{"x":{"y":null},"z":true}})", kFields),
      Replayed(R"({"path":"a/b.c","range":[1,20],"deep":{"x":{"y":false},"z":true}})", kFields),
      Replayed("no object", kFields),
      Replayed(kCompactArguments, R"("content": "One  moment.", )"),
      Replayed(kCompactArguments, R"("reasoning_content": "I look.", "content": "", )"),
      Replayed(kCompactArguments, R"("content": "One moment.", "reasoning_content": "I hide.", )")};
  for (const std::string& messages : edited) EXPECT_FALSE(Continues(&conversation, messages));
  const std::string same = Replayed(kCompactArguments, kFields);
  EXPECT_FALSE(Continues(&conversation, same, "another tenant"));
  EXPECT_FALSE(Continues(&conversation, same, ""));
  EXPECT_FALSE(Continues(&conversation, same, "tenant", "\"thinking_mode\": \"chat\", " + kTools))
      << "the turn was written after another header";
  EXPECT_TRUE(Continues(&conversation, same));
}

TEST(ReplayMap, TurnsWithoutIdsAreKnownByTheirConversation) {
  const ChatRequest first = Request(Body(kQuestion, ""));
  Conversation conversation{Answered(first, "hm\n</think>\n\n\nYes."), ReplayMap()};
  conversation.map.Put("t", DigestOf(first), {"resp_1"}, conversation.written.turn);
  const std::string yes =
      R"(, {"role": "assistant", "content": "Yes."}, {"role": "user", "content": "n"})";
  EXPECT_TRUE(Continues(&conversation, kQuestion + yes, "t", ""));
  // The same answer elsewhere is not this turn: its reasoning was about something else.
  const std::string other = R"({"role": "user", "content": "another question"})";
  EXPECT_FALSE(Continues(&conversation, other + yes, "t", ""));
  // But its id says so.
  ChatRequest request = Request(Body(other + yes, ""));
  request.messages[1].turn_id = "resp_1";
  const ReplayReport report = conversation.map.Apply("t", &request);
  EXPECT_EQ(report.found, 1);
  EXPECT_EQ(report.missing, 0);
  EXPECT_EQ(report.conversation.Text(), DigestOf(request).Text()) << "read once";
}

TEST(ReplayMap, WhatThePromptBeganBelongsToTheTurn) {
  const std::string more = R"("thinking_mode": "chat", "tool_choice": "required", )" + kTools;
  const ChatRequest first = Request(Body(kQuestion, more));
  Conversation conversation{
      Answered(first,
               "<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"a\" string=\"false\">[1,2]"
               "</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>"),
      ReplayMap()};
  ASSERT_EQ(conversation.written.turn.tool_calls.size(), 1U);
  conversation.map.Put("t", DigestOf(first), {}, conversation.written.turn);
  EXPECT_TRUE(Continues(&conversation, Replayed(R"({"a":[1, 2]})", R"("content": null, )"), "t",
                        R"("thinking_mode": "chat", )" + kTools));
}

TEST(ReplayMap, OpenReasoningIsClosedAndMissingHeadersGiveNothing) {
  const TurnTokens tokens = Tokens();
  const Ids prompt = {tokens.assistant, 5};
  const Ids drawn = {7, 8, tokens.eos};
  EXPECT_EQ(WrittenIds(prompt, drawn, tokens, true, false), (Ids{7, 8, tokens.think_end}));
  EXPECT_EQ(WrittenIds(prompt, drawn, tokens, true, true), (Ids{7, 8}));
  EXPECT_EQ(WrittenIds(prompt, drawn, tokens, false, false), (Ids{7, 8}));
  EXPECT_EQ(WrittenIds(Ids{1, 2}, drawn, tokens, false, false), Ids());
  EXPECT_EQ(WrittenIds(Ids{1, tokens.assistant}, drawn, tokens, false, false), Ids());
  EXPECT_EQ(WrittenIds(Ids(), Ids(), tokens, false, false), Ids());
}

TEST(ReplayMap, IdsThatNoTokenHasAreAnError) {
  ChatRequest request = Request(Body(kQuestion + R"(, {"role": "assistant", "content": "a"})", ""));
  for (const int32_t id : {-1, static_cast<int32_t>(MiniTokenizer().vocab_size())}) {
    request.messages[1].exact_ids = {1, id};
    request.messages[1].exact_thinking = true;
    EXPECT_FALSE(PromptIds(*EncodeChat(request), MiniTokenizer()).has_value());
  }
}

WrittenTurn SmallTurn(const std::string& id, size_t text_bytes) {
  WrittenTurn turn;
  turn.ids = {1, 2, 3};
  turn.content = std::string(text_bytes, 'x');
  turn.tool_calls = {{id, "f", Json("{}")}};
  return turn;
}

int64_t Found(ReplayMap* map, const std::string& id, size_t text_bytes) {
  ChatRequest request;
  request.messages.resize(1);
  request.messages[0].role = Role::kAssistant;
  ContentPart part;
  part.text = std::string(text_bytes, 'x');
  request.messages[0].content = {part};
  request.messages[0].tool_calls = {{id, "f", Json("{}")}};
  return map->Apply("t", &request).found;
}

TEST(ReplayMap, TheLeastRecentlyUsedTurnMakesRoom) {
  ReplayMap map(10'000);
  ConversationDigest digest;
  const auto put = [&](int i) {
    ChatMessage message;
    message.task = std::to_string(i);
    digest.Add(message);
    map.Put("t", digest, {}, SmallTurn("call_" + std::to_string(i), 1000));
    EXPECT_LE(map.bytes(), 10'000U);
  };
  for (int i = 0; i < 4; ++i) put(i);
  EXPECT_EQ(map.turns(), 4U);
  EXPECT_EQ(Found(&map, "call_0", 1000), 1);
  for (int i = 4; i < 8; ++i) put(i);
  EXPECT_EQ(Found(&map, "call_0", 1000), 1) << "used lately";
  EXPECT_EQ(Found(&map, "call_1", 1000), 0);
  EXPECT_EQ(Found(&map, "call_7", 1000), 1);
  // What could never fit pushes nobody out.
  const size_t turns = map.turns();
  map.Put("t", digest, {}, SmallTurn("large", 10'001));
  EXPECT_EQ(map.turns(), turns);
}

TEST(ReplayMap, SavedAndLoaded) {
  Conversation conversation = AfterOneCall();
  const std::string bytes = conversation.map.Save("model A");
  auto loaded = ReplayMap::Load(bytes, "model A");
  ASSERT_TRUE(loaded.has_value()) << loaded.error().message;
  EXPECT_EQ(loaded->Save("model A"), bytes);
  EXPECT_EQ(loaded->bytes(), conversation.map.bytes());
  conversation.map = std::move(*loaded);
  EXPECT_TRUE(Continues(&conversation, Replayed(kCompactArguments, kFields)));

  const auto other = ReplayMap::Load(bytes, "model B");
  ASSERT_FALSE(other.has_value());
  EXPECT_NE(other.error().message.find("another model"), std::string::npos);
  EXPECT_EQ(ReplayMap::Load(bytes, "model A", 10)->turns(), 0U);
  EXPECT_EQ(ReplayMap::Load(ReplayMap().Save("m"), "m")->turns(), 0U);
}

TEST(ReplayMap, DamagedBytesAreErrors) {
  Conversation conversation = AfterOneCall();
  const std::string bytes = conversation.map.Save("m");
  for (size_t size = 0; size < bytes.size(); ++size) {
    EXPECT_FALSE(ReplayMap::Load(std::string_view(bytes).substr(0, size), "m").has_value());
  }
  for (size_t at = 0; at < bytes.size(); ++at) {
    std::string damaged = bytes;
    damaged[at] = static_cast<char>(damaged[at] ^ 0x40);
    EXPECT_FALSE(ReplayMap::Load(damaged, "m").has_value()) << at;
  }
  std::mt19937 generator(11);
  for (int round = 0; round < 1000; ++round) {
    EXPECT_FALSE(
        ReplayMap::Load("MINKERPL" + testing::RandomBytes(&generator, 64), "m").has_value());
  }
}

// A client may send anything: the same checks, and nothing breaks.
TEST(ReplayMap, ConversationsOfAnyShape) {
  Conversation conversation = AfterOneCall();
  ChatRequest request;
  EXPECT_EQ(conversation.map.Apply("tenant", &request).found, 0);
  request.messages.resize(3);
  request.messages[0].role = Role::kAssistant;
  request.messages[1].role = Role::kTool;
  request.messages[2].role = Role::kAssistant;
  request.messages[2].tool_calls = {{"call_0", "f", Json()}, {"call_0", "f", Json(JsonArray())}};
  EXPECT_EQ(conversation.map.Apply("tenant", &request).found, 0);
}

}  // namespace
}  // namespace minke

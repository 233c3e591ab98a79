// Chat messages to prompt: the format of the official encoder (serving.md 2, architecture.md
// Appendix C).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "text/control_tokens.h"
#include "text/tokenizer.h"

namespace minke {

inline constexpr int kReasoningEffortMin = 1;
inline constexpr int kReasoningEffortMax = 100;
inline constexpr int kReasoningEffortDefault = 75;
inline constexpr size_t kMessagesMax = 100'000;              // messages of one request
inline constexpr size_t kPromptBytesMax = size_t{64} << 20;  // bytes of one prompt's text

enum class Role { kSystem, kUser, kAssistant, kTool, kLatestReminder };

// One block of a message's content.
struct ContentPart {
  enum class Kind { kText, kImage, kUnsupported };
  Kind kind = Kind::kText;
  std::string text;  // kText: the text; kUnsupported: the block's type
  Json image;        // kImage: {"type": "image", "url" or "source": ...}
};

struct ToolCall {
  std::string id;    // may be empty
  std::string name;  // "name" or "namespace::name"
  Json arguments;    // an object, or the string that the client sent
};

struct ChatMessage {
  Role role = Role::kUser;
  std::vector<ContentPart> content;              // string content is one text part
  std::optional<std::string> reasoning_content;  // assistant; absent where none was sent
  std::vector<ToolCall> tool_calls;              // assistant
  std::string tool_call_id;                      // tool
  // system: function objects as they are shown to the model, names with their namespace.
  std::vector<Json> tools;
  std::optional<Json> response_format;  // system: the schema shown to the model
  // assistant: what the client's message says the answer was: the id of the response or message, or
  // the signature of its thinking. May be empty.
  std::string turn_id;
  // assistant: what the model wrote for this turn, from ReplayMap::Apply(). Takes the place of the
  // rendered turn where the header before it is the one it was written after.
  std::vector<int32_t> exact_ids;
  bool exact_thinking = false;  // that header opened the reasoning
  std::string task;             // "", or one of the internal tasks (serving.md 2.2)
  bool wo_eos = false;          // assistant: left open, for the model to continue it
};

struct ToolChoice {
  enum class Kind { kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kAuto;
  std::string name;  // kNamed
};

struct EncodeOptions {
  ThinkingMode thinking_mode = ThinkingMode::kThinking;
  int reasoning_effort = kReasoningEffortDefault;
  // Keeping the reasoning of earlier turns makes conversations append-only, which is what a prefix
  // cache needs; dropping it is what the official encoder does unless tools are declared
  // (serving.md 2.3).
  bool drop_thinking = false;
  bool add_default_bos_token = true;
  ToolChoice tool_choice;
  // Refuse replayed assistant turns without reasoning_content once tools are in use, as the hosted
  // service does (serving.md 1.4).
  bool require_reasoning_content = false;
};

struct ChatRequest {
  std::vector<ChatMessage> context;   // already encoded earlier: read, but not rendered again
  std::vector<ChatMessage> messages;  // what EncodeChat() renders
  EncodeOptions options;
};

// Whose rules a request is read by, where the official encoder and its clients differ.
enum class RequestRules {
  // Tolerant: effort names of the API, role "developer", "prefix", "tools" beside "messages"; the
  // image placeholder in text is text; reasoning is kept.
  kServer,
  // As the official encoder: effort low, high, max or 1..100; the placeholder in text is an error;
  // drop_thinking is on unless said otherwise.
  kOfficialEncoder,
};

// Reads either a list of messages or an object with "messages" and, all optional, "context",
// "thinking_mode" ("chat" or "thinking"), "reasoning_effort", "drop_thinking",
// "add_default_bos_token", "tools", "tool_choice", "response_format". Other members are not looked
// at (sampling is not part of a prompt). Errors name the place, e.g. messages[3].content; `what`
// names the source.
Result<ChatRequest> ParseChatRequest(const Json& value, std::string_view what,
                                     RequestRules rules = RequestRules::kServer);

// The number behind an effort (serving.md 1.4): one of the API's names, an integer from
// kReasoningEffortMin to kReasoningEffortMax, or such a number as text; nothing for all else,
// "none" included.
std::optional<int> ReasoningEffort(const Json& value, RequestRules rules = RequestRules::kServer);

struct PromptPiece {
  enum class Kind {
    kControl,    // one control token
    kTemplate,   // text of the format itself
    kPlain,      // text from outside
    kGrounding,  // a grounding mark in an assistant's text: a token where the vocabulary has it
    kImage,      // one image placeholder
    kExact,      // a turn as the model wrote it: `ids`; `text` is how it would be rendered
  };
  Kind kind = Kind::kPlain;
  std::string text;
  std::vector<int32_t> ids = {};  // kExact

  bool operator==(const PromptPiece&) const = default;
};

struct Prompt {
  std::vector<PromptPiece> pieces;
  std::vector<Json> images;  // sources of the kImage pieces, in order

  // The whole prompt as one string, as the official encoder writes it.
  std::string Text() const;
};

Result<Prompt> EncodeChat(const ChatRequest& request);

// The ids of a prompt: control tokens by their id, and each stretch of text between them as one
// plain BPE input, however many pieces it was made of. An image is its one placeholder token here.
// An error if the vocabulary lacks a control token of the format, or an id of a kExact piece.
Result<std::vector<int32_t>> PromptIds(const Prompt& prompt, const Tokenizer& tokenizer);

// A text with <image>PATH</image> tags as content blocks: text and {"type": "image_url", ...}
// blocks, or the text itself if it has no tag. Unclosed tags and empty paths are errors.
Result<Json> ParseTaggedText(std::string_view text);

}  // namespace minke

// The control strings of a V4.1 prompt (serving.md 2.1). Each is one token of the released
// vocabulary; a prompt refers to them by these strings and never finds them in running text.
#pragma once

#include <array>
#include <string_view>

namespace minke {

inline constexpr std::string_view kBosToken = "<｜begin▁of▁sentence｜>";
inline constexpr std::string_view kEosToken = "<｜end▁of▁sentence｜>";
inline constexpr std::string_view kPadToken = "<｜▁pad▁｜>";
inline constexpr std::string_view kSystemToken = "<｜System｜>";
inline constexpr std::string_view kUserToken = "<｜User｜>";
inline constexpr std::string_view kAssistantToken = "<｜Assistant｜>";
inline constexpr std::string_view kThinkStartToken = "<think>";
inline constexpr std::string_view kThinkEndToken = "</think>";
inline constexpr std::string_view kDsmlToken = "｜DSML｜";
inline constexpr std::string_view kLatestReminderToken = "<｜latest_reminder｜>";
inline constexpr std::string_view kImageToken = "<｜deepseek_image｜>";
inline constexpr std::string_view kFimBeginToken = "<｜fim▁begin｜>";
inline constexpr std::string_view kFimHoleToken = "<｜fim▁hole｜>";
inline constexpr std::string_view kFimEndToken = "<｜fim▁end｜>";

// The marks of grounded answers. The model writes them itself, so history returns them to it as
// tokens; everywhere else they are plain text (serving.md 2.8).
inline constexpr std::array<std::string_view, 8> kGroundingTokens = {
    "<｜ref｜>",   "<｜/ref｜>",   "<｜box｜>",     "<｜/box｜>",
    "<｜point｜>", "<｜/point｜>", "<｜polygon｜>", "<｜/polygon｜>"};

// Whether the model writes its reasoning before the answer.
enum class ThinkingMode {
  kChat,      // the header closes the reasoning at once
  kThinking,  // the header opens it
};

}  // namespace minke

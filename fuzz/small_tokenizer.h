// A tokenizer small enough to be built for every run of a fuzz target: the single bytes, a few
// merges and the control tokens of a prompt.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/result.h"
#include "text/control_tokens.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace minke {

inline Json SmallTokenizerFile() {
  JsonObject vocabulary;
  int64_t next_id = 0;
  uint32_t next_character = 0x100;
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const bool printable = (byte >= 0x21 && byte <= 0x7E) || (byte >= 0xA1 && byte != 0xAD);
    std::string spelling;
    AppendUtf8(printable ? byte : next_character++, &spelling);
    vocabulary.emplace_back(spelling, Json(next_id++));
  }
  JsonArray merges;
  for (const char* merge : {"a a", "aa aa", "t h", "th e", "Ġ the", "< ï", "Ċ Ċ"}) {
    const std::string pair = merge;
    const size_t blank = pair.find(' ');
    vocabulary.emplace_back(pair.substr(0, blank) + pair.substr(blank + 1), Json(next_id++));
    merges.emplace_back(pair);
  }
  JsonArray added;
  for (const std::string_view content :
       {kBosToken, kEosToken, kSystemToken, kUserToken, kAssistantToken, kThinkStartToken,
        kThinkEndToken, kDsmlToken, kLatestReminderToken, kImageToken, kGroundingTokens[0]}) {
    added.push_back(JsonObject{{"id", Json(next_id++)}, {"content", std::string(content)}});
  }
  const auto split = [](const char* regex) {
    return Json(JsonObject{{"type", "Split"},
                           {"pattern", JsonObject{{"Regex", regex}}},
                           {"behavior", "Isolated"},
                           {"invert", false}});
  };
  const Json byte_level =
      JsonObject{{"type", "ByteLevel"}, {"add_prefix_space", false}, {"use_regex", false}};
  const JsonArray steps = {split(R"(\p{N}{1,3})"),
                           split(R"([^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*)"
                                 R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"),
                           byte_level};
  return JsonObject{
      {"added_tokens", added},
      {"pre_tokenizer", JsonObject{{"type", "Sequence"}, {"pretokenizers", steps}}},
      {"decoder", JsonObject{{"type", "ByteLevel"}}},
      {"model", JsonObject{{"type", "BPE"}, {"vocab", vocabulary}, {"merges", merges}}}};
}

inline const Tokenizer& SmallTokenizer() {
  static const Tokenizer kTokenizer = [] {
    auto parsed =
        Tokenizer::Parse(DumpJson(SmallTokenizerFile(), JsonStyle::kCompact), "small tokenizer");
    CHECK(parsed.has_value(), parsed.error().message);
    return std::move(*parsed);
  }();
  return kTokenizer;
}

}  // namespace minke

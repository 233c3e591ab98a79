// minke tokenize: text to ids, chat messages to ids, ids to text. Needs tokenizer.json only.
#include <iostream>
#include <utility>

#include <fmt/format.h>

#include "apps/commands.h"
#include "apps/common.h"
#include "core/file.h"
#include "engine/chat_prompt.h"
#include "text/tokenizer.h"
#include "text/utf8.h"

namespace minke {
namespace {

Json TokenStrings(const Tokenizer& tokenizer, std::span<const int32_t> ids) {
  JsonArray tokens;
  for (int32_t id : ids) tokens.emplace_back(tokenizer.Decode({&id, 1}));
  return tokens;
}

void PrintIds(const Tokenizer& tokenizer, std::span<const int32_t> ids, const std::string& text,
              bool json) {
  if (!json) {
    for (size_t i = 0; i < ids.size(); ++i) std::cout << (i == 0 ? "" : " ") << ids[i];
    std::cout << '\n';
    return;
  }
  Json result;
  result.Set("ids", JsonIds(ids));
  result.Set("count", static_cast<int64_t>(ids.size()));
  result.Set("tokens", TokenStrings(tokenizer, ids));
  result.Set("text", text);
  std::cout << DumpJson(result, JsonStyle::kCompact) << '\n';
}

Status Decode(const Tokenizer& tokenizer, const TokenizeFlags& flags) {
  const bool is_file = FileExists(*flags.decode) || *flags.decode == "-";
  const std::string source =
      is_file ? TRY(ReadInput(*flags.decode, kTokenFileBytesMax)) : *flags.decode;
  const std::vector<int32_t> ids =
      TRY(ParseTokenIds(source, is_file ? *flags.decode : "--decode", tokenizer.vocab_size()));
  const std::string text = tokenizer.Decode(ids);
  if (flags.json) {
    PrintIds(tokenizer, ids, text, true);
  } else {
    std::cout << text << '\n';
  }
  return {};
}

Status Tokenize(const TokenizeFlags& flags) {
  const std::string dir = TRY(FindModelDir(flags.model_dir));
  const Tokenizer tokenizer = TRY(Tokenizer::Load(JoinPath(dir, "tokenizer.json")));
  if (flags.decode.has_value()) return Decode(tokenizer, flags);
  if (flags.chat.has_value()) {
    const std::string json = TRY(ReadInput(*flags.chat, kMessagesBytesMax));
    const ChatPrompt prompt = TRY(MakeChatPrompt(tokenizer, json, *flags.chat,
                                                 MakeChatOptions(flags.thinking, flags.effort)));
    PrintIds(tokenizer, prompt.ids, prompt.text, flags.json);
    return {};
  }
  const std::string text = flags.text.has_value()
                               ? *flags.text
                               : TRY(ReadInput(flags.file.value_or("-"), kTextFileBytesMax));
  PrintIds(tokenizer, tokenizer.EncodePlain(text), LossyUtf8(text), flags.json);
  return {};
}

}  // namespace

int RunTokenize(const TokenizeFlags& flags) {
  const Status status = Tokenize(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

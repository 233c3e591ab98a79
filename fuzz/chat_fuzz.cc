// Requests as JSON: read by both rules, encoded, turned into ids.
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "small_tokenizer.h"
#include "text/chat_encoding.h"

namespace {

void CheckRequest(const minke::ChatRequest& request) {
  const auto prompt = minke::EncodeChat(request);
  if (!prompt.has_value()) return;
  const minke::Tokenizer& tokenizer = minke::SmallTokenizer();
  const auto ids = minke::PromptIds(*prompt, tokenizer);
  if (!ids.has_value()) return;  // a task, whose tokens the small vocabulary lacks
  CHECK(tokenizer.DecodeBytes(*ids) == prompt->Text());
  // Text from outside never becomes a control token: every one of them is a piece of its own.
  using Kind = minke::PromptPiece::Kind;
  size_t pieces = 0;
  size_t images = 0;
  for (const minke::PromptPiece& piece : prompt->pieces) {
    const bool text = piece.kind == Kind::kTemplate || piece.kind == Kind::kPlain;
    if (!text && tokenizer.ControlToken(piece.text).has_value()) ++pieces;
    if (piece.kind == Kind::kImage) ++images;
  }
  const auto is_control = [&tokenizer](int32_t id) { return tokenizer.IsControl(id); };
  CHECK(static_cast<size_t>(std::count_if(ids->begin(), ids->end(), is_control)) == pieces);
  CHECK(images == prompt->images.size());
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  if (minke::ValidUtf8Prefix(input) == input.size()) {
    static_cast<void>(minke::ParseTaggedText(input));
  }
  const auto json = minke::ParseJson(input, "fuzz input");
  if (!json.has_value()) return 0;
  for (const auto rules : {minke::RequestRules::kServer, minke::RequestRules::kOfficialEncoder}) {
    const auto request = minke::ParseChatRequest(*json, "fuzz input", rules);
    if (request.has_value()) {
      CheckRequest(*request);
    } else {
      CHECK(request.error().message.rfind("fuzz input: ", 0) == 0);
    }
  }
  return 0;
}

// Collects the pieces of a prompt in order.
#pragma once

#include <string_view>
#include <utility>

#include "text/chat_encoding.h"

namespace minke {

class PromptWriter {
 public:
  void Control(std::string_view token);
  // Text of the format. Control strings inside it are written as tokens: this text is ours.
  void Template(std::string_view text);
  void Plain(std::string_view text);
  // Text that the model wrote: its grounding marks are pieces of their own.
  void Assistant(std::string_view text);
  void Image(Json source);
  // A turn by its ids; `text` is what would have been written for it.
  void Exact(std::string_view text, const std::vector<int32_t>& ids);

  size_t text_bytes() const { return text_bytes_; }
  Prompt Take() { return std::move(prompt_); }

 private:
  void Add(PromptPiece::Kind kind, std::string_view text);

  Prompt prompt_;
  size_t text_bytes_ = 0;
};

}  // namespace minke

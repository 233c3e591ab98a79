#include "text/prompt_writer.h"

#include <array>
#include <span>

namespace minke {

namespace {

constexpr std::array<std::string_view, 3> kTemplateTokens = {kDsmlToken, kThinkStartToken,
                                                             kThinkEndToken};

// Calls use_text and use_token for the stretches of `text`, in order. One pass: the candidates
// begin with one of `first_bytes`.
template <typename UseText, typename UseToken>
void ScanTokens(std::string_view text, std::span<const std::string_view> tokens,
                std::string_view first_bytes, UseText use_text, UseToken use_token) {
  size_t at = 0;
  while ((at = text.find_first_of(first_bytes, at)) != std::string_view::npos) {
    std::string_view found;
    for (const std::string_view token : tokens) {
      if (text.substr(at).starts_with(token)) found = token;
    }
    if (found.empty()) {
      ++at;
      continue;
    }
    use_text(text.substr(0, at));
    use_token(found);
    text.remove_prefix(at + found.size());
    at = 0;
  }
  use_text(text);
}

}  // namespace

void PromptWriter::Add(PromptPiece::Kind kind, std::string_view text) {
  if (text.empty()) return;
  text_bytes_ += text.size();
  std::vector<PromptPiece>& pieces = prompt_.pieces;
  const bool is_text = kind == PromptPiece::Kind::kTemplate || kind == PromptPiece::Kind::kPlain;
  if (is_text && !pieces.empty() && pieces.back().kind == kind) {
    pieces.back().text += text;
    return;
  }
  pieces.push_back({kind, std::string(text), {}});
}

void PromptWriter::Control(std::string_view token) {
  Add(PromptPiece::Kind::kControl, token);
}

void PromptWriter::Template(std::string_view text) {
  ScanTokens(
      text, kTemplateTokens, "<\xEF",
      [this](std::string_view part) { Add(PromptPiece::Kind::kTemplate, part); },
      [this](std::string_view token) { Control(token); });
}

void PromptWriter::Plain(std::string_view text) {
  Add(PromptPiece::Kind::kPlain, text);
}

void PromptWriter::Assistant(std::string_view text) {
  ScanTokens(
      text, kGroundingTokens, "<",
      [this](std::string_view part) { Add(PromptPiece::Kind::kPlain, part); },
      [this](std::string_view token) { Add(PromptPiece::Kind::kGrounding, token); });
}

void PromptWriter::Image(Json source) {
  prompt_.images.push_back(std::move(source));
  Add(PromptPiece::Kind::kImage, kImageToken);
}

void PromptWriter::Exact(std::string_view text, const std::vector<int32_t>& ids) {
  text_bytes_ += text.size();
  prompt_.pieces.push_back({PromptPiece::Kind::kExact, std::string(text), ids});
}

}  // namespace minke

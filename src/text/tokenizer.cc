#include "text/tokenizer.h"

#include <fmt/format.h>

#include <unordered_map>
#include <utility>

#include "core/file.h"
#include "text/tokenizer_bpe.h"
#include "text/tokenizer_file.h"
#include "text/tokenizer_splitter.h"
#include "text/utf8.h"

namespace minke {

struct Tokenizer::Tables {
  std::vector<std::string> spellings;  // by id
  std::vector<std::string> bytes;      // by id
  std::vector<char> is_control;        // by id
  std::unordered_map<std::string, int32_t> control_ids;
  BpeMerger merger;
  TokenizerSplitter splitter;
};

Tokenizer::Tokenizer(std::unique_ptr<const Tables> tables) : tables_(std::move(tables)) {}
Tokenizer::Tokenizer(Tokenizer&&) noexcept = default;
Tokenizer& Tokenizer::operator=(Tokenizer&&) noexcept = default;
Tokenizer::~Tokenizer() = default;

Result<Tokenizer> Tokenizer::Load(const std::string& path) {
  const std::string json = TRY(ReadFile(path, kTokenizerFileBytesMax));
  return Parse(json, path);
}

Result<Tokenizer> Tokenizer::Parse(std::string_view json, std::string_view what) {
  if (json.size() > kTokenizerFileBytesMax) {
    return Fail(ErrorCode::kLimit, fmt::format("{}: {} bytes; at most {} are read.", what,
                                               json.size(), kTokenizerFileBytesMax));
  }
  TokenizerFile file = TRY(ParseTokenizerFile(json, what));
  TokenizerSplitter splitter =
      TRY(TokenizerSplitter::Compile(file.split_patterns, fmt::format("{}: pre_tokenizer", what)));
  Tables tables{.splitter = std::move(splitter)};
  tables.merger = BpeMerger(file.byte_ids, file.merges);
  for (size_t id = 0; id < file.spellings.size(); ++id) {
    tables.bytes.push_back(SpelledBytes(file.spellings[id]));
    if (file.is_control[id] != 0) {
      tables.control_ids.emplace(file.spellings[id], static_cast<int32_t>(id));
    }
  }
  tables.spellings = std::move(file.spellings);
  tables.is_control = std::move(file.is_control);
  return Tokenizer(std::make_unique<const Tables>(std::move(tables)));
}

int64_t Tokenizer::vocab_size() const {
  return static_cast<int64_t>(tables_->spellings.size());
}

std::vector<int32_t> Tokenizer::EncodePlain(std::string_view text) const {
  CHECK(text.size() <= kEncodeBytesMax);
  std::vector<int32_t> ids;
  const auto encode_piece = [this, &ids](std::string_view piece) {
    tables_->merger.Encode(piece, &ids);
  };
  while (!text.empty()) {
    const size_t valid = ValidUtf8Prefix(text);
    tables_->splitter.Split(text.substr(0, valid), encode_piece);
    text.remove_prefix(valid);
    size_t invalid = 0;
    while (invalid < text.size()) {
      const Utf8Step step = ReadUtf8(text.substr(invalid));
      if (step.kind == Utf8Step::Kind::kCharacter) break;
      invalid += static_cast<size_t>(step.bytes);
    }
    if (invalid > 0) encode_piece(text.substr(0, invalid));
    text.remove_prefix(invalid);
  }
  return ids;
}

std::optional<int32_t> Tokenizer::ControlToken(std::string_view content) const {
  const auto found = tables_->control_ids.find(std::string(content));
  if (found == tables_->control_ids.end()) return std::nullopt;
  return found->second;
}

bool Tokenizer::IsControl(int32_t id) const {
  return id >= 0 && id < vocab_size() && tables_->is_control[static_cast<size_t>(id)] != 0;
}

std::string_view Tokenizer::TokenBytes(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return tables_->bytes[static_cast<size_t>(id)];
}

std::string_view Tokenizer::TokenSpelling(int32_t id) const {
  if (id < 0 || id >= vocab_size()) return {};
  return tables_->spellings[static_cast<size_t>(id)];
}

std::string Tokenizer::DecodeBytes(std::span<const int32_t> ids) const {
  std::string bytes;
  for (const int32_t id : ids) bytes += TokenBytes(id);
  return bytes;
}

std::string Tokenizer::Decode(std::span<const int32_t> ids) const {
  return LossyUtf8(DecodeBytes(ids));
}

std::string StreamingDetokenizer::Push(int32_t id) {
  if (control_ == ControlText::kSkip && tokenizer_->IsControl(id)) return Flush();
  std::string text;
  bytes_.Push(tokenizer_->TokenBytes(id), &text);
  return text;
}

std::string StreamingDetokenizer::Flush() {
  std::string text;
  bytes_.Flush(&text);
  return text;
}

}  // namespace minke

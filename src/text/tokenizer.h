// The byte-level BPE tokenizer of a tokenizer.json (serving.md 3). Text always becomes ordinary
// tokens: control tokens are asked for by name and never recognised inside text.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/utf8.h"

namespace minke {

inline constexpr uint64_t kTokenizerFileBytesMax = uint64_t{64} << 20;
inline constexpr size_t kVocabularyEntriesMax = size_t{1} << 20;  // tokens, and merges
inline constexpr size_t kTokenBytesMax = 4096;                    // bytes of one token
inline constexpr size_t kEncodeBytesMax = size_t{256} << 20;      // bytes of one EncodePlain()

// Immutable after loading; all members may be called from several threads at once.
class Tokenizer {
 public:
  // Reads a Hugging Face tokenizer.json. Everything that would change the ids and is not
  // implemented (normalizers, other pre-tokenizers, dropout, ...) is an error naming its field.
  static Result<Tokenizer> Load(const std::string& path);
  // The same from memory; `what` names the source in errors.
  static Result<Tokenizer> Parse(std::string_view json, std::string_view what);

  Tokenizer(Tokenizer&&) noexcept;
  Tokenizer& operator=(Tokenizer&&) noexcept;
  ~Tokenizer();

  // One more than the largest id.
  int64_t vocab_size() const;

  // Plain BPE: the ids never include a control token, whatever the text says. Bytes that are not
  // UTF-8 are kept: each run of them is a piece of its own, so DecodeBytes() always returns the
  // text. REQUIRES at most kEncodeBytesMax bytes. A stretch on which a pattern of the file exceeds
  // the match limit stays in one piece (the released patterns need constant stack and never do).
  std::vector<int32_t> EncodePlain(std::string_view text) const;

  // The id of the added token with exactly this content, e.g. "<｜User｜>".
  std::optional<int32_t> ControlToken(std::string_view content) const;
  bool IsControl(int32_t id) const;

  // The bytes a token stands for; a control token's are its content. Empty for an id that has no
  // token (negative, too large, or a gap). Valid as long as the tokenizer.
  std::string_view TokenBytes(int32_t id) const;
  // The token as the file spells it, with bytes written as the byte-level alphabet's characters.
  std::string_view TokenSpelling(int32_t id) const;

  std::string DecodeBytes(std::span<const int32_t> ids) const;
  // DecodeBytes() made valid UTF-8: each invalid sequence becomes U+FFFD.
  std::string Decode(std::span<const int32_t> ids) const;

 private:
  struct Tables;
  explicit Tokenizer(std::unique_ptr<const Tables> tables);

  std::unique_ptr<const Tables> tables_;
};

// What a StreamingDetokenizer does with control tokens.
enum class ControlText {
  kKeep,  // their content is part of the text
  kSkip,  // they leave no text
};

// Turns ids into text as they come, never emitting half a character: bytes that could still
// become a character wait, and bytes that cannot become U+FFFD at once. The pieces of all calls
// joined equal Tokenizer::Decode() of the ids (kKeep). Keeps a reference to the tokenizer.
class StreamingDetokenizer {
 public:
  explicit StreamingDetokenizer(const Tokenizer& tokenizer,
                                ControlText control = ControlText::kKeep)
      : tokenizer_(&tokenizer), control_(control) {}

  std::string Push(int32_t id);
  // What was waiting, as U+FFFD; afterwards the object is as new.
  std::string Flush();

 private:
  const Tokenizer* tokenizer_;
  ControlText control_;
  Utf8Stream bytes_;
};

}  // namespace minke

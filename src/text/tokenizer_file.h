// What a tokenizer.json says, checked: the fields of the byte-level BPE family and nothing else.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "text/tokenizer_bpe.h"

namespace minke {

struct TokenizerFile {
  // By id; "" where the id has no token. Spelled with the byte-level alphabet.
  std::vector<std::string> spellings;
  std::vector<char> is_control;         // by id: an added token
  std::array<int32_t, 256> byte_ids{};  // the token of each single byte
  std::vector<BpeMerge> merges;         // in the order of their ranks
  std::vector<std::string> split_patterns;
};

// REQUIRES nothing of the input. Errors name `what` and the field. Guarantees that merging never
// makes a control token.
Result<TokenizerFile> ParseTokenizerFile(std::string_view json, std::string_view what);

// The bytes behind a spelling: each character of the byte-level alphabet is one byte; a spelling
// with any other character stands for itself, as in the Hugging Face decoder.
std::string SpelledBytes(std::string_view spelling);
// The spelling of bytes in that alphabet.
std::string ByteSpelling(std::string_view bytes);

}  // namespace minke

// Shared by the text tests: the mini tokenizer, and the official pipeline's way to ids.
#pragma once

#include <cstdint>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "text/chat_encoding.h"
#include "text/tokenizer.h"

namespace minke::testing {

// The 512-entry tokenizer of the golden sets.
const Tokenizer& MiniTokenizer();

// Ids as the golden files have them: the whole prompt as one string, in which every control token
// is recognised, whoever wrote it. That is what the program must not do, and what it must agree
// with wherever no text from outside spells a control token.
std::vector<int32_t> RecognisingIds(std::string_view prompt, const Tokenizer& tokenizer);

// A golden case that the official encoder must have produced; drop_thinking is on by default.
ChatRequest MustParseOfficial(const Json& golden_case);

// Parsed test input.
Json MustParse(std::string_view json);

// The prompt of a request that must be in order.
Prompt MustEncode(std::string_view json);

// Pseudo-random texts: valid characters of many scripts, blanks, digits and punctuation.
std::string RandomText(std::mt19937* generator, size_t characters);
std::string RandomBytes(std::mt19937* generator, size_t bytes);

// Processor seconds of this process, which other work on the machine does not stretch.
double CpuSeconds();
// By how much sanitizers may stretch a time limit.
double SlowdownAllowed();

}  // namespace minke::testing

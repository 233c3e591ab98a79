// Two uses of the input: as a tokenizer.json, and as a text for a fixed tokenizer.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "small_tokenizer.h"

namespace {

void CheckText(const minke::Tokenizer& tokenizer, std::string_view text) {
  const std::vector<int32_t> ids = tokenizer.EncodePlain(text);
  CHECK(tokenizer.DecodeBytes(ids) == text);
  minke::StreamingDetokenizer stream(tokenizer);
  std::string streamed;
  for (const int32_t id : ids) {
    CHECK(!tokenizer.IsControl(id));
    const std::string part = stream.Push(id);
    CHECK(minke::ValidUtf8Prefix(part) == part.size());
    streamed += part;
  }
  streamed += stream.Flush();
  CHECK(streamed == minke::LossyUtf8(text));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view input(reinterpret_cast<const char*>(data), size);
  CheckText(minke::SmallTokenizer(), input);
  const auto tokenizer = minke::Tokenizer::Parse(input, "fuzz input");
  if (!tokenizer.has_value()) {
    CHECK(tokenizer.error().message.find("fuzz input") != std::string::npos);
    return 0;
  }
  // A file that is accepted is a whole tokenizer: it spells every text. A hostile pattern may be
  // slow up to its limits, so the text is short.
  CheckText(*tokenizer, input.substr(0, 64));
  return 0;
}

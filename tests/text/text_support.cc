#include "tests/text/text_support.h"

#include <algorithm>
#include <array>
#include <ctime>

#include "tests/support/golden.h"
#include "text/utf8.h"

namespace minke::testing {

const Tokenizer& MiniTokenizer() {
  static const Tokenizer kTokenizer = [] {
    auto loaded = Tokenizer::Load(GoldenPath("tiny_swa/tokenizer.json"));
    CHECK(loaded.has_value(), loaded.error().message);
    return std::move(*loaded);
  }();
  return kTokenizer;
}

std::vector<int32_t> RecognisingIds(std::string_view prompt, const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  std::string text;
  const auto encode_text = [&] {
    const std::vector<int32_t> encoded = tokenizer.EncodePlain(text);
    ids.insert(ids.end(), encoded.begin(), encoded.end());
    text.clear();
  };
  std::vector<int32_t> controls;
  std::string first_bytes;
  for (int32_t id = 0; id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.IsControl(id)) continue;
    controls.push_back(id);
    first_bytes += tokenizer.TokenBytes(id)[0];
  }
  while (!prompt.empty()) {
    const size_t plain = std::min(prompt.find_first_of(first_bytes), prompt.size());
    text += prompt.substr(0, plain);
    prompt.remove_prefix(plain);
    if (prompt.empty()) break;
    int32_t found = -1;
    for (const int32_t id : controls) {
      const std::string_view content = tokenizer.TokenBytes(id);
      if (!prompt.starts_with(content)) continue;
      if (found < 0 || content.size() > tokenizer.TokenBytes(found).size()) found = id;
    }
    if (found < 0) {
      text += prompt[0];
      prompt.remove_prefix(1);
      continue;
    }
    encode_text();
    ids.push_back(found);
    prompt.remove_prefix(tokenizer.TokenBytes(found).size());
  }
  encode_text();
  return ids;
}

ChatRequest MustParseOfficial(const Json& golden_case) {
  auto request = ParseChatRequest(golden_case, "golden case", RequestRules::kOfficialEncoder);
  CHECK(request.has_value(), request.error().message);
  return std::move(*request);
}

Json MustParse(std::string_view json) {
  auto parsed = ParseJson(json, "test input");
  CHECK(parsed.has_value(), parsed.error().message);
  return std::move(*parsed);
}

Prompt MustEncode(std::string_view json) {
  auto request = ParseChatRequest(MustParse(json), "test");
  CHECK(request.has_value(), request.error().message);
  auto prompt = EncodeChat(*request);
  CHECK(prompt.has_value(), prompt.error().message);
  return std::move(*prompt);
}

std::string RandomText(std::mt19937* generator, size_t characters) {
  struct Range {
    uint32_t first;
    uint32_t last;
  };
  constexpr std::array<Range, 14> kRanges = {{{'a', 'e'},
                                              {'a', 'z'},
                                              {'A', 'Z'},
                                              {'0', '9'},
                                              {' ', ' '},
                                              {'\t', '\r'},
                                              {'!', '/'},
                                              {0x00, 0x1F},
                                              {0xA0, 0x17F},
                                              {0x300, 0x36F},
                                              {0x3040, 0x30FF},
                                              {0x4E00, 0x9FA5},
                                              {0x1F300, 0x1F64F},
                                              {0x2000, 0x206F}}};
  std::string text;
  for (size_t i = 0; i < characters; ++i) {
    const Range range = kRanges[(*generator)() % kRanges.size()];
    AppendUtf8(range.first + (*generator)() % (range.last - range.first + 1), &text);
  }
  return text;
}

std::string RandomBytes(std::mt19937* generator, size_t bytes) {
  std::string text;
  for (size_t i = 0; i < bytes; ++i) text += static_cast<char>((*generator)() & 0xFF);
  return text;
}

double CpuSeconds() {
  return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
}

double SlowdownAllowed() {
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
  return 20;
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
  return 20;
#else
  return 1;
#endif
#else
  return 1;
#endif
}

}  // namespace minke::testing

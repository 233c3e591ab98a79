// Kept turns from a file: the input is what follows the version, with a checksum made for it.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "core/result.h"
#include "text/replay_map.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  constexpr size_t kBytesMax = 4096;
  std::string bytes("MINKERPL\x01\0\0\0\x01\0\0\0m", 17);
  bytes.append(reinterpret_cast<const char*>(data), size);
  uint64_t sum = 0xCBF29CE484222325ULL;
  for (const char c : bytes) {
    sum = (sum ^ static_cast<unsigned char>(c)) * 0x00000100000001B3ULL;
  }
  for (int shift = 0; shift < 64; shift += 8) bytes += static_cast<char>(sum >> shift & 0xFF);
  auto loaded = minke::ReplayMap::Load(bytes, "m", kBytesMax);
  if (!loaded.has_value()) return 0;
  CHECK(loaded->bytes() <= kBytesMax);
  const std::string saved = loaded->Save("m");
  const auto again = minke::ReplayMap::Load(saved, "m", kBytesMax);
  CHECK(again.has_value() && again->Save("m") == saved);
  minke::ChatRequest request;
  request.messages.resize(1);
  request.messages[0].role = minke::Role::kAssistant;
  request.messages[0].tool_calls = {{"c", "f", minke::Json("{}")}};
  loaded->Apply("t", &request);
  return 0;
}

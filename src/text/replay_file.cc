// A ReplayMap as bytes (docs/formats/replay_map.md).
#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "text/replay_map.h"

namespace minke {

namespace {

static_assert(std::endian::native == std::endian::little, "numbers are written as they lie");

constexpr std::string_view kReplayMagic = "MINKERPL";
constexpr uint32_t kReplayVersion = 1;
constexpr size_t kReplayChecksumBytes = 8;

// Finds damage; resists nobody.
uint64_t Checksum(std::string_view bytes) {
  uint64_t sum = 0xCBF29CE484222325ULL;
  for (const char c : bytes) {
    sum = (sum ^ static_cast<unsigned char>(c)) * 0x00000100000001B3ULL;
  }
  return sum;
}

template <typename Number>
void AppendNumber(Number number, std::string* bytes) {
  char raw[sizeof(number)];
  std::memcpy(raw, &number, sizeof(number));
  bytes->append(raw, sizeof(number));
}

void AppendString(std::string_view text, std::string* bytes) {
  AppendNumber(static_cast<uint32_t>(text.size()), bytes);
  *bytes += text;
}

// Reads what is there; once something is not, everything after is empty and `good` is false.
struct ReplayReader {
  std::string_view rest;
  bool good = true;

  std::string_view Take(size_t bytes) {
    if (!good || bytes > rest.size()) {
      good = false;
      return {};
    }
    const std::string_view taken = rest.substr(0, bytes);
    rest.remove_prefix(bytes);
    return taken;
  }
  template <typename Number>
  Number Take() {
    Number number{};
    const std::string_view raw = Take(sizeof(number));
    if (good) std::memcpy(&number, raw.data(), sizeof(number));
    return number;
  }
  std::string String() { return std::string(Take(Take<uint32_t>())); }
  // How many elements follow, each of at least so many bytes: what memory they may ask for.
  size_t Count(size_t bytes_min) {
    const size_t count = Take<uint32_t>();
    if (count > rest.size() / bytes_min) good = false;
    return good ? count : 0;
  }
};

void AppendTurn(const WrittenTurn& turn, const std::vector<std::string>& keys, std::string* bytes) {
  AppendNumber(static_cast<uint32_t>(keys.size()), bytes);
  for (const std::string& key : keys) AppendString(key, bytes);
  AppendNumber(static_cast<uint8_t>(turn.thinking ? 1 : 0), bytes);
  AppendNumber(static_cast<uint32_t>(turn.ids.size()), bytes);
  for (const int32_t id : turn.ids) AppendNumber(id, bytes);
  AppendString(turn.reasoning, bytes);
  AppendString(turn.content, bytes);
  AppendNumber(static_cast<uint32_t>(turn.tool_calls.size()), bytes);
  for (const ToolCall& call : turn.tool_calls) {
    AppendString(call.id, bytes);
    AppendString(call.name, bytes);
    AppendString(call.arguments.as_string(), bytes);
  }
}

WrittenTurn TakeTurn(ReplayReader* reader, std::vector<std::string>* keys) {
  constexpr size_t kStringBytesMin = 4;
  for (size_t i = reader->Count(kStringBytesMin); i > 0; --i) keys->push_back(reader->String());
  WrittenTurn turn;
  turn.thinking = reader->Take<uint8_t>() != 0;
  for (size_t i = reader->Count(sizeof(int32_t)); i > 0; --i) {
    turn.ids.push_back(reader->Take<int32_t>());
  }
  turn.reasoning = reader->String();
  turn.content = reader->String();
  for (size_t i = reader->Count(3 * kStringBytesMin); i > 0; --i) {
    ToolCall call;
    call.id = reader->String();
    call.name = reader->String();
    call.arguments = Json(reader->String());
    turn.tool_calls.push_back(std::move(call));
  }
  return turn;
}

}  // namespace

std::string ReplayMap::Save(std::string_view model) const {
  std::string bytes;
  bytes.reserve(bytes_);  // growing by doubling would leave holes of its size behind
  bytes += kReplayMagic;
  AppendNumber(kReplayVersion, &bytes);
  AppendString(model, &bytes);
  AppendNumber(static_cast<uint32_t>(turns_.size()), &bytes);
  for (auto kept = turns_.rbegin(); kept != turns_.rend(); ++kept) {
    AppendTurn(kept->turn, kept->keys, &bytes);
  }
  AppendNumber(Checksum(bytes), &bytes);
  return bytes;
}

Result<ReplayMap> ReplayMap::Load(std::string_view bytes, std::string_view model,
                                  size_t bytes_max) {
  const auto refuse = [](std::string_view reason) {
    return Fail(fmt::format("The kept turns cannot be used: {}; they are made anew.", reason));
  };
  if (bytes.size() < kReplayMagic.size() + kReplayChecksumBytes ||
      !bytes.starts_with(kReplayMagic)) {
    return refuse("the bytes begin otherwise");
  }
  ReplayReader sum{bytes.substr(bytes.size() - kReplayChecksumBytes)};
  ReplayReader reader{bytes.substr(0, bytes.size() - kReplayChecksumBytes)};
  if (sum.Take<uint64_t>() != Checksum(reader.rest)) return refuse("their checksum is wrong");
  reader.Take(kReplayMagic.size());
  const uint32_t version = reader.Take<uint32_t>();
  if (reader.good && version != kReplayVersion) {
    return refuse(fmt::format("their format is {} and not {}", version, kReplayVersion));
  }
  const std::string written_for = reader.String();
  if (reader.good && written_for != model) return refuse("they belong to another model");
  ReplayMap map(bytes_max);
  for (size_t i = reader.Take<uint32_t>(); i > 0 && reader.good; --i) {
    std::vector<std::string> keys;
    WrittenTurn turn = TakeTurn(&reader, &keys);
    if (!reader.good) break;
    if (keys.size() > kReplayIdsMax) return refuse("a turn has too many ids");
    map.Insert(std::move(keys), std::move(turn));
  }
  if (!reader.good || !reader.rest.empty()) return refuse("they end at the wrong place");
  return map;
}

}  // namespace minke

// A safetensors file and, with the same bytes, the index of a sharded checkpoint. Whatever is
// accepted must stay inside the bytes that were given.
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "checkpoint/safetensors.h"

namespace {

void CheckHeader(const minke::SafetensorsHeader& header, size_t file_bytes) {
  uint64_t covered = 0;
  for (const auto& entry : header.entries) {
    CHECK(entry.begin <= entry.end && entry.end <= file_bytes, entry.name);
    CHECK(entry.begin >= covered, entry.name);
    CHECK(entry.shape.size() <= minke::kTensorRankMax, entry.name);
    auto bytes = static_cast<uint64_t>(minke::DTypeBytes(entry.dtype));
    for (const int64_t dim : entry.shape) bytes *= static_cast<uint64_t>(dim);
    CHECK(bytes == entry.end - entry.begin, entry.name);
    covered = entry.end;
  }
}

void CheckIndex(const minke::SafetensorsIndex& index) {
  for (const std::string& shard : index.shards) {
    CHECK(shard.find('/') == std::string::npos && shard != "..", shard);
  }
  for (const auto& [name, shard] : index.weight_map) CHECK(shard < index.shards.size(), name);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::span bytes(reinterpret_cast<const std::byte*>(data), size);
  const auto header = minke::ParseSafetensorsHeader(bytes, "input");
  if (header) CheckHeader(*header, size);
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto index = minke::ParseSafetensorsIndex(text, "input");
  if (index) CheckIndex(*index);
  return 0;
}

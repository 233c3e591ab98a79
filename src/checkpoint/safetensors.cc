#include "checkpoint/safetensors.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <utility>

#include "core/json.h"

namespace minke {

namespace {

constexpr const char* kSingleFileName = "model.safetensors";
constexpr const char* kIndexFileName = "model.safetensors.index.json";
constexpr const char* kMetadataKey = "__metadata__";
constexpr std::string_view kShardSuffix = ".safetensors";
constexpr size_t kLengthBytes = 8;      // the header length in front of the header
constexpr size_t kShownNameBytes = 96;  // of a name from outside, in an error
constexpr size_t kFileNameBytesMax = 255;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr std::array kDTypes = {DType::kBf16, DType::kF32, DType::kF8E4M3, DType::kF8E8M0,
                                DType::kI8};

std::optional<DType> DTypeOf(std::string_view name) {
  for (const DType dtype : kDTypes) {
    if (name == DTypeName(dtype)) return dtype;
  }
  return std::nullopt;
}

// Names come from the file: shown in quotes, cut, without control characters.
std::string Quoted(std::string_view name) {
  std::string shown(name.substr(0, kShownNameBytes));
  for (char& c : shown) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = '?';
  }
  return fmt::format("\"{}{}\"", shown, name.size() > kShownNameBytes ? "..." : "");
}

tl::unexpected<Error> BadFile(std::string_view path, std::string_view problem) {
  return Fail(fmt::format("{}: {}", path, problem));
}

tl::unexpected<Error> BadTensor(std::string_view path, std::string_view name,
                                std::string_view problem) {
  return Fail(fmt::format("{}: tensor {}: {}", path, Quoted(name), problem));
}

// The header text, or why the bytes cannot hold one.
Result<std::string_view> HeaderText(std::span<const std::byte> file_bytes, std::string_view path) {
  if (file_bytes.size() < kLengthBytes) {
    return BadFile(path, fmt::format("a safetensors file starts with an 8-byte header length, but "
                                     "the file has {} bytes",
                                     file_bytes.size()));
  }
  uint64_t length = 0;
  std::memcpy(&length, file_bytes.data(), kLengthBytes);
  if (length > kSafetensorsHeaderBytesMax) {
    return BadFile(path,
                   fmt::format("the header claims {} bytes, but at most {} are accepted; this "
                               "may not be a safetensors file",
                               length, kSafetensorsHeaderBytesMax));
  }
  if (length > file_bytes.size() - kLengthBytes) {
    return BadFile(path, fmt::format("the header claims {} bytes, but only {} follow its length; "
                                     "the file is truncated",
                                     length, file_bytes.size() - kLengthBytes));
  }
  const char* text = reinterpret_cast<const char*>(file_bytes.data()) + kLengthBytes;
  if (length == 0 || text[0] != '{') {
    return BadFile(path, "the header must be a JSON object and begin with '{'");
  }
  return std::string_view(text, length);
}

Status CheckMetadata(const Json& metadata, std::string_view path) {
  if (!metadata.is_object()) {
    return BadFile(path, fmt::format("{} must be an object of strings, but it is of type {}",
                                     kMetadataKey, metadata.TypeName()));
  }
  for (const auto& [key, value] : metadata.as_object()) {
    if (value.is_string()) continue;
    return BadFile(path, fmt::format("{}: {} must be a string, but it is of type {}", kMetadataKey,
                                     Quoted(key), value.TypeName()));
  }
  return {};
}

// The bytes that the shape demands; the product is checked step by step, as it may overflow.
Result<uint64_t> ShapeBytes(const SafetensorsHeader::Entry& entry, std::string_view path) {
  auto bytes = static_cast<uint64_t>(DTypeBytes(entry.dtype));
  for (const int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(bytes, static_cast<uint64_t>(dim), &bytes)) {
      return BadTensor(path, entry.name,
                       fmt::format("the size of shape [{}] does not fit in 64 bits",
                                   fmt::join(entry.shape, ", ")));
    }
  }
  return bytes;
}

Status ParseShape(const Json& value, std::string_view path, SafetensorsHeader::Entry& entry) {
  const Json* shape = value.Find("shape");
  if (shape == nullptr || !shape->is_array()) {
    return BadTensor(path, entry.name, "\"shape\" must be an array of integers");
  }
  const JsonArray& dims = shape->as_array();
  if (dims.size() > kTensorRankMax) {
    return BadTensor(
        path, entry.name,
        fmt::format("has {} dimensions, but at most {} are accepted", dims.size(), kTensorRankMax));
  }
  for (const Json& dim : dims) {
    // Beyond int64 the value is an unsigned integer or a double; neither is a possible size.
    const auto* size = std::get_if<int64_t>(&dim.value());
    if (size == nullptr || *size < 0) {
      return BadTensor(
          path, entry.name,
          fmt::format("a dimension must be an integer from 0 to 2^63 - 1, but it is {}",
                      dim.is_number() ? DumpJson(dim, JsonStyle::kCompact)
                                      : fmt::format("of type {}", dim.TypeName())));
    }
    entry.shape.push_back(*size);
  }
  return {};
}

Status ParseOffsets(const Json& value, uint64_t data_start, uint64_t data_bytes,
                    std::string_view path, SafetensorsHeader::Entry& entry) {
  const Json* offsets = value.Find("data_offsets");
  const JsonArray* pair =
      offsets != nullptr && offsets->is_array() ? &offsets->as_array() : nullptr;
  const int64_t* begin = nullptr;
  const int64_t* end = nullptr;
  if (pair != nullptr && pair->size() == 2) {
    begin = std::get_if<int64_t>(&(*pair)[0].value());
    end = std::get_if<int64_t>(&(*pair)[1].value());
  }
  if (begin == nullptr || end == nullptr || *begin < 0) {
    return BadTensor(path, entry.name,
                     "\"data_offsets\" must be two integers [begin, end] of at least 0");
  }
  if (*begin > *end) {
    return BadTensor(path, entry.name,
                     fmt::format("data_offsets [{}, {}] end before they begin", *begin, *end));
  }
  if (static_cast<uint64_t>(*end) > data_bytes) {
    return BadTensor(
        path, entry.name,
        fmt::format("data_offsets [{}, {}] reach beyond the {} bytes of data; the file "
                    "is truncated or damaged",
                    *begin, *end, data_bytes));
  }
  const uint64_t expected = TRY(ShapeBytes(entry, path));
  if (static_cast<uint64_t>(*end - *begin) != expected) {
    return BadTensor(
        path, entry.name,
        fmt::format("shape [{}] of {} takes {} bytes, but data_offsets [{}, {}] hold {}",
                    fmt::join(entry.shape, ", "), DTypeName(entry.dtype), expected, *begin, *end,
                    *end - *begin));
  }
  entry.begin = data_start + static_cast<uint64_t>(*begin);
  entry.end = data_start + static_cast<uint64_t>(*end);
  return {};
}

Result<SafetensorsHeader::Entry> ParseEntry(const std::string& name, const Json& value,
                                            uint64_t data_start, uint64_t data_bytes,
                                            std::string_view path) {
  SafetensorsHeader::Entry entry;
  entry.name = name;
  if (name.empty() || name.size() > kTensorNameBytesMax) {
    return BadTensor(path, name,
                     fmt::format("a name must have 1 to {} bytes, but it has {}",
                                 kTensorNameBytesMax, name.size()));
  }
  if (!value.is_object()) {
    return BadTensor(
        path, name,
        fmt::format("must be described by an object, but found type {}", value.TypeName()));
  }
  const Json* dtype = value.Find("dtype");
  if (dtype == nullptr || !dtype->is_string()) {
    return BadTensor(path, name, "\"dtype\" must be a string");
  }
  const std::optional<DType> known = DTypeOf(dtype->as_string());
  if (!known) {
    return BadTensor(path, name,
                     fmt::format("dtype must be BF16, F32, F8_E4M3, F8_E8M0 or I8, but it is {}",
                                 Quoted(dtype->as_string())));
  }
  entry.dtype = *known;
  TRY_STATUS(ParseShape(value, path, entry));
  TRY_STATUS(ParseOffsets(value, data_start, data_bytes, path, entry));
  return entry;
}

// REQUIRES: entries ascending by begin, all inside the file.
Status CheckCoverage(const std::vector<SafetensorsHeader::Entry>& entries, uint64_t data_start,
                     uint64_t file_bytes, std::string_view path) {
  uint64_t covered = data_start;
  const SafetensorsHeader::Entry* previous = nullptr;
  for (const SafetensorsHeader::Entry& entry : entries) {
    if (entry.begin < covered) {
      return BadTensor(
          path, entry.name,
          fmt::format("begins at byte {} of the data, inside tensor {}, which ends at "
                      "byte {}",
                      entry.begin - data_start, Quoted(previous->name), covered - data_start));
    }
    if (entry.begin > covered) {
      return BadTensor(
          path, entry.name,
          fmt::format("begins at byte {} of the data, but the tensors before it end at "
                      "byte {}: holes are not allowed",
                      entry.begin - data_start, covered - data_start));
    }
    covered = entry.end;
    previous = &entry;
  }
  if (covered != file_bytes) {
    return BadFile(path, fmt::format("the tensors end at byte {}, but the file has {} bytes: bytes "
                                     "that belong to no tensor are not allowed",
                                     covered, file_bytes));
  }
  return {};
}

bool IsPlainFileName(std::string_view name) {
  return name.size() > kShardSuffix.size() && name.size() <= kFileNameBytesMax &&
         name.ends_with(kShardSuffix) && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

const char* DTypeName(DType dtype) {
  switch (dtype) {
    case DType::kBf16:
      return "BF16";
    case DType::kF32:
      return "F32";
    case DType::kF8E4M3:
      return "F8_E4M3";
    case DType::kF8E8M0:
      return "F8_E8M0";
    case DType::kI8:
      return "I8";
  }
  return "";
}

int64_t DTypeBytes(DType dtype) {
  if (dtype == DType::kF32) return 4;
  return dtype == DType::kBf16 ? 2 : 1;
}

Result<SafetensorsHeader> ParseSafetensorsHeader(std::span<const std::byte> file_bytes,
                                                 std::string_view path) {
  const std::string_view text = TRY(HeaderText(file_bytes, path));
  const Json json = TRY(ParseJson(text, fmt::format("the header of {}", path)));
  const uint64_t data_start = kLengthBytes + text.size();
  const uint64_t data_bytes = file_bytes.size() - data_start;
  const JsonObject& members = json.as_object();
  if (members.size() > kTensorCountMax) {
    return BadFile(path, fmt::format("the header describes {} tensors, but at most {} are accepted",
                                     members.size(), kTensorCountMax));
  }
  SafetensorsHeader header;
  header.entries.reserve(members.size());
  for (const auto& [name, value] : members) {
    if (name == kMetadataKey) {
      TRY_STATUS(CheckMetadata(value, path));
      continue;
    }
    header.entries.push_back(TRY(ParseEntry(name, value, data_start, data_bytes, path)));
  }
  // Empty tensors share their begin with the next one; by end they come first.
  std::sort(header.entries.begin(), header.entries.end(), [](const auto& a, const auto& b) {
    return std::pair(a.begin, a.end) < std::pair(b.begin, b.end);
  });
  TRY_STATUS(CheckCoverage(header.entries, data_start, file_bytes.size(), path));
  return header;
}

Result<SafetensorsIndex> ParseSafetensorsIndex(std::string_view text, std::string_view path) {
  const Json json = TRY(ParseJson(text, path));
  SafetensorsIndex index;
  const Json* metadata = json.Find("metadata");
  if (metadata == nullptr) return BadFile(path, "the required key \"metadata\" is missing");
  const int64_t total_size =
      TRY(JsonInt(*metadata, "total_size", fmt::format("{}: metadata", path)));
  if (total_size < 0) {
    return BadFile(path,
                   fmt::format("metadata.total_size must be at least 0, but it is {}", total_size));
  }
  index.total_size = static_cast<uint64_t>(total_size);
  const JsonObject& weight_map = *TRY(JsonMembers(json, "weight_map", path));
  if (weight_map.empty() || weight_map.size() > kTensorCountMax) {
    return BadFile(path, fmt::format("weight_map must name 1 to {} tensors, but it names {}",
                                     kTensorCountMax, weight_map.size()));
  }
  std::map<std::string, size_t, std::less<>> shards;
  for (const auto& [name, shard] : weight_map) {
    if (!shard.is_string() || !IsPlainFileName(shard.as_string())) {
      return BadTensor(
          path, name,
          fmt::format("its shard must be a *.safetensors file name without a folder, "
                      "but it is {}",
                      shard.is_string() ? Quoted(shard.as_string())
                                        : fmt::format("of type {}", shard.TypeName())));
    }
    shards.emplace(shard.as_string(), 0);
  }
  if (shards.size() > kShardCountMax) {
    return BadFile(path, fmt::format("weight_map names {} shards, but at most {} are accepted",
                                     shards.size(), kShardCountMax));
  }
  for (auto& [name, position] : shards) {
    position = index.shards.size();
    index.shards.push_back(name);
  }
  for (const auto& [name, shard] : weight_map) {
    index.weight_map.emplace(name, shards.find(shard.as_string())->second);
  }
  return index;
}

void Checkpoint::Relocate(std::string_view name, std::span<const std::byte> bytes) {
  const auto found = tensors_.find(name);
  CHECK(found != tensors_.end() && found->second.bytes.size() == bytes.size(), name);
  found->second.bytes = bytes;
}

void Checkpoint::Prewarm(const std::function<bool(uint64_t done, uint64_t total)>& progress) const {
  uint64_t done = 0;
  for (const MappedFile& file : files_) {
    for (size_t begin = 0; begin < file.bytes().size(); begin += kPrewarmStepBytes) {
      const size_t count = std::min(kPrewarmStepBytes, file.bytes().size() - begin);
      file.ReadAhead(begin, count);
      done += count;
      if (!progress(done, file_bytes_)) return;
    }
  }
}

Status Checkpoint::AddShard(const std::string& name, size_t shard, const SafetensorsIndex* index) {
  const std::string path = JoinPath(directory_, name);
  auto opened = MappedFile::Open(path);
  if (!opened && opened.error().code == ErrorCode::kNotFound && index != nullptr) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("{} names shard {}, but {} does not exist; is the download complete?",
                            JoinPath(directory_, kIndexFileName), name, path));
  }
  if (!opened) return tl::unexpected(std::move(opened).error());
  // The vector was reserved: views of paths stay valid.
  const MappedFile& file = files_.emplace_back(std::move(*opened));
  SafetensorsHeader header = TRY(ParseSafetensorsHeader(file.bytes(), file.path()));
  for (SafetensorsHeader::Entry& entry : header.entries) {
    const auto twin = tensors_.find(entry.name);
    if (twin != tensors_.end()) {
      return BadTensor(path, entry.name, fmt::format("is also in {}", twin->second.file));
    }
    if (index != nullptr) {
      const auto listed = index->weight_map.find(entry.name);
      if (listed == index->weight_map.end()) {
        return BadTensor(path, entry.name,
                         fmt::format("is in the shard, but {} does not list it", kIndexFileName));
      }
      if (listed->second != shard) {
        return BadTensor(path, entry.name,
                         fmt::format("is in this shard, but {} places it in {}", kIndexFileName,
                                     index->shards[listed->second]));
      }
    }
    const uint64_t bytes = entry.end - entry.begin;
    tensor_bytes_ += bytes;
    const auto inserted = tensors_.emplace(std::move(entry.name), TensorView()).first;
    inserted->second = TensorView{inserted->first,
                                  entry.dtype,
                                  std::move(entry.shape),
                                  file.bytes().subspan(entry.begin, bytes),
                                  file.path(),
                                  entry.begin};
  }
  file_bytes_ += file.bytes().size();
  return {};
}

Result<Checkpoint> Checkpoint::Open(const std::string& directory) {
  Checkpoint checkpoint;
  checkpoint.directory_ = directory;
  const std::string single = JoinPath(directory, kSingleFileName);
  const std::string index_path = JoinPath(directory, kIndexFileName);
  if (!FileExists(index_path)) {
    if (!FileExists(single)) {
      return Fail(ErrorCode::kNotFound,
                  fmt::format("{} holds neither {} nor {}; give the folder of a checkpoint",
                              directory, kSingleFileName, kIndexFileName));
    }
    checkpoint.files_.reserve(1);
    TRY_STATUS(checkpoint.AddShard(kSingleFileName, 0, nullptr));
    return checkpoint;
  }
  if (FileExists(single)) {
    return BadFile(directory, fmt::format("holds both {} and {}; remove the one that is not meant",
                                          kSingleFileName, kIndexFileName));
  }
  const std::string text = TRY(ReadFile(index_path, kIndexBytesMax));
  const SafetensorsIndex index = TRY(ParseSafetensorsIndex(text, index_path));
  checkpoint.files_.reserve(index.shards.size());
  for (size_t shard = 0; shard < index.shards.size(); ++shard) {
    TRY_STATUS(checkpoint.AddShard(index.shards[shard], shard, &index));
  }
  for (const auto& [name, shard] : index.weight_map) {
    if (checkpoint.tensors_.contains(name)) continue;
    return BadTensor(
        index_path, name,
        fmt::format("is placed in {}, but the shard does not have it", index.shards[shard]));
  }
  if (checkpoint.tensor_bytes_ != index.total_size) {
    return BadFile(index_path,
                   fmt::format("metadata.total_size is {}, but the tensors of the shards have {} "
                               "bytes",
                               index.total_size, checkpoint.tensor_bytes_));
  }
  return checkpoint;
}

const TensorView* Checkpoint::Find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace minke

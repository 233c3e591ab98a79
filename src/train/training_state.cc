#include "train/training_state.h"

#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <filesystem>
#include <span>
#include <string_view>
#include <system_error>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "core/json.h"
#include "core/storage_system.h"
#include "train/digest.h"

namespace minke::train {
namespace {

// [magic][header bytes, uint64][header, JSON][values, float32 ...][digest of all before]
constexpr std::string_view kMagic = "MINKETS1";
constexpr size_t kLengthBytes = 8;
constexpr size_t kPrefixBytes = 8 + kLengthBytes;

// As long as what mkstemp() makes up, so that RemoveUnfinishedStates() finds them.
constexpr std::string_view kSecondNameSuffix = ".linked";
constexpr std::string_view kNewStateSuffix = ".latest";

struct Block {
  std::string name;
  float* data = nullptr;
  int64_t count = 0;
};

void AddBlock(std::string name, const torch::Tensor& tensor, std::vector<Block>* blocks) {
  if (!tensor.defined()) return;
  CHECK(tensor.is_contiguous() && tensor.scalar_type() == torch::kFloat32, name);
  const torch::Tensor plain = tensor.detach();
  blocks->push_back({std::move(name), plain.data_ptr<float>(), plain.numel()});
}

// Every float block of a state, in the order of the file.
std::vector<Block> Blocks(const std::vector<Parameter>& parameters,
                          const std::vector<Moments>& moments) {
  CHECK(parameters.size() == moments.size());
  std::vector<Block> blocks;
  for (size_t i = 0; i < parameters.size(); ++i) {
    AddBlock(parameters[i].name, parameters[i].value, &blocks);
    AddBlock(parameters[i].name + "#first", moments[i].first, &blocks);
    AddBlock(parameters[i].name + "#second", moments[i].second, &blocks);
  }
  return blocks;
}

JsonObject IdentityJson(const RunIdentity& identity) {
  return {{"training_config", identity.training_config},
          {"model_config", identity.model_config},
          {"tokenizer", identity.tokenizer},
          {"corpus", identity.corpus},
          {"seed", identity.seed},
          {"replicas", identity.replicas}};
}

// Doubles as their bits: what continues must be what stopped.
Json Bits(double value) {
  return std::bit_cast<int64_t>(value);
}

JsonObject PositionJson(const RunPosition& position) {
  return {{"step", position.step},
          {"tokens", position.tokens},
          {"seconds", Bits(position.seconds)},
          {"stage", position.stage},
          {"stage_steps", position.in_stage.steps},
          {"stage_tokens", position.in_stage.tokens},
          {"stage_seconds", Bits(position.in_stage.seconds)},
          {"gate_first", Bits(position.gate_first)}};
}

std::string HeaderText(const StateFile& state, const std::vector<Block>& blocks,
                       const std::vector<Moments>& moments) {
  JsonArray list;
  for (const Block& block : blocks) {
    list.emplace_back(JsonObject{{"name", block.name}, {"count", block.count}});
  }
  JsonArray steps;
  for (const Moments& moment : moments) steps.emplace_back(moment.steps);
  JsonObject header{{"identity", IdentityJson(state.identity)},
                    {"position", PositionJson(state.position)},
                    {"blocks", std::move(list)},
                    {"parameter_steps", std::move(steps)}};
  std::string text = DumpJson(std::move(header), JsonStyle::kCompact);
  text.resize((text.size() + sizeof(float) - 1) / sizeof(float) * sizeof(float), ' ');
  return text;
}

Result<double> FromBits(const Json& object, std::string_view key, std::string_view what) {
  return std::bit_cast<double>(TRY(JsonInt(object, key, what)));
}

Result<StateFile> ParseHeader(const Json& header, const std::string& path) {
  TRY(JsonMembers(header, "identity", path));
  TRY(JsonMembers(header, "position", path));
  const Json& identity = *header.Find("identity");
  const Json& position = *header.Find("position");
  StateFile state;
  state.identity.training_config = TRY(JsonString(identity, "training_config", path));
  state.identity.model_config = TRY(JsonString(identity, "model_config", path));
  state.identity.tokenizer = TRY(JsonString(identity, "tokenizer", path));
  state.identity.corpus = TRY(JsonString(identity, "corpus", path));
  state.identity.seed = static_cast<uint64_t>(TRY(JsonInt(identity, "seed", path)));
  state.identity.replicas = TRY(JsonInt(identity, "replicas", path));
  state.position.step = TRY(JsonInt(position, "step", path));
  state.position.tokens = TRY(JsonInt(position, "tokens", path));
  state.position.seconds = TRY(FromBits(position, "seconds", path));
  state.position.stage = TRY(JsonInt(position, "stage", path));
  state.position.in_stage.steps = TRY(JsonInt(position, "stage_steps", path));
  state.position.in_stage.tokens = TRY(JsonInt(position, "stage_tokens", path));
  state.position.in_stage.seconds = TRY(FromBits(position, "stage_seconds", path));
  state.position.gate_first = TRY(FromBits(position, "gate_first", path));
  return state;
}

tl::unexpected<Error> Damaged(const std::string& path, std::string_view finding,
                              std::string_view way_out) {
  return Fail(fmt::format("{} {}, so it is no whole training state. {}", path, finding, way_out));
}

// The header and the values of a file whose digest is right.
struct VerifiedState {
  std::string bytes;
  Json header;
  size_t values_at = 0;  // bytes from the start
};

Result<VerifiedState> OpenAndVerify(const std::string& path, std::string_view way_out) {
  VerifiedState open;
  open.bytes = TRY(ReadFile(path, kStateBytesMax));
  const std::string& bytes = open.bytes;
  if (bytes.substr(0, kMagic.size()) != kMagic) {
    return Damaged(path, fmt::format("does not begin with {}", kMagic), way_out);
  }
  if (bytes.size() < kPrefixBytes + kDigestBytes) return Damaged(path, "is cut short", way_out);
  const std::span<const char> all(bytes);
  const auto digest = DigestBytes(std::as_bytes(all.first(bytes.size() - kDigestBytes)));
  if (std::memcmp(digest.data(), bytes.data() + bytes.size() - kDigestBytes, kDigestBytes) != 0) {
    return Damaged(path,
                   "is cut short or damaged: its contents do not have the digest that it "
                   "ends with",
                   way_out);
  }
  uint64_t header_bytes = 0;
  std::memcpy(&header_bytes, bytes.data() + kMagic.size(), kLengthBytes);
  const uint64_t room = bytes.size() - kPrefixBytes - kDigestBytes;
  if (header_bytes > room || header_bytes > kStateHeaderBytesMax) {
    return Damaged(path, fmt::format("claims a header of {} bytes", header_bytes), way_out);
  }
  open.header = TRY(ParseJson(std::string_view(bytes).substr(kPrefixBytes, header_bytes), path));
  open.values_at = kPrefixBytes + header_bytes;
  return open;
}

// The file's blocks are those of this model, in order.
Status CheckBlocks(const VerifiedState& open, const std::string& path,
                   const std::vector<Block>& blocks, std::string_view way_out) {
  const JsonArray& list = *TRY(JsonList(open.header, "blocks", path));
  uint64_t values = 0;
  for (size_t i = 0; i < std::max(list.size(), blocks.size()); ++i) {
    const std::string expected =
        i < blocks.size() ? fmt::format("{} with {} values", blocks[i].name, blocks[i].count)
                          : "nothing more";
    std::string found = "nothing more";
    if (i < list.size()) {
      found = fmt::format("{} with {} values", TRY(JsonString(list[i], "name", path)),
                          TRY(JsonInt(list[i], "count", path)));
    }
    if (found != expected) {
      return Fail(
          fmt::format("{} belongs to another model: entry {} is {}, but this model has "
                      "{}. Start a new run, or give the config that it was made with.",
                      path, i, found, expected));
    }
    values += static_cast<uint64_t>(blocks[i].count);
  }
  if (open.values_at + values * sizeof(float) + kDigestBytes != open.bytes.size()) {
    return Damaged(path, fmt::format("has not the {} values that its header lists", values),
                   way_out);
  }
  return {};
}

Status KeepPrevious(const std::string& path) {
  if (!FileExists(path)) return {};
  const std::string previous = PreviousStatePath(path);
  const std::string second = previous + std::string(kSecondNameSuffix);
  std::error_code error;
  std::error_code ignored;
  // A second name for the file that takes the place of the older state in one step, so that both
  // names have a whole state at every moment.
  std::filesystem::remove(second, ignored);
  std::filesystem::create_hard_link(path, second, error);
  if (error) std::filesystem::copy_file(path, second, error);
  if (!error) std::filesystem::rename(second, previous, error);
  // Where both names are of one file already, renaming leaves them as they are.
  std::filesystem::remove(second, ignored);
  if (!error) return {};
  return Fail(ErrorCode::kIo,
              fmt::format("Cannot keep {} as {}: {}.", path, previous, error.message()));
}

// Gives a new state its name, and the mode of a file that is done.
Status PutInPlace(const std::string& whole, const std::string& path) {
  using std::filesystem::perms;
  std::error_code error;
  std::filesystem::permissions(whole, perms::group_read | perms::others_read,
                               std::filesystem::perm_options::add, error);
  if (!error) std::filesystem::rename(whole, path, error);
  if (!error) return {};
  return Fail(ErrorCode::kIo,
              fmt::format("Cannot replace {} by {}: {}.", path, whole, error.message()));
}

// "training.state.aB3xYz": a state's name with what mkstemp() makes up.
bool HasTemporaryName(const std::string& name) {
  constexpr size_t kSuffix = 7;  // characters, with the dot
  if (name.size() <= kSuffix || name[name.size() - kSuffix] != '.') return false;
  const auto plain = [](unsigned char c) { return std::isalnum(c) != 0; };
  if (!std::all_of(name.end() - kSuffix + 1, name.end(), plain)) return false;
  const std::string_view state = std::string_view(name).substr(0, name.size() - kSuffix);
  return state.ends_with(".state") || state.ends_with(PreviousStatePath(".state"));
}

// A whole state may be a copy that somebody keeps, "training.state.backup". One that a killed
// process was about to rename has its mode from mkstemp() still.
bool MayBeKept(const std::filesystem::directory_entry& entry) {
  using std::filesystem::perms;
  if (!OpenAndVerify(entry.path().string(), kOtherStates)) return false;
  std::error_code error;
  const perms mode = entry.status(error).permissions() & perms::all;
  const std::string suffix = entry.path().extension().string();
  const auto upper = [](unsigned char c) { return std::isupper(c) != 0; };
  const bool made_up = std::any_of(suffix.begin(), suffix.end(), upper);
  return !made_up || mode != (perms::owner_read | perms::owner_write);
}

}  // namespace

Status RemoveUnfinishedStates(const std::string& folder) {
  std::error_code error;
  for (std::filesystem::directory_iterator entry(folder, error), end; !error && entry != end;
       entry.increment(error)) {
    const bool file = entry->symlink_status(error).type() == std::filesystem::file_type::regular;
    const bool unfinished = file && HasTemporaryName(entry->path().filename().string());
    if (unfinished && !MayBeKept(*entry)) std::filesystem::remove(entry->path(), error);
    if (error) break;
  }
  if (!error) return {};
  return Fail(ErrorCode::kIo, fmt::format("Cannot remove what an earlier process has left in {}: "
                                          "{}.",
                                          folder, error.message()));
}

std::string PreviousStatePath(const std::string& path) {
  return path + ".previous";
}

Status WriteState(const std::string& path, const StateFile& state,
                  const std::vector<Parameter>& parameters, const std::vector<Moments>& moments,
                  OldState old_state) {
  const std::vector<Block> blocks = Blocks(parameters, moments);
  const std::string header = HeaderText(state, blocks, moments);
  CHECK(header.size() <= kStateHeaderBytesMax);
  size_t size = kPrefixBytes + header.size() + kDigestBytes;
  for (const Block& block : blocks) size += static_cast<size_t>(block.count) * sizeof(float);
  std::vector<std::byte> bytes(size);
  std::byte* out = bytes.data();
  const auto append = [&out](const void* data, size_t count) {
    if (count > 0) std::memcpy(out, data, count);
    out += count;
  };
  const uint64_t header_bytes = header.size();
  append(kMagic.data(), kMagic.size());
  append(&header_bytes, kLengthBytes);
  append(header.data(), header.size());
  for (const Block& block : blocks) {
    append(block.data, static_cast<size_t>(block.count) * sizeof(float));
  }
  const auto digest = DigestBytes(std::span(bytes).first(size - kDigestBytes));
  append(digest.data(), kDigestBytes);
  // The older state goes when the new one is whole: a full disk costs neither.
  const std::string whole = path + std::string(kNewStateSuffix);
  TRY_STATUS(WriteFile(whole, bytes, FileAccess::kOwnerOnly));
  if (old_state == OldState::kKeep) TRY_STATUS(KeepPrevious(path));
  TRY_STATUS(PutInPlace(whole, path));
  const std::string folder = std::filesystem::path(path).parent_path().string();
  return MakePosixStorage()->SyncDirectory(folder.empty() ? "." : folder);
}

Result<StateFile> ReadState(const std::string& path, std::vector<Parameter>& parameters,
                            std::vector<Moments>& moments, std::string_view way_out) {
  const VerifiedState open = TRY(OpenAndVerify(path, way_out));
  const std::vector<Block> blocks = Blocks(parameters, moments);
  TRY_STATUS(CheckBlocks(open, path, blocks, way_out));
  const StateFile state = TRY(ParseHeader(open.header, path));
  const JsonArray& steps = *TRY(JsonList(open.header, "parameter_steps", path));
  bool counts = steps.size() == moments.size();
  for (size_t i = 0; counts && i < steps.size(); ++i) counts = steps[i].is_integer();
  if (!counts) {
    return Damaged(path, fmt::format("does not list {} parameter_steps", moments.size()), way_out);
  }
  for (size_t i = 0; i < steps.size(); ++i) moments[i].steps = steps[i].as_int();
  const char* in = open.bytes.data() + open.values_at;
  for (const Block& block : blocks) {
    const size_t count = static_cast<size_t>(block.count) * sizeof(float);
    if (count > 0) std::memcpy(block.data, in, count);
    in += count;
  }
  return state;
}

Result<StateFile> ReadMatchingState(const std::string& path, std::vector<Parameter>& parameters,
                                    std::vector<Moments>& moments, int64_t* taken) {
  const VerifiedState open = TRY(OpenAndVerify(path, kOtherStates));
  const StateFile state = TRY(ParseHeader(open.header, path));
  std::unordered_map<std::string, Block> wanted;
  for (Block& block : Blocks(parameters, moments)) wanted.emplace(block.name, block);
  const JsonArray& list = *TRY(JsonList(open.header, "blocks", path));
  const JsonArray& steps = *TRY(JsonList(open.header, "parameter_steps", path));
  std::unordered_map<std::string, int64_t> steps_of;  // of the parameters that are taken
  size_t at = open.values_at;
  size_t parameter = 0;
  for (const Json& entry : list) {
    const std::string name = TRY(JsonString(entry, "name", path));
    const int64_t count = TRY(JsonInt(entry, "count", path));
    const size_t room = (open.bytes.size() - kDigestBytes - at) / sizeof(float);
    if (count < 0 || static_cast<uint64_t>(count) > room) {
      return Damaged(path, fmt::format("has no room for the values of {}", name), kOtherStates);
    }
    const size_t bytes = static_cast<size_t>(count) * sizeof(float);
    const auto block = wanted.find(name);
    const bool taken_here = block != wanted.end() && block->second.count == count;
    if (taken_here && bytes > 0) std::memcpy(block->second.data, open.bytes.data() + at, bytes);
    at += bytes;
    if (name.find('#') != std::string::npos) continue;  // a moment
    const size_t index = parameter++;
    if (index >= steps.size() || !steps[index].is_integer()) {
      return Damaged(path, "does not list the parameter_steps of every parameter", kOtherStates);
    }
    if (taken_here) steps_of.emplace(name, steps[index].as_int());
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    const auto found = steps_of.find(parameters[i].name);
    if (found != steps_of.end()) moments[i].steps = found->second;
  }
  *taken = static_cast<int64_t>(steps_of.size());
  return state;
}

Status CheckIdentity(const std::string& path, const RunIdentity& found,
                     const RunIdentity& expected) {
  struct Part {
    std::string_view name;
    std::string found;
    std::string expected;
  };
  const Part parts[] = {
      {"training config", found.training_config, expected.training_config},
      {"model config", found.model_config, expected.model_config},
      {"tokenizer", found.tokenizer, expected.tokenizer},
      {"corpus", found.corpus, expected.corpus},
      {"seed", fmt::to_string(found.seed), fmt::to_string(expected.seed)},
      {"number of replicas", fmt::to_string(found.replicas), fmt::to_string(expected.replicas)}};
  for (const Part& part : parts) {
    if (part.found == part.expected) continue;
    return Fail(
        fmt::format("{} was written with another {} ({}) than this run has ({}), so the "
                    "run would not continue but become a third one. Give the same one; "
                    "--accept-changes continues regardless.",
                    path, part.name, part.found, part.expected));
  }
  return {};
}

}  // namespace minke::train

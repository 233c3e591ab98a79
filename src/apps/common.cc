#include "apps/common.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <iterator>
#include <memory>
#include <random>

#include <fmt/format.h>

#include "apps/cache_report.h"
#include "apps/progress_bar.h"
#include "apps/terminal.h"
#include "core/available_memory.h"
#include "core/file.h"
#include "engine/model_loader.h"

namespace minke {
namespace {

// A message may quote bytes of a file; it stays one line whatever they are.
std::string OneLine(std::string_view message) {
  std::string line;
  for (const char c : EscapeForTerminal(message)) line += c == '\n' || c == '\t' ? ' ' : c;
  return line;
}

std::string ExecutableDir() {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::read_symlink("/proc/self/exe", error);
  return error ? std::string() : path.parent_path().string();
}

Result<std::string> ReadStandardInput(uint64_t limit_bytes) {
  std::string text;
  std::vector<char> block(size_t{64} << 10);
  while (std::cin.read(block.data(), static_cast<std::streamsize>(block.size())) ||
         std::cin.gcount() > 0) {
    text.append(block.data(), static_cast<size_t>(std::cin.gcount()));
    if (text.size() > limit_bytes) {
      return Fail(ErrorCode::kLimit,
                  fmt::format("Standard input has more than {} bytes, the most that is read here.",
                              limit_bytes));
    }
  }
  return text;
}

Result<int32_t> CheckTokenId(int64_t id, size_t index, std::string_view what, int64_t vocab_size) {
  if (id >= 0 && id < vocab_size) return static_cast<int32_t>(id);
  return Fail(fmt::format("{}: entry {} is {}, but token ids of this model are 0 to {}.", what,
                          index, id, vocab_size - 1));
}

bool IsBlank(char c) {
  return c == ' ' || c == '\n' || c == '\t' || c == '\r';
}

Result<std::vector<int32_t>> ParseJsonIds(std::string_view text, std::string_view what,
                                          int64_t vocab_size) {
  const Json json = TRY(ParseJson(text, what));
  CHECK(json.is_array());
  std::vector<int32_t> ids;
  ids.reserve(json.as_array().size());
  for (size_t i = 0; i < json.as_array().size(); ++i) {
    const Json& entry = json.as_array()[i];
    if (!entry.is_integer()) {
      return Fail(fmt::format("{}: entry {} must be an integer token id, found a value of type {}.",
                              what, i, entry.TypeName()));
    }
    // An unsigned value that no int64 holds is out of any vocabulary.
    const bool huge = entry.as_double() > 9e18;
    ids.push_back(TRY(CheckTokenId(huge ? INT64_MAX : entry.as_int(), i, what, vocab_size)));
  }
  return ids;
}

Result<int64_t> ParseInteger(std::string_view word, size_t index, std::string_view what) {
  const bool negative = !word.empty() && word.front() == '-';
  const std::string_view digits = word.substr(negative ? 1 : 0);
  bool valid = !digits.empty() && digits.size() <= 18;  // 18 digits always fit an int64
  int64_t value = 0;
  for (const char c : digits) {
    valid = valid && c >= '0' && c <= '9';
    if (!valid) break;
    value = value * 10 + (c - '0');
  }
  if (valid) return negative ? -value : value;
  return Fail(fmt::format("{}: entry {} must be an integer token id, found \"{}\".", what, index,
                          word.substr(0, 20)));
}

CopyProgress ShowCopying(ProgressBar& bar) {
  return [&bar](uint64_t done, uint64_t total) {
    bar.Show("Copying the weights", static_cast<int64_t>(done), static_cast<int64_t>(total));
  };
}

}  // namespace

int PrintError(const Error& error) {
  std::cerr << "minke: error: " << OneLine(error.message) << '\n';
  return kExitFailure;
}

void PrintNote(std::string_view sentence) {
  std::cerr << "minke: note: " << OneLine(sentence) << '\n';
}

Result<std::string> FindModelDir(const std::string& flag) {
  if (!flag.empty()) return flag;
  if (const char* variable = std::getenv("MINKE_MODEL");
      variable != nullptr && variable[0] != '\0') {
    return std::string(variable);
  }
  const std::string here = ExecutableDir();
  for (const char* relative : {"../../models/nano", "../share/minke/models/nano"}) {
    const std::filesystem::path dir = (std::filesystem::path(here) / relative).lexically_normal();
    if (FileExists((dir / "config.json").string())) return dir.string();
  }
  return Fail(ErrorCode::kNotFound,
              "No model was named and the nano model is not beside the program; say --model DIR, "
              "or set MINKE_MODEL to a directory with config.json, tokenizer.json and "
              "safetensors files.");
}

std::string DiskDirectory(const CacheFlags& cache) {
  return cache.kv_disk == "none" ? std::string() : cache.kv_disk;
}

Result<EngineOptions> MakeEngineOptions(const ModelFlags& flags, const CacheFlags& cache) {
  EngineOptions options;
  options.model_dir = TRY(FindModelDir(flags.model_dir));
  options.threads = flags.threads;
  options.pin_threads = flags.pin;
  options.numerics = TRY(ParseNumericMode(flags.numerics));
  options.reference_artifacts = flags.reference_artifacts;
  if (flags.kernels == "reference") options.kernels = KernelChoice::kReference;
  if (flags.kernels == "fast") options.kernels = KernelChoice::kFast;
  options.context_tokens_max = flags.context;
  options.prefill_chunk_tokens = flags.prefill_chunk;
  options.prefill = TRY(ParsePrefillMode(cache.prefill));
  options.cache.disk_dir = DiskDirectory(cache);
  const auto set = [](const char* flag, const std::string& text, int64_t* value) -> Status {
    if (!text.empty()) *value = TRY(ParseByteSize(text, flag));
    return {};
  };
  TRY_STATUS(set("--weights-ram", flags.weights_ram, &options.weights_ram_bytes));
  TRY_STATUS(set("--kv-ram", cache.kv_ram, &options.cache.ram_bytes));
  TRY_STATUS(set("--snapshot-budget", cache.snapshot_budget, &options.cache.snapshot_bytes));
  TRY_STATUS(set("--kv-disk-budget", cache.kv_disk_budget, &options.cache.disk_bytes));
  TRY_STATUS(set("--kv-disk-write-limit", cache.kv_disk_write_limit,
                 &options.cache.disk_write_bytes_per_hour));
  return options;
}

void NoteRandomWeights() {
  PrintNote(
      "the weights of this model are random: it shows that the program works, and its answers "
      "mean nothing.");
}

Result<std::unique_ptr<Engine>> OpenEngine(const ModelFlags& flags, const CacheFlags& cache) {
  const EngineOptions options = TRY(MakeEngineOptions(flags, cache));
  std::unique_ptr<Engine> engine;
  {
    StatusLine status;
    status.Show("Loading the model ...");
    engine = TRY(Engine::Open(options));
  }
  if (flags.weights_memory == "copied") {
    ProgressBar bar;
    TRY_STATUS(engine->CopyWeights(ShowCopying(bar)));
  }
  if (flags.prewarm) {
    ProgressBar bar;
    engine->Prewarm([&](uint64_t done, uint64_t total) {
      bar.Show("Reading the weights", static_cast<int64_t>(done), static_cast<int64_t>(total));
      return true;
    });
  }
  for (const std::string& warning : engine->info().warnings) PrintNote(warning);
  if (engine->info().random_weights) NoteRandomWeights();
  return engine;
}

Status PrepareModel(const ModelFlags& flags, Model& model, ThreadPool& pool) {
  const std::string warning = PinningWarning(pool);
  if (!warning.empty()) PrintNote(warning);
  if (flags.weights_memory != "copied") return {};
  ProgressBar bar;
  return model.CopyWeights(AvailableMemoryBytes(), pool, ShowCopying(bar));
}

Result<std::string> ReadInput(const std::string& path, uint64_t limit_bytes) {
  if (path == "-") return ReadStandardInput(limit_bytes);
  return ReadFile(path, limit_bytes);
}

Result<std::vector<int32_t>> ParseTokenIds(std::string_view text, std::string_view what,
                                           int64_t vocab_size) {
  size_t position = 0;
  while (position < text.size() && IsBlank(text[position])) ++position;
  std::vector<int32_t> ids;
  if (position < text.size() && text[position] == '[') {
    ids = TRY(ParseJsonIds(text, what, vocab_size));
  } else {
    while (position < text.size()) {
      size_t end = position;
      while (end < text.size() && !IsBlank(text[end])) ++end;
      const int64_t id = TRY(ParseInteger(text.substr(position, end - position), ids.size(), what));
      ids.push_back(TRY(CheckTokenId(id, ids.size(), what, vocab_size)));
      position = end;
      while (position < text.size() && IsBlank(text[position])) ++position;
    }
  }
  if (ids.empty()) return Fail(fmt::format("{} has no token ids; at least one is needed.", what));
  return ids;
}

ChatOptions MakeChatOptions(const std::string& thinking, const std::string& effort) {
  ChatOptions options;
  if (!thinking.empty()) options.thinking = thinking == "on";
  options.effort = effort;
  return options;
}

Json JsonIds(std::span<const int32_t> ids) {
  JsonArray array;
  array.reserve(ids.size());
  for (int32_t id : ids) array.emplace_back(static_cast<int64_t>(id));
  return array;
}

uint64_t ChooseSeed(const std::optional<uint64_t>& seed) {
  if (seed.has_value()) return *seed;
  std::random_device random;
  // 53 bits, so that a program that reads the seed from JSON as a double gives it back unchanged.
  return ((static_cast<uint64_t>(random()) << 32) | random()) >> 11;
}

Result<std::string> FindUserDir(const char* variable, const char* below_home,
                                std::string_view flag) {
  const auto absolute = [](const char* name) {
    const char* value = std::getenv(name);
    // The specification of the variables says to ignore a path that is not absolute.
    return value != nullptr && value[0] == '/' ? std::string(value) : std::string();
  };
  const std::string named = absolute(variable);
  if (!named.empty()) return named;
  const std::string home = absolute("HOME");
  if (!home.empty()) return JoinPath(home, below_home);
  return Fail(
      ErrorCode::kNotFound,
      fmt::format("Neither HOME nor {} is set to an absolute path; say {}.", variable, flag));
}

}  // namespace minke

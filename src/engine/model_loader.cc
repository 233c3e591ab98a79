#include "engine/model_loader.h"

#include <unistd.h>

#include <algorithm>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "core/json.h"
#include "core/processors.h"
#include "kernels/kernels.h"
#include "model/config.h"
#include "text/compressed_vocabulary.h"

namespace minke {
namespace {

constexpr uint64_t kMarkerBytesMax = uint64_t{64} << 10;

Numerics NumericsOf(const EngineOptions& options) {
  Numerics numerics = Numerics::Official();
  if (options.numerics == NumericMode::kF32) numerics = Numerics::F32();
  if (options.numerics == NumericMode::kF32CacheQuant) numerics = Numerics::F32CacheQuant();
  numerics.stale_index_keys = options.reference_artifacts;
  return numerics;
}

const Kernels& KernelsOf(const EngineOptions& options) {
  const bool official = options.numerics == NumericMode::kOfficial;
  const bool reference = options.kernels == KernelChoice::kReference ||
                         (options.kernels == KernelChoice::kDefault && !official);
  return reference ? ReferenceKernels() : FastKernels();
}

Result<bool> ReadRandomWeightsMarker(const std::string& model_dir) {
  const std::string path = JoinPath(model_dir, "minke.json");
  if (!FileExists(path)) return false;
  const std::string text = TRY(ReadFile(path, kMarkerBytesMax));
  const Json marker = TRY(ParseJson(text, path));
  if (marker.Find("random_weights") == nullptr) return false;
  return JsonBool(marker, "random_weights", path);
}

Result<std::vector<int32_t>> EngramTokenMap(const ModelConfig& config, const Tokenizer& tokenizer) {
  if (!config.has_engram()) return std::vector<int32_t>{};
  return BuildCompressedVocabulary(tokenizer, config.vocab_size,
                                   config.engram_compressed_vocab_size);
}

}  // namespace

Result<LoadedModel> LoadModel(const EngineOptions& options) {
  const std::string& dir = options.model_dir;
  const std::string config_path = JoinPath(dir, "config.json");
  if (!FileExists(config_path)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("There is no {}. A model directory holds config.json, tokenizer.json "
                            "and the safetensors files of a released checkpoint; name it with "
                            "--model DIR.",
                            config_path));
  }
  ModelConfig config = TRY(LoadConfig(config_path));
  Tokenizer tokenizer = TRY(Tokenizer::Load(JoinPath(dir, "tokenizer.json")));
  if (tokenizer.vocab_size() > config.vocab_size) {
    return Fail(
        fmt::format("{} has ids up to {}, but the vocab_size of {} is {}; the two files "
                    "belong to different models.",
                    JoinPath(dir, "tokenizer.json"), tokenizer.vocab_size() - 1, config_path,
                    config.vocab_size));
  }
  const bool random_weights = TRY(ReadRandomWeightsMarker(dir));
  std::vector<int32_t> token_map = TRY(EngramTokenMap(config, tokenizer));
  Checkpoint checkpoint = TRY(Checkpoint::Open(dir));
  std::unique_ptr<Model> model =
      TRY(Model::Create(std::move(config), std::move(checkpoint), std::move(token_map),
                        NumericsOf(options), KernelsOf(options), options.weights_ram_bytes));
  return LoadedModel{std::move(tokenizer), std::move(model), random_weights};
}

const char* KernelsName(const Model& model) {
  return &model.kernels() == &ReferenceKernels() ? "reference" : FastTargetName();
}

Result<int> ThreadCount(const EngineOptions& options) {
  if (options.threads < 0 || options.threads > kMaxThreads) {
    return Fail(fmt::format("threads must be between 1 and {} (0: one per processor), found {}.",
                            kMaxThreads, options.threads));
  }
  if (options.threads > 0) return options.threads;
  const auto processors = static_cast<int>(AllowedProcessors().size());
  return std::clamp(processors, 1, kMaxThreads);
}

Pinning PinningOf(const EngineOptions& options) {
  return options.pin_threads ? Pinning::kProcessorEach : Pinning::kNone;
}

std::string PinningWarning(const ThreadPool& pool) {
  if (pool.pinning_problem().empty()) return {};
  return fmt::format("--pin binds no thread to a processor: {}.", pool.pinning_problem());
}

WeightsUse WeightsUseOf(const Model& model) {
  WeightsUse use;
  if (model.stream() == nullptr) return use;
  const WeightStreamStats stats = model.stream()->stats();
  use.streamed = true;
  use.direct = stats.direct;
  use.budget_bytes = stats.budget_bytes;
  use.dense_bytes = stats.dense_bytes;
  use.expert_slots = stats.expert_slots;
  use.expert_count = stats.expert_count;
  use.read_bytes = stats.read_bytes;
  use.wait_seconds = stats.wait_seconds;
  use.waited_bytes = stats.waited_bytes;
  use.expert_hits = stats.experts.hits;
  use.expert_misses = stats.experts.misses;
  use.experts_prefetched = stats.experts.prefetched;
  use.expert_prefetch_hits = stats.experts.prefetch_hits;
  use.engram_hits = stats.engram_blocks.hits;
  use.engram_misses = stats.engram_blocks.misses;
  return use;
}

WeightsUse WeightsUseSince(const Model& model, const WeightsUse& before) {
  WeightsUse use = WeightsUseOf(model);
  use.read_bytes -= before.read_bytes;
  use.wait_seconds -= before.wait_seconds;
  use.waited_bytes -= before.waited_bytes;
  use.expert_hits -= before.expert_hits;
  use.expert_misses -= before.expert_misses;
  use.experts_prefetched -= before.experts_prefetched;
  use.expert_prefetch_hits -= before.expert_prefetch_hits;
  use.engram_hits -= before.engram_hits;
  use.engram_misses -= before.engram_misses;
  return use;
}

uint64_t PhysicalMemoryBytes() {
  const long pages = sysconf(_SC_PHYS_PAGES);
  const long page_bytes = sysconf(_SC_PAGE_SIZE);
  if (pages <= 0 || page_bytes <= 0) return 0;
  return static_cast<uint64_t>(pages) * static_cast<uint64_t>(page_bytes);
}

std::string MemoryWarning(uint64_t checkpoint_bytes, uint64_t memory_bytes) {
  if (memory_bytes == 0 || checkpoint_bytes <= memory_bytes) return {};
  return fmt::format(
      "The checkpoint has {:.1f} GB and this machine {:.1f} GB of memory: weights are read from "
      "the disk as they are needed and kept as the system sees fit; --weights-ram SIZE reads "
      "faster and keeps what is used most.",
      static_cast<double>(checkpoint_bytes) / 1e9, static_cast<double>(memory_bytes) / 1e9);
}

}  // namespace minke

#include "bench/synthetic_checkpoint.h"

#include <algorithm>
#include <filesystem>
#include <memory>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "bench/synthetic_weights.h"
#include "checkpoint/safetensors_writer.h"
#include "core/file.h"
#include "text/compressed_vocabulary.h"
#include "text/tokenizer.h"

namespace minke {
namespace {

constexpr const char* kTokenizerFile = "tokenizer.json";
constexpr const char* kTokenizerConfigFile = "tokenizer_config.json";
constexpr uint64_t kTokenizerBytesMax = uint64_t{64} << 20;
constexpr int64_t kFreeBytesLeft = int64_t{1} << 30;  // on the disk, beside the checkpoint
constexpr int64_t kBufferPieces = 16;                 // made together, then written

Status WriteText(const std::string& directory, const std::string& name, const std::string& text) {
  return WriteFile(JoinPath(directory, name), std::as_bytes(std::span(text.data(), text.size())));
}

// The tokenizer's file with one more token where the vocabulary is larger: the ids between have
// none and stand for no text.
Result<std::string> TokenizerText(const std::string& path, int64_t vocab_size) {
  std::string text = TRY(ReadFile(path, kTokenizerBytesMax));
  const Tokenizer tokenizer = TRY(Tokenizer::Parse(text, path));
  if (tokenizer.vocab_size() == vocab_size) return text;
  if (tokenizer.vocab_size() > vocab_size) {
    return Fail(
        fmt::format("{} has {} tokens, and the vocabulary of the model {}; take a larger "
                    "--vocab, or another --tokenizer.",
                    path, tokenizer.vocab_size(), vocab_size));
  }
  Json root = TRY(ParseJson(text, path));
  Json model = *root.Find("model");
  Json vocabulary = *model.Find("vocab");
  vocabulary.Set(fmt::format("!token-{}", vocab_size - 1), vocab_size - 1);
  model.Set("vocab", std::move(vocabulary));
  root.Set("model", std::move(model));
  return DumpJson(root, JsonStyle::kPretty);
}

Result<int64_t> CompressedVocabSize(const std::string& tokenizer_text, const std::string& path) {
  const Tokenizer tokenizer = TRY(Tokenizer::Parse(tokenizer_text, path));
  const std::vector<int32_t> classes = CompressVocabulary(tokenizer);
  return *std::max_element(classes.begin(), classes.end()) + 1;
}

// What is written besides the weights.
struct SmallFiles {
  std::string config;
  std::string tokenizer;
  std::string tokenizer_config;
  std::string marker;
};

// The text that the config is parsed from is the one that is written.
struct CutModel {
  ModelConfig config;
  SmallFiles files;
};

Result<CutModel> MakeCutModel(const SyntheticOptions& options) {
  const std::string text = TRY(ReadFile(options.config_path, kConfigBytesMax));
  const Json root = TRY(ParseJson(text, options.config_path));
  const ModelConfig source = TRY(ParseConfig(text, options.config_path));
  CutModel model;
  const int64_t vocab_size = options.vocab_size > 0 ? options.vocab_size : source.vocab_size;
  const std::string tokenizer_path = JoinPath(options.tokenizer_dir, kTokenizerFile);
  model.files.tokenizer = TRY(TokenizerText(tokenizer_path, vocab_size));
  LayerCut cut{options.layers, options.experts, options.vocab_size, kSyntheticEngramVocabSize, 0};
  if (source.has_engram()) {
    cut.engram_compressed_vocab_size =
        TRY(CompressedVocabSize(model.files.tokenizer, tokenizer_path));
  }
  model.files.config = DumpJson(TRY(CutConfig(root, source, cut)), JsonStyle::kPretty) + '\n';
  model.config = TRY(ParseConfig(model.files.config, "the cut of " + options.config_path));
  const std::string settings = JoinPath(options.tokenizer_dir, kTokenizerConfigFile);
  if (FileExists(settings)) model.files.tokenizer_config = TRY(ReadFile(settings, kConfigBytesMax));

  JsonArray layers;
  for (const int64_t layer : options.layers) layers.emplace_back(layer);
  Json counts{JsonObject()};
  for (const auto& [kind, count] : LayerKindCounts(source)) counts.Set(kind, count);
  Json synthetic;
  synthetic.Set("layers", std::move(layers));
  synthetic.Set("seed", options.seed);
  // How many layers of each kind the larger model has: for adding up times.
  synthetic.Set("layer_kinds", std::move(counts));
  Json marker;
  marker.Set("random_weights", true);
  marker.Set("synthetic", std::move(synthetic));
  model.files.marker = DumpJson(marker, JsonStyle::kPretty) + '\n';
  return model;
}

// Tensors by the shard that holds them: the embedding, a layer each, norm and head. Positions in
// the catalogue.
std::vector<std::vector<size_t>> ShardsOf(const std::vector<TensorSpec>& catalogue,
                                          int64_t layer_count) {
  std::vector<std::vector<size_t>> shards(static_cast<size_t>(layer_count + 2));
  for (size_t i = 0; i < catalogue.size(); ++i) {
    constexpr std::string_view kLayers = "layers.";
    const std::string& name = catalogue[i].name;
    if (name.starts_with(kLayers)) {
      const int64_t layer = std::atoll(name.c_str() + kLayers.size());
      shards[static_cast<size_t>(layer + 1)].push_back(i);
    } else {
      (name == "embed.weight" ? shards.front() : shards.back()).push_back(i);
    }
  }
  return shards;
}

std::string ShardName(size_t shard, size_t count) {
  return fmt::format("model-{:05}-of-{:05}.safetensors", shard + 1, count);
}

class CheckpointWriter {
 public:
  CheckpointWriter(const SyntheticOptions& options, const ModelConfig& config, ThreadPool& pool)
      : options_(options),
        pool_(pool),
        catalogue_(TensorCatalogue(config)),
        shards_(ShardsOf(catalogue_, config.num_hidden_layers)),
        weights_(config, options.seed),
        buffer_(kBufferPieces * kWeightPieceBytes) {
    for (const TensorSpec& spec : catalogue_) total_bytes_ += TensorBytes(spec);
  }

  int64_t total_bytes() const { return total_bytes_; }

  Result<SyntheticReport> Write() {
    for (size_t shard = 0; shard < shards_.size(); ++shard) TRY_STATUS(WriteShard(shard));
    TRY_STATUS(WriteText(options_.directory, "model.safetensors.index.json", IndexText()));
    return SyntheticReport{static_cast<int64_t>(catalogue_.size()), total_bytes_,
                           static_cast<int64_t>(shards_.size())};
  }

 private:
  Status WriteShard(size_t shard) {
    std::vector<TensorPlan> plans;
    std::map<std::string_view, size_t> places;
    for (const size_t place : shards_[shard]) {
      const TensorSpec& spec = catalogue_[place];
      plans.push_back({spec.name, spec.dtype, spec.shape});
      places[spec.name] = place;
    }
    const std::string name = ShardName(shard, shards_.size());
    auto writer = TRY(SafetensorsWriter::Create(JoinPath(options_.directory, name), plans));
    for (const TensorPlan& plan : writer->tensors()) {
      const size_t place = places.at(plan.name);
      const auto recipe = weights_.Prepare(catalogue_[place], static_cast<int64_t>(place));
      TRY_STATUS(WriteTensor(recipe, plan.bytes(), *writer));
    }
    return writer->Finish();
  }

  Status WriteTensor(const SyntheticWeights::Recipe& recipe, int64_t bytes,
                     SafetensorsWriter& writer) {
    constexpr int64_t kBufferBytes = kBufferPieces * kWeightPieceBytes;
    for (int64_t at = 0; at < bytes; at += kBufferBytes) {
      const int64_t count = std::min(kBufferBytes, bytes - at);
      const std::span<std::byte> filled(buffer_.data(), static_cast<size_t>(count));
      const int64_t pieces = (count + kWeightPieceBytes - 1) / kWeightPieceBytes;
      pool_.ParallelFor(pieces, 1, [&](int64_t begin, int64_t end, int) {
        for (int64_t piece = begin; piece < end; ++piece) {
          const int64_t from = piece * kWeightPieceBytes;
          weights_.Fill(
              recipe, at / kWeightPieceBytes + piece,
              filled.subspan(static_cast<size_t>(from),
                             static_cast<size_t>(std::min(kWeightPieceBytes, count - from))));
        }
      });
      TRY_STATUS(writer.Append(filled));
      written_bytes_ += count;
      if (options_.progress) options_.progress(written_bytes_, total_bytes_);
    }
    return {};
  }

  std::string IndexText() const {
    Json weight_map{JsonObject()};
    for (size_t shard = 0; shard < shards_.size(); ++shard) {
      for (const size_t place : shards_[shard]) {
        // Not Set(), which looks for the name among the thousands before it.
        weight_map.as_object().emplace_back(catalogue_[place].name,
                                            ShardName(shard, shards_.size()));
      }
    }
    Json metadata;
    metadata.Set("total_size", total_bytes_);
    Json index;
    index.Set("metadata", std::move(metadata));
    index.Set("weight_map", std::move(weight_map));
    return DumpJson(index, JsonStyle::kPretty) + '\n';
  }

  const SyntheticOptions& options_;
  ThreadPool& pool_;
  std::vector<TensorSpec> catalogue_;
  std::vector<std::vector<size_t>> shards_;
  SyntheticWeights weights_;
  std::vector<std::byte> buffer_;
  int64_t total_bytes_ = 0;
  int64_t written_bytes_ = 0;
};

Status MakeDirectory(const std::string& directory, int64_t bytes) {
  std::error_code error;
  if (std::filesystem::exists(directory, error)) {
    const bool empty = std::filesystem::is_directory(directory, error) &&
                       std::filesystem::is_empty(directory, error);
    if (error) return IoFailure("look at", directory, error.value());
    if (!empty) {
      return Fail(
          fmt::format("{} exists and is not an empty folder; name another one with --out, "
                      "or remove it.",
                      directory));
    }
  }
  std::filesystem::create_directories(directory, error);
  if (error) return IoFailure("make", directory, error.value());
  const std::filesystem::space_info space = std::filesystem::space(directory, error);
  if (error) return IoFailure("look at", directory, error.value());
  if (static_cast<int64_t>(space.available) >= bytes + kFreeBytesLeft) return {};
  return Fail(ErrorCode::kLimit,
              fmt::format("The checkpoint has {:.1f} GB, and the disk of {} {:.1f} GB free, of "
                          "which {:.1f} GB are to be left; take fewer --layers or --experts.",
                          static_cast<double>(bytes) / 1e9, directory,
                          static_cast<double>(space.available) / 1e9,
                          static_cast<double>(kFreeBytesLeft) / 1e9));
}

}  // namespace

Json SyntheticReport::ToJson(const SyntheticOptions& options) const {
  Json json;
  json.Set("directory", options.directory);
  json.Set("tensors", tensors);
  json.Set("tensor_bytes", tensor_bytes);
  json.Set("shards", shards);
  json.Set("seed", options.seed);
  return json;
}

Result<SyntheticReport> WriteSyntheticCheckpoint(const SyntheticOptions& options,
                                                 ThreadPool& pool) {
  const CutModel model = TRY(MakeCutModel(options));
  CheckpointWriter writer(options, model.config, pool);
  TRY_STATUS(MakeDirectory(options.directory, writer.total_bytes()));
  TRY_STATUS(WriteText(options.directory, "config.json", model.files.config));
  TRY_STATUS(WriteText(options.directory, kTokenizerFile, model.files.tokenizer));
  if (!model.files.tokenizer_config.empty()) {
    TRY_STATUS(WriteText(options.directory, kTokenizerConfigFile, model.files.tokenizer_config));
  }
  TRY_STATUS(WriteText(options.directory, "minke.json", model.files.marker));
  return writer.Write();
}

}  // namespace minke

#include "model/config.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "core/file.h"
#include "core/json.h"

namespace minke {

namespace {

// Quantizers work on groups of 32 channels and weights on 32x32 tiles (architecture.md 0.3, 2.3).
constexpr int64_t kGroupSize = 32;
constexpr double kSmallestNormalFloat = 0x1p-126;
constexpr double kLargestFactor = 1e9;  // bound for scalars that have no natural one

// Reads members of one object. The first error is kept and later reads return zeros, so that a
// list of fields reads as a list; finish with TRY_STATUS(reader.status()).
class FieldReader {
 public:
  FieldReader(const Json& object, std::string what) : object_(object), what_(std::move(what)) {}

  int64_t Int(std::string_view key, int64_t min, int64_t max) {
    const int64_t value = Take(JsonInt(object_, key, what_));
    if (status_ && (value < min || value > max)) {
      Refuse(fmt::format("\"{}\" must be from {} to {}, but it is {}", key, min, max, value));
    }
    return value;
  }
  double Double(std::string_view key, double min, double max) {
    const double value = Take(JsonDouble(object_, key, what_));
    if (status_ && !(value >= min && value <= max)) {
      Refuse(fmt::format("\"{}\" must be from {} to {}, but it is {}", key, min, max, value));
    }
    return value;
  }
  bool Bool(std::string_view key) { return Take(JsonBool(object_, key, what_)); }
  std::vector<int64_t> Ints(std::string_view key, int64_t min, int64_t max, int64_t count_max) {
    std::vector<int64_t> values;
    const JsonArray* list = Take(JsonList(object_, key, what_));
    if (list == nullptr) return values;
    if (static_cast<int64_t>(list->size()) > count_max) {
      Refuse(fmt::format("\"{}\" must have at most {} entries, but it has {}", key, count_max,
                         list->size()));
      return values;
    }
    for (const Json& entry : *list) {
      const auto* value = std::get_if<int64_t>(&entry.value());
      if (value == nullptr || *value < min || *value > max) {
        Refuse(fmt::format("every entry of \"{}\" must be an integer from {} to {}, but one is {}",
                           key, min, max, Shown(entry)));
        return values;
      }
      values.push_back(*value);
    }
    return values;
  }
  // The field must have the one value that is implemented.
  void Only(std::string_view key, const Json& supported) {
    const Json* found = object_.Find(key);
    if (found == nullptr) return Refuse(fmt::format("the required key \"{}\" is missing", key));
    const std::string expected = DumpJson(supported, JsonStyle::kCompact);
    if (DumpJson(*found, JsonStyle::kCompact) == expected) return;
    Refuse(fmt::format("\"{}\" must be {}, but it is {}; nothing else is supported", key, expected,
                       Shown(*found)));
  }
  const Json* Find(std::string_view key) const { return object_.Find(key); }
  void Refuse(std::string_view problem) {
    if (status_) status_ = Fail(fmt::format("{}: {}", what_, problem));
  }
  const Status& status() const { return status_; }

 private:
  static std::string Shown(const Json& value) {
    if (value.is_array() || value.is_object()) return fmt::format("an {}", value.TypeName());
    if (value.is_string() && value.as_string().size() > kShownBytes) return "a long string";
    return DumpJson(value, JsonStyle::kCompact);
  }
  template <typename T>
  T Take(Result<T> result) {
    if (result) return *std::move(result);
    if (status_) status_ = tl::unexpected(std::move(result).error());
    return T{};
  }

  static constexpr size_t kShownBytes = 40;
  const Json& object_;
  std::string what_;
  Status status_;
};

Result<const Json*> Section(const Json& root, std::string_view key, std::string_view what) {
  TRY(JsonMembers(root, key, what));
  return root.Find(key);
}

Status ReadTopLevel(const Json& root, std::string_view what, ModelConfig& config) {
  FieldReader reader(root, std::string(what));
  reader.Only("model_type", "deepseek_v41");
  reader.Only("dtype", "bfloat16");
  const int64_t last_token = config.vocab_size - 1;
  config.bos_token_id = reader.Int("bos_token_id", 0, last_token);
  config.eos_token_id = reader.Int("eos_token_id", 0, last_token);
  config.pad_token_id = reader.Int("pad_token_id", 0, last_token);
  config.image_token_id = reader.Int("image_token_id", -1, last_token);
  TRY_STATUS(reader.status());

  const Json* section = TRY(Section(root, "quantization_config", what));
  FieldReader quantization(*section, fmt::format("{}: quantization_config", what));
  quantization.Only("quant_method", "fp8");
  quantization.Only("activation_scheme", "dynamic");
  quantization.Only("weight_block_size", JsonArray{int64_t{kGroupSize}, int64_t{kGroupSize}});
  quantization.Only("scale_fmt", "ue8m0");
  quantization.Only("expert_dtype", "fp4");
  return quantization.status();
}

void ReadSizes(FieldReader& reader, ModelConfig& config) {
  reader.Only("num_key_value_heads", 1);
  reader.Only("n_shared_experts", 1);
  reader.Only("hidden_act", "silu");
  reader.Only("attention_bias", false);
  reader.Only("tie_word_embeddings", false);
  reader.Only("scoring_func", "sqrtsoftplus");
  reader.Only("topk_method", "noaux_tc");
  config.vocab_size = reader.Int("vocab_size", 1, kVocabSizeMax);
  config.hidden_size = reader.Int("hidden_size", 1, kDimensionMax);
  config.moe_intermediate_size = reader.Int("moe_intermediate_size", 1, kDimensionMax);
  config.num_hidden_layers = reader.Int("num_hidden_layers", 1, kLayerCountMax);
  config.num_attention_heads = reader.Int("num_attention_heads", 1, kHeadCountMax);
  config.head_dim = reader.Int("head_dim", 1, kDimensionMax);
  config.qk_rope_head_dim = reader.Int("qk_rope_head_dim", 2, kDimensionMax);
  config.q_lora_rank = reader.Int("q_lora_rank", 1, kDimensionMax);
  config.o_lora_rank = reader.Int("o_lora_rank", 1, kDimensionMax);
  config.o_groups = reader.Int("o_groups", 1, kHeadCountMax);
  config.swiglu_limit = reader.Double("swiglu_limit", 0, kLargestFactor);
  config.rms_norm_eps = reader.Double("rms_norm_eps", kSmallestNormalFloat, 1);
  config.max_position_embeddings = reader.Int("max_position_embeddings", 1, kContextTokensMax);
  config.rope_theta = reader.Double("rope_theta", 1, kLargestFactor);
  config.compress_rope_theta = reader.Double("compress_rope_theta", 1, kLargestFactor);
  config.n_routed_experts = reader.Int("n_routed_experts", 1, kExpertCountMax);
  config.n_shared_experts = 1;
  config.num_experts_per_tok = reader.Int("num_experts_per_tok", 1, config.n_routed_experts);
  config.norm_topk_prob = reader.Bool("norm_topk_prob");
  config.routed_scaling_factor =
      reader.Double("routed_scaling_factor", kSmallestNormalFloat, kLargestFactor);
  // The released config has no gate_temp; the reference's default is part of the model.
  if (reader.Find("gate_temp") != nullptr) {
    config.gate_temp = reader.Double("gate_temp", kSmallestNormalFloat, kLargestFactor);
  }
  config.sliding_window = reader.Int("sliding_window", 1, kWindowTokensMax);
  config.hc_mult = reader.Int("hc_mult", 1, kStreamCountMax);
  config.hc_sinkhorn_iters = reader.Int("hc_sinkhorn_iters", 1, kSinkhornItersMax);
  config.hc_eps = reader.Double("hc_eps", 0, 1);
}

void ReadCompression(FieldReader& reader, ModelConfig& config) {
  const int64_t last_layer = config.num_hidden_layers - 1;
  config.compress_ratios =
      reader.Ints("compress_ratios", 0, 2, kLayerCountMax + kDraftStageCountMax);
  config.kv_source_layer_ids = reader.Ints("kv_source_layer_ids", 0, last_layer, kLayerCountMax);
  config.index_source_layer_ids =
      reader.Ints("index_source_layer_ids", 0, last_layer, kLayerCountMax);
  config.index_n_heads = reader.Int("index_n_heads", 0, kHeadCountMax);
  config.index_head_dim = reader.Int("index_head_dim", 0, kDimensionMax);
  config.index_topk = reader.Int("index_topk", 0, kSelectedRowsMax);
  config.candidate_source_layer_id = reader.Int("candidate_source_layer_id", -1, last_layer);
  config.candidate_topk_blocks = reader.Int("candidate_topk_blocks", 0, kCandidateBlocksMax);
  config.candidate_block_size = reader.Int("candidate_block_size", 0, kCandidateBlockRowsMax);
}

void ReadEngram(FieldReader& reader, ModelConfig& config) {
  config.engram_layer_ids =
      reader.Ints("engram_layer_ids", 0, config.num_hidden_layers - 1, kLayerCountMax);
  config.engram_num_embeddings =
      reader.Ints("engram_num_embeddings", 1, kEngramRowsMax, kLayerCountMax);
  config.engram_max_ngram_size = reader.Int("engram_max_ngram_size", 0, kEngramNgramMax);
  config.engram_vocab_size = reader.Int("engram_vocab_size", 0, kEngramRowsMax);
  config.engram_n_heads = reader.Int("engram_n_heads", 0, kEngramHeadCountMax);
  config.engram_head_dim = reader.Int("engram_head_dim", 0, kDimensionMax);
  config.engram_pad_token_id = reader.Int("engram_pad_token_id", 0, config.vocab_size - 1);
  config.engram_compressed_vocab_size =
      reader.Int("engram_compressed_vocab_size", 0, config.vocab_size);
}

void ReadDspark(FieldReader& reader, ModelConfig& config) {
  config.num_nextn_predict_layers = reader.Int("num_nextn_predict_layers", 0, kDraftStageCountMax);
  config.dspark_block_size = reader.Int("dspark_block_size", 0, kDraftBlockTokensMax);
  config.dspark_noise_token_id = reader.Int("dspark_noise_token_id", 0, config.vocab_size - 1);
  config.dspark_target_layer_ids =
      reader.Ints("dspark_target_layer_ids", 0, config.num_hidden_layers - 1, kLayerCountMax);
  config.dspark_markov_rank = reader.Int("dspark_markov_rank", 0, kDimensionMax);
  config.dspark_n_routed_experts = reader.Int("dspark_n_routed_experts", 0, kExpertCountMax);
  config.dspark_num_experts_per_tok =
      reader.Int("dspark_num_experts_per_tok", 0, config.dspark_n_routed_experts);
}

Status ReadRopeScaling(const Json& text, std::string_view what, ModelConfig& config) {
  const Json* scaling = text.Find("rope_scaling");
  if (scaling != nullptr && scaling->is_null()) return {};  // no YaRN
  TRY(JsonMembers(text, "rope_scaling", what));
  FieldReader reader(*scaling, fmt::format("{}: rope_scaling", what));
  reader.Only("rope_type", "yarn");
  config.rope_scaling.factor = reader.Double("factor", 1, kLargestFactor);
  config.rope_scaling.beta_fast = reader.Double("beta_fast", kSmallestNormalFloat, kLargestFactor);
  config.rope_scaling.beta_slow =
      reader.Double("beta_slow", kSmallestNormalFloat, config.rope_scaling.beta_fast);
  config.rope_scaling.original_max_position_embeddings =
      reader.Int("original_max_position_embeddings", 1, kContextTokensMax);
  return reader.status();
}

Status ReadVision(const Json& root, std::string_view what, ModelConfig& config) {
  const Json* section = TRY(Section(root, "vision_config", what));
  FieldReader reader(*section, fmt::format("{}: vision_config", what));
  VisionConfig& vision = config.vision;
  vision.num_hidden_layers = reader.Int("num_hidden_layers", 0, kLayerCountMax);
  vision.hidden_size = reader.Int("hidden_size", 1, kDimensionMax);
  vision.num_attention_heads = reader.Int("num_attention_heads", 1, kHeadCountMax);
  vision.intermediate_size = reader.Int("intermediate_size", 1, kDimensionMax);
  vision.patch_size = reader.Int("patch_size", 1, kPatchSizeMax);
  vision.downsample_ratio = reader.Int("downsample_ratio", 1, kDownsampleRatioMax);
  if (reader.status() && vision.hidden_size % vision.num_attention_heads != 0) {
    reader.Refuse(
        fmt::format("\"hidden_size\" must be a multiple of num_attention_heads = {}, but "
                    "it is {}",
                    vision.num_attention_heads, vision.hidden_size));
  }
  return reader.status();
}

// ---- relations between fields ----------------------------------------------------------------

bool IsAscending(const std::vector<int64_t>& ids) {
  return std::adjacent_find(ids.begin(), ids.end(), std::greater_equal<>()) == ids.end();
}

bool Contains(const std::vector<int64_t>& ids, int64_t id) {
  return std::binary_search(ids.begin(), ids.end(), id);
}

// The largest id not above `layer`, or -1. REQUIRES: ids ascending.
int64_t SourceOf(const std::vector<int64_t>& ids, int64_t layer) {
  const auto after = std::upper_bound(ids.begin(), ids.end(), layer);
  return after == ids.begin() ? -1 : *std::prev(after);
}

// Collects the first broken relation, as FieldReader does.
class Relations {
 public:
  explicit Relations(std::string what) : what_(std::move(what)) {}
  void Require(bool holds, std::string_view problem) {
    if (!holds && status_) status_ = Fail(fmt::format("{}: {}", what_, problem));
  }
  void MultipleOf32(std::string_view key, int64_t value) {
    Require(value > 0 && value % kGroupSize == 0,
            fmt::format("\"{}\" must be a positive multiple of {}, but it is {}", key, kGroupSize,
                        value));
  }
  void Ascending(std::string_view key, const std::vector<int64_t>& ids) {
    Require(IsAscending(ids), fmt::format("\"{}\" must be ascending without repetition, but it is "
                                          "[{}]",
                                          key, fmt::join(ids, ", ")));
  }
  const Status& status() const { return status_; }

 private:
  std::string what_;
  Status status_;
};

Status CheckSizes(const ModelConfig& config, std::string_view what) {
  Relations relations{std::string(what)};
  relations.MultipleOf32("hidden_size", config.hidden_size);
  relations.MultipleOf32("moe_intermediate_size", config.moe_intermediate_size);
  relations.MultipleOf32("head_dim", config.head_dim);
  relations.MultipleOf32("q_lora_rank", config.q_lora_rank);
  relations.MultipleOf32("o_lora_rank", config.o_lora_rank);
  relations.Require(config.qk_rope_head_dim % 2 == 0 && config.qk_rope_head_dim <= config.head_dim,
                    fmt::format("\"qk_rope_head_dim\" must be even and at most head_dim = {}, but "
                                "it is {}",
                                config.head_dim, config.qk_rope_head_dim));
  relations.Require(config.num_attention_heads % config.o_groups == 0,
                    fmt::format("\"o_groups\" must divide num_attention_heads = {}, but it is {}",
                                config.num_attention_heads, config.o_groups));
  // A hostile config must not make the catalogue of tensors outgrow memory.
  const int64_t backbone = config.num_hidden_layers * (6 * config.n_routed_experts + 60);
  const int64_t draft = config.num_nextn_predict_layers * (6 * config.dspark_n_routed_experts + 60);
  relations.Require(backbone + draft <= kModelTensorsMax,
                    fmt::format("{} layers of {} experts and {} draft stages of {} make more than "
                                "{} tensors, the most that are accepted",
                                config.num_hidden_layers, config.n_routed_experts,
                                config.num_nextn_predict_layers, config.dspark_n_routed_experts,
                                kModelTensorsMax));
  return relations.status();
}

Status CheckCompressRatios(ModelConfig& config, std::string_view what) {
  const auto layers = static_cast<size_t>(config.num_hidden_layers);
  const auto drafts = static_cast<size_t>(config.num_nextn_predict_layers);
  std::vector<int64_t>& ratios = config.compress_ratios;
  if (ratios.size() != layers && ratios.size() != layers + drafts) {
    return Fail(
        fmt::format("{}: \"compress_ratios\" must have an entry for each of {} layers, and "
                    "may have one for each of {} draft stages, but it has {} entries",
                    what, layers, drafts, ratios.size()));
  }
  for (size_t i = layers; i < ratios.size(); ++i) {
    if (ratios[i] == 0) continue;
    return Fail(fmt::format("{}: \"compress_ratios\" of draft stages must be 0, but entry {} is {}",
                            what, i, ratios[i]));
  }
  ratios.resize(layers);
  return {};
}

Status CheckSources(const ModelConfig& config, std::string_view what) {
  Relations relations{std::string(what)};
  const auto& kv_sources = config.kv_source_layer_ids;
  const auto& index_sources = config.index_source_layer_ids;
  relations.Ascending("kv_source_layer_ids", kv_sources);
  relations.Ascending("index_source_layer_ids", index_sources);
  TRY_STATUS(relations.status());
  for (const int64_t id : kv_sources) {
    relations.Require(Contains(index_sources, id),
                      fmt::format("kv source {} must also be in \"index_source_layer_ids\"", id));
  }
  for (const int64_t id : index_sources) {
    relations.Require(config.compress_ratios[static_cast<size_t>(id)] > 0,
                      fmt::format("index source {} must have a compress ratio of 1 or 2, but it "
                                  "has 0",
                                  id));
  }
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    const int64_t ratio = config.compress_ratios[static_cast<size_t>(layer)];
    if (ratio == 0) continue;
    const int64_t source = SourceOf(kv_sources, layer);
    relations.Require(source >= 0, fmt::format("layer {} has compress ratio {}, but no kv source "
                                               "comes before it",
                                               layer, ratio));
    TRY_STATUS(relations.status());
    const int64_t source_ratio = config.compress_ratios[static_cast<size_t>(source)];
    relations.Require(source_ratio == ratio,
                      fmt::format("layer {} has compress ratio {}, but its kv source {} has {}",
                                  layer, ratio, source, source_ratio));
  }
  return relations.status();
}

Status CheckIndexer(const ModelConfig& config, std::string_view what) {
  Relations relations{std::string(what)};
  if (config.index_source_layer_ids.empty()) {
    relations.Require(config.candidate_source_layer_id < 0,
                      "\"candidate_source_layer_id\" must be -1 where there is no index source");
    return relations.status();
  }
  relations.MultipleOf32("index_head_dim", config.index_head_dim);
  relations.Require(config.index_n_heads >= 1, "\"index_n_heads\" must be at least 1");
  relations.Require(config.index_topk >= 1, "\"index_topk\" must be at least 1");
  relations.Require(config.qk_rope_head_dim <= config.index_head_dim,
                    fmt::format("\"index_head_dim\" must be at least qk_rope_head_dim = {}, but it "
                                "is {}",
                                config.qk_rope_head_dim, config.index_head_dim));
  const int64_t candidate = config.candidate_source_layer_id;
  if (candidate < 0) return relations.status();
  relations.Require(Contains(config.index_source_layer_ids, candidate),
                    fmt::format("\"candidate_source_layer_id\" must be an index source or -1, but "
                                "it is {}",
                                candidate));
  relations.Require(SourceOf(config.kv_source_layer_ids, config.num_hidden_layers) <= candidate,
                    fmt::format("no kv source may come after candidate source {}, as candidates "
                                "are blocks of one source's rows",
                                candidate));
  const int64_t block = config.candidate_block_size;
  relations.Require(config.candidate_topk_blocks >= 1 && block >= 1 &&
                        config.candidate_rows_min() >= config.index_topk,
                    fmt::format("{} candidate blocks of {} rows hold fewer rows than index_topk = "
                                "{}",
                                config.candidate_topk_blocks, block, config.index_topk));
  return relations.status();
}

Status CheckEngram(const ModelConfig& config, std::string_view what) {
  Relations relations{std::string(what)};
  relations.Require(
      config.engram_layer_ids.size() == config.engram_num_embeddings.size(),
      fmt::format("\"engram_layer_ids\" and \"engram_num_embeddings\" must have "
                  "equally many entries, but they have {} and {}",
                  config.engram_layer_ids.size(), config.engram_num_embeddings.size()));
  relations.Ascending("engram_layer_ids", config.engram_layer_ids);
  if (!config.has_engram()) return relations.status();
  relations.MultipleOf32("engram_head_dim", config.engram_head_dim);
  relations.Require(config.engram_max_ngram_size >= 2,
                    "\"engram_max_ngram_size\" must be at least "
                    "2, or there is nothing to look up");
  relations.Require(config.engram_n_heads >= 1, "\"engram_n_heads\" must be at least 1");
  relations.Require(config.engram_vocab_size >= 1, "\"engram_vocab_size\" must be at least 1");
  relations.Require(config.engram_compressed_vocab_size >= 1,
                    "\"engram_compressed_vocab_size\" must be at least 1");
  return relations.status();
}

Status CheckDspark(const ModelConfig& config, std::string_view what) {
  Relations relations{std::string(what)};
  if (config.num_nextn_predict_layers == 0) return {};
  relations.Require(config.dspark_block_size >= 1, "\"dspark_block_size\" must be at least 1");
  relations.Require(config.dspark_markov_rank >= 1, "\"dspark_markov_rank\" must be at least 1");
  relations.Require(config.dspark_num_experts_per_tok >= 1,
                    "\"dspark_num_experts_per_tok\" must be at least 1");
  relations.Require(!config.dspark_target_layer_ids.empty(),
                    "\"dspark_target_layer_ids\" must name at least one layer");
  relations.Ascending("dspark_target_layer_ids", config.dspark_target_layer_ids);
  return relations.status();
}

// REQUIRES: all checks passed.
std::vector<LayerRole> DeriveLayers(const ModelConfig& config) {
  std::vector<LayerRole> layers(static_cast<size_t>(config.num_hidden_layers));
  for (int64_t layer = 0; layer < config.num_hidden_layers; ++layer) {
    LayerRole& role = layers[static_cast<size_t>(layer)];
    const auto engram =
        std::find(config.engram_layer_ids.begin(), config.engram_layer_ids.end(), layer);
    if (engram != config.engram_layer_ids.end()) {
      role.engram_index = engram - config.engram_layer_ids.begin();
    }
    role.compress_ratio = config.compress_ratios[static_cast<size_t>(layer)];
    if (role.compress_ratio == 0) continue;
    const auto& kv_sources = config.kv_source_layer_ids;
    role.kv_source = SourceOf(kv_sources, layer);
    role.kv_source_index =
        std::lower_bound(kv_sources.begin(), kv_sources.end(), role.kv_source) - kv_sources.begin();
    role.index_source = SourceOf(config.index_source_layer_ids, layer);
    const bool selects = role.index_source == layer;
    role.mode = role.kv_source == layer ? LayerMode::kFull
                : selects               ? LayerMode::kReindex
                                        : LayerMode::kReuse;
    const int64_t candidate = config.candidate_source_layer_id;
    role.publishes_candidates = candidate == layer;
    role.uses_candidates = selects && candidate >= 0 && layer > candidate;
  }
  return layers;
}

}  // namespace

const char* LayerModeName(LayerMode mode) {
  switch (mode) {
    case LayerMode::kSwa:
      return "SWA";
    case LayerMode::kFull:
      return "Full";
    case LayerMode::kReindex:
      return "Reindex";
    case LayerMode::kReuse:
      return "Reuse";
  }
  return "";
}

Result<ModelConfig> ParseConfig(std::string_view text, std::string_view what) {
  const Json root = TRY(ParseJson(text, what));
  const Json* section = TRY(Section(root, "text_config", what));
  const std::string text_what = fmt::format("{}: text_config", what);
  ModelConfig config;
  FieldReader reader(*section, text_what);
  ReadSizes(reader, config);
  // The remaining bounds depend on these sizes.
  TRY_STATUS(reader.status());
  ReadCompression(reader, config);
  ReadEngram(reader, config);
  ReadDspark(reader, config);
  TRY_STATUS(reader.status());
  TRY_STATUS(ReadRopeScaling(*section, text_what, config));
  TRY_STATUS(ReadTopLevel(root, what, config));
  TRY_STATUS(ReadVision(root, what, config));

  TRY_STATUS(CheckSizes(config, text_what));
  TRY_STATUS(CheckCompressRatios(config, text_what));
  TRY_STATUS(CheckSources(config, text_what));
  TRY_STATUS(CheckIndexer(config, text_what));
  TRY_STATUS(CheckEngram(config, text_what));
  TRY_STATUS(CheckDspark(config, text_what));
  config.layers = DeriveLayers(config);
  return config;
}

Result<ModelConfig> LoadConfig(const std::string& path) {
  const std::string text = TRY(ReadFile(path, kConfigBytesMax));
  return ParseConfig(text, path);
}

}  // namespace minke

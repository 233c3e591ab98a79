#include "train/ablation_plan.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/json.h"
#include "core/numeric_formats.h"
#include "train/digest.h"
#include "train/key_reader.h"
#include "train/training_state.h"

namespace minke::train {
namespace {

constexpr int64_t kProbeTokensMin = 128;
constexpr int64_t kProbeTokensMax = int64_t{1} << 20;
constexpr int64_t kProbeCasesMax = int64_t{1} << 20;

Result<std::string> Text(KeyReader& reader, std::string_view key, bool required) {
  const Json* value = reader.Take(key);
  if (value == nullptr && !required) return std::string();
  if (value == nullptr || !value->is_string() || value->as_string().empty()) {
    return Fail(fmt::format("{}: {} must be a text.", reader.what(), reader.Name(key)));
  }
  return value->as_string();
}

// Integers of [low, high], at least one of them and at most `most`.
Result<std::vector<int64_t>> Integers(KeyReader& reader, std::string_view key, int64_t low,
                                      int64_t high, size_t most) {
  const Json* value = reader.Take(key);
  std::vector<int64_t> numbers;
  bool fits = value != nullptr && value->is_array() && !value->as_array().empty() &&
              value->as_array().size() <= most;
  for (size_t i = 0; fits && i < value->as_array().size(); ++i) {
    const Json& number = value->as_array()[i];
    fits = number.is_integer() && number.as_double() >= static_cast<double>(low) &&
           number.as_double() <= static_cast<double>(high);
    if (fits) numbers.push_back(number.as_int());
  }
  if (fits) return numbers;
  return Fail(fmt::format("{}: {} must be a list of 1 to {} integers from {} to {}.", reader.what(),
                          reader.Name(key), most, low, high));
}

Result<std::vector<int64_t>> Lengths(KeyReader& reader) {
  return Integers(reader, "lengths", kProbeTokensMin, kProbeTokensMax, kShapesMax);
}

Result<AblationVariant> ReadVariant(const Json& value, std::string_view what, std::string place) {
  KeyReader reader = TRY(KeyReader::Open(value, what, std::move(place)));
  AblationVariant variant;
  variant.name = TRY(Text(reader, "name", true));
  size_t attention = 2;
  TRY_STATUS(reader.Word("attention", {"dense", "sparse", "sparse+pool"}, &attention));
  variant.options.sparse = attention > 0;
  variant.options.pool = attention > 1;
  variant.options.quantization = Quantization::All();
  TRY_STATUS(ReadQuantization(reader, &variant.options.quantization));
  TRY_STATUS(reader.Boolean("mask_compressed", &variant.options.mask_compressed));
  TRY_STATUS(reader.Boolean("engram", &variant.options.engram));
  TRY_STATUS(reader.Integer("replay_tokens", 1, kProbeTokensMax, &variant.replay_tokens));
  TRY_STATUS(reader.RefuseUnknown());
  return variant;
}

Status ReadVariants(KeyReader& reader, std::vector<AblationVariant>* variants) {
  const Json* list = reader.Take("evaluate");
  const size_t count = list != nullptr && list->is_array() ? list->as_array().size() : 0;
  if (count == 0 || count > kAblationVariantsMax) {
    return Fail(fmt::format("{}: {} must be a list of 1 to {} ways to evaluate.", reader.what(),
                            reader.Name("evaluate"), kAblationVariantsMax));
  }
  for (size_t i = 0; i < count; ++i) {
    variants->push_back(TRY(ReadVariant(list->as_array()[i], reader.what(),
                                        fmt::format("{}[{}]", reader.Name("evaluate"), i))));
  }
  return {};
}

// The stages that a row names, with what ParseTrainingConfig() finds wrong with them.
Status ReadTraining(KeyReader& reader, const Json* shared, TrainingConfig* training) {
  const std::string name = TRY(Text(reader, "stages", false));
  if (name.empty()) return {};
  const Json* stages = shared == nullptr ? nullptr : shared->Find(name);
  if (stages == nullptr) {
    return Fail(fmt::format("{}: {} names \"{}\", which \"stages\" of the plan does not have.",
                            reader.what(), reader.Name("stages"), name));
  }
  const Json config(JsonObject{{"stages", *stages}});
  *training = TRY(ParseTrainingConfig(DumpJson(config, JsonStyle::kCompact),
                                      fmt::format("{}, stages \"{}\"", reader.what(), name)));
  return {};
}

Result<AblationRow> ReadRow(const Json& value, const Json* shared_stages, const AblationPlan& plan,
                            std::string_view what, std::string place) {
  KeyReader reader = TRY(KeyReader::Open(value, what, std::move(place)));
  AblationRow row;
  row.table = TRY(Text(reader, "table", true));
  row.name = TRY(Text(reader, "name", true));
  row.trunk_state = TRY(Text(reader, "from", false));
  if (const Json* changes = reader.Take("config")) {
    row.config_changes = DumpJson(*changes, JsonStyle::kCompact);
  }
  TRY_STATUS(ReadTraining(reader, shared_stages, &row.training));
  if (row.trunk_state.empty() && row.training.stages.empty()) {
    return Fail(fmt::format("{}: {} has neither weights to begin with (from) nor stages.", what,
                            reader.Name("name")));
  }
  row.seeds = {1};
  if (reader.Has("seeds")) {
    row.seeds.clear();
    for (const int64_t seed :
         TRY(Integers(reader, "seeds", 0, kTrainingSeedMax, kAblationSeedsMax))) {
      row.seeds.push_back(static_cast<uint64_t>(seed));
    }
  }
  row.lengths = plan.lengths;
  if (reader.Has("lengths")) row.lengths = TRY(Lengths(reader));
  TRY_STATUS(ReadVariants(reader, &row.variants));
  TRY_STATUS(reader.RefuseUnknown());
  return row;
}

}  // namespace

Result<AblationPlan> ParseAblationPlan(std::string_view text, std::string_view what) {
  const Json file = TRY(ParseJson(text, what));
  KeyReader reader = TRY(KeyReader::Open(file, what, ""));
  AblationPlan plan;
  plan.lengths = TRY(Lengths(reader));
  TRY_STATUS(reader.Integer("cases", 1, kProbeCasesMax, &plan.cases));
  int64_t seed = 1;
  TRY_STATUS(reader.Integer("seed", 0, kTrainingSeedMax, &seed));
  plan.seed = static_cast<uint64_t>(seed);
  TRY_STATUS(reader.Integer("text_tokens", 2, int64_t{1} << 40, &plan.text_tokens));
  TRY_STATUS(reader.Integer("window", 16, kProbeTokensMax, &plan.window));
  const Json* shared_stages = reader.Take("stages");
  const Json* rows = reader.Take("rows");
  const size_t count = rows != nullptr && rows->is_array() ? rows->as_array().size() : 0;
  if (count == 0 || count > kAblationRowsMax) {
    return Fail(fmt::format("{}: rows must be a list of 1 to {} rows.", what, kAblationRowsMax));
  }
  TRY_STATUS(reader.RefuseUnknown());
  for (size_t i = 0; i < count; ++i) {
    AblationRow row =
        TRY(ReadRow(rows->as_array()[i], shared_stages, plan, what, fmt::format("rows[{}]", i)));
    for (const AblationRow& earlier : plan.rows) {
      if (earlier.name != row.name) continue;
      return Fail(fmt::format("{}: rows[{}].name is \"{}\", which an earlier row has already.",
                              what, i, row.name));
    }
    plan.rows.push_back(std::move(row));
  }
  return plan;
}

Result<std::string> ChangeConfig(std::string_view config_text, std::string_view changes,
                                 std::string_view what) {
  if (changes.empty()) return std::string(config_text);
  Json config = TRY(ParseJson(config_text, what));
  const Json wanted = TRY(ParseJson(changes, "the changes of a row"));
  const Json* found = config.Find("text_config");
  if (found == nullptr || !found->is_object() || !wanted.is_object()) {
    return Fail(fmt::format("{} has no text_config, or a row's config is no object.", what));
  }
  Json text = *found;
  for (const auto& [key, value] : wanted.as_object()) {
    if (text.Find(key) == nullptr) {
      return Fail(fmt::format("{}: text_config has no {} that a row could change.", what, key));
    }
    text.Set(key, value);
  }
  config.Set("text_config", std::move(text));
  return DumpJson(config, JsonStyle::kPretty);
}

std::string SetupDigest(const AblationPlan& plan, const AblationRow& row,
                        const AblationVariant& variant, const TrunkIdentity& trunk) {
  const ForwardOptions& options = variant.options;
  const Quantization& quantization = options.quantization;
  const Json setup(JsonObject{{"trunk", Digest(trunk.config_text)},
                              {"trunk_weights", trunk.weights},
                              {"from", row.trunk_state},
                              {"config", row.config_changes},
                              {"stages", row.training.digest},
                              {"seed", plan.seed},
                              {"text_tokens", plan.text_tokens},
                              {"window", plan.window},
                              {"sparse", options.sparse},
                              {"pool", options.pool},
                              {"mask_compressed", options.mask_compressed},
                              {"engram", options.engram},
                              {"replay_tokens", variant.replay_tokens},
                              {"rows", static_cast<int64_t>(quantization.rows)},
                              {"index", quantization.index},
                              {"window_rounded", quantization.window},
                              {"activations", quantization.activations},
                              {"weights", quantization.weights}});
  return Digest(DumpJson(setup, JsonStyle::kCompact));
}

double CacheBytesPerToken(const ModelConfig& config, RowPrecision rows, bool index_rounded) {
  constexpr int64_t kBf16Bytes = 2;
  constexpr int64_t kScaleGroup = 16;  // channels under one scale byte
  constexpr int64_t kTernaryBits = 2;
  int64_t row_bytes = 0;
  switch (rows) {
    case RowPrecision::kFloat:
      row_bytes = config.head_dim * static_cast<int64_t>(sizeof(float));
      break;
    case RowPrecision::kBf16:
      row_bytes = config.head_dim * kBf16Bytes;
      break;
    case RowPrecision::kQ4K:
      row_bytes = RowBytes(RowFormat::kFp4Group16, config.head_dim);
      break;
    case RowPrecision::kHarsh:
      row_bytes = config.head_dim * kTernaryBits / 8 + config.head_dim / kScaleGroup;
      break;
  }
  const int64_t key_bytes = index_rounded ? RowBytes(RowFormat::kFp4Group32, config.index_head_dim)
                                          : config.index_head_dim * kBf16Bytes;
  double bytes = 0;
  for (size_t source = 0; source < config.kv_source_layer_ids.size(); ++source) {
    bytes += static_cast<double>(row_bytes + key_bytes) /
             static_cast<double>(config.kv_source_ratio(static_cast<int64_t>(source)));
  }
  return bytes;
}

double IndexedKeysPerQuery(const ModelConfig& config, int64_t tokens, bool pool) {
  int64_t keys = 0;
  for (const int64_t layer : config.index_source_layer_ids) {
    const LayerRole& role = config.layers[static_cast<size_t>(layer)];
    int64_t visible = tokens / role.compress_ratio;
    if (pool && role.uses_candidates) {
      visible = std::min(visible, config.candidate_topk_blocks * config.candidate_block_size);
    }
    keys += visible;
  }
  return static_cast<double>(keys);
}

}  // namespace minke::train

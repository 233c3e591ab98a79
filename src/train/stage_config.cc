#include "train/stage_config.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "core/file.h"
#include "core/json.h"
#include "recall/facts.h"
#include "train/digest.h"
#include "train/key_reader.h"

namespace minke::train {
namespace {

constexpr size_t kNone = std::string_view::npos;

Status Missing(const KeyReader& reader, std::string_view key, std::string_view meaning) {
  return Fail(fmt::format("{}: {} is missing: {}.", reader.what(), reader.Name(key), meaning));
}

Status ReadShapes(KeyReader& reader, StageConfig* stage) {
  const Json* rows = reader.Take("rows");
  const size_t count = rows != nullptr && rows->is_array() ? rows->as_array().size() : 0;
  if (count == 0 || count > kShapesMax) {
    return Fail(
        fmt::format("{}: {} must be a list of 1 to {} objects with length, count and "
                    "share.",
                    reader.what(), reader.Name("rows"), kShapesMax));
  }
  double shares = 0;
  for (size_t i = 0; i < count; ++i) {
    KeyReader entry = TRY(KeyReader::Open(rows->as_array()[i], reader.what(),
                                          fmt::format("{}[{}]", reader.Name("rows"), i)));
    RowShape shape;
    TRY_STATUS(entry.Integer("length", kRowTokensMin, kRowTokensMax, &shape.length));
    TRY_STATUS(entry.Integer("count", 1, kStepTokensMax, &shape.count));
    TRY_STATUS(entry.Number("share", 0, 1000, &shape.share));
    TRY_STATUS(entry.RefuseUnknown());
    if (shape.length * shape.count > kStepTokensMax) {
      return Fail(fmt::format("{}: {} asks for {} x {} tokens a step; at most {} are accepted.",
                              reader.what(), entry.Name("count"), shape.length, shape.count,
                              kStepTokensMax));
    }
    shares += shape.share;
    stage->shapes.push_back(shape);
  }
  if (!(shares > 0)) {
    return Fail(fmt::format("{}: the shares of {} are all 0.", reader.what(), reader.Name("rows")));
  }
  return {};
}

Status ReadKinds(KeyReader& reader, StageConfig* stage) {
  const Json* kinds = reader.Take("kinds");
  if (kinds == nullptr) {
    return Missing(reader, "kinds", "the shares of rows, {\"list\":.., \"document\":.., ...}");
  }
  KeyReader entry = TRY(KeyReader::Open(*kinds, reader.what(), reader.Name("kinds")));
  double sum = 0;
  for (size_t kind = 0; kind < kRowKindCount; ++kind) {
    stage->kinds[kind] = 0;
    TRY_STATUS(entry.Number(RowKindName(static_cast<RowKind>(kind)), 0, 1000, &stage->kinds[kind]));
    sum += stage->kinds[kind];
  }
  TRY_STATUS(entry.RefuseUnknown());
  if (!(sum > 0)) {
    return Fail(
        fmt::format("{}: the shares of {} are all 0.", reader.what(), reader.Name("kinds")));
  }
  return {};
}

Status ReadWeights(KeyReader& reader, StageConfig* stage) {
  const Json* value = reader.Take("weights");
  if (value == nullptr) return {};
  KeyReader entry = TRY(KeyReader::Open(*value, reader.what(), reader.Name("weights")));
  TRY_STATUS(entry.Number("first", 0, 1000, &stage->weights.first));
  TRY_STATUS(entry.Number("value", 0, 1000, &stage->weights.value));
  TRY_STATUS(entry.Number("restated", 0, 1000, &stage->weights.restated));
  TRY_STATUS(entry.Number("text", 0, 1000, &stage->weights.text));
  return entry.RefuseUnknown();
}

Status ReadLength(KeyReader& reader, StageConfig* stage) {
  TRY_STATUS(reader.Integer("steps", 1, kRateStepsMax, &stage->length.steps));
  TRY_STATUS(reader.Integer("tokens", 1, int64_t{1} << 50, &stage->length.tokens));
  TRY_STATUS(reader.Number("minutes", 1e-3, kStageMinutesMax, &stage->length.minutes));
  const int given = (reader.Has("steps") ? 1 : 0) + (reader.Has("tokens") ? 1 : 0) +
                    (reader.Has("minutes") ? 1 : 0);
  if (given == 1) return {};
  return Fail(
      fmt::format("{}: {} needs exactly one of steps, tokens and minutes, found {} of "
                  "them.",
                  reader.what(), reader.Name("name"), given));
}

Status ReadRates(KeyReader& reader, StageConfig* stage) {
  TRY_STATUS(reader.Number("muon_rate", 0, 1, &stage->muon_rate));
  TRY_STATUS(reader.Number("adam_rate", 0, 1, &stage->adam_rate));
  TRY_STATUS(reader.Number("embedding_rate", 0, 1, &stage->embedding_rate));
  TRY_STATUS(reader.Number("engram_factor", 0, 1000, &stage->engram_factor));
  TRY_STATUS(reader.Number("structured_factor", 0, 1, &stage->structured_factor));
  TRY_STATUS(reader.Number("router_bias_rate", 0, 1, &stage->router_bias_rate));
  TRY_STATUS(reader.Integer("warmup_steps", 0, kRateStepsMax, &stage->warmup_steps));
  TRY_STATUS(reader.Number("decay_share", 0, 1, &stage->decay_share));
  return reader.Number("decay_to", 0, 1, &stage->decay_to);
}

// Names go to the log and to a terminal.
Status ReadName(KeyReader& reader, StageConfig* stage) {
  const Json* name = reader.Take("name");
  if (name != nullptr && name->is_string()) stage->name = name->as_string();
  const bool plain = std::all_of(stage->name.begin(), stage->name.end(), [](unsigned char c) {
    return c < 0x80 && (std::isalnum(c) != 0 || std::string_view(" ,-_.").find(c) != kNone);
  });
  if (plain && !stage->name.empty() && stage->name.size() <= kStageNameMax) return {};
  return Fail(
      fmt::format("{}: {} must be the stage's name, a text of 1 to {} letters, digits, "
                  "blanks and characters of \"-_,.\", found {}.",
                  reader.what(), reader.Name("name"), kStageNameMax,
                  name == nullptr ? "none" : DumpJson(*name, JsonStyle::kCompact)));
}

Status ReadGate(KeyReader& reader, StageConfig* stage) {
  TRY_STATUS(reader.Number("gate_first", 0, 1, &stage->gate_first));
  const bool lists = stage->kinds[static_cast<size_t>(RowKind::kList)] > 0;
  if (stage->gate_first == 0 || lists) return {};
  return Fail(
      fmt::format("{}: {} is a share of right first tokens on list rows, but {} of stage {} has "
                  "no \"list\", so the gate could never be met; give lists a share, or leave "
                  "the gate out.",
                  reader.what(), reader.Name("gate_first"), reader.Name("kinds"), stage->name));
}

Status ReadTrained(KeyReader& reader, StageConfig* stage) {
  size_t trained = 0;
  TRY_STATUS(reader.Word("train", {"model", "indexers"}, &trained));
  stage->indexers_only = trained > 0;
  TRY_STATUS(reader.Number("distill", 0, 1000, &stage->distill));
  TRY_STATUS(reader.Number("index_sharpness", 1, 100, &stage->index_sharpness));
  if (!stage->indexers_only && reader.Has("index_sharpness")) {
    return Fail(
        fmt::format("{}: {} is of the loss of a stage that trains \"indexers\", but stage {} "
                    "trains the model; leave it out.",
                    reader.what(), reader.Name("index_sharpness"), stage->name));
  }
  if (!stage->indexers_only || stage->distill > 0) return {};
  return Fail(
      fmt::format("{}: {} is 0, so stage {} would train nothing: it trains \"indexers\", and "
                  "\"distill\" is the weight of their loss; set it to 1.",
                  reader.what(), reader.Name("distill"), stage->name));
}

Result<StageConfig> ReadStage(const Json& value, std::string_view what, std::string place) {
  KeyReader reader = TRY(KeyReader::Open(value, what, std::move(place)));
  StageConfig stage;
  TRY_STATUS(ReadName(reader, &stage));
  TRY_STATUS(ReadLength(reader, &stage));
  TRY_STATUS(ReadShapes(reader, &stage));
  TRY_STATUS(ReadKinds(reader, &stage));
  size_t attention = 0;
  TRY_STATUS(reader.Word("attention", {"dense", "sparse", "sparse+pool"}, &attention));
  stage.sparse = attention > 0;
  stage.pool = attention > 1;
  TRY_STATUS(reader.Integer("index_topk", 1, kSelectedRowsMax, &stage.index_topk));
  TRY_STATUS(reader.Integer("candidate_topk_blocks", 1, kCandidateBlocksMax,
                            &stage.candidate_topk_blocks));
  TRY_STATUS(ReadQuantization(reader, &stage.quantization));
  TRY_STATUS(reader.Number("replay_share", 0, 1, &stage.replay_share));
  TRY_STATUS(ReadWeights(reader, &stage));
  TRY_STATUS(reader.Number("text_share", 0, 1, &stage.text_share));
  TRY_STATUS(ReadTrained(reader, &stage));
  TRY_STATUS(reader.Number("drafts", 0, stage.indexers_only ? 0 : 1000, &stage.drafts));
  TRY_STATUS(reader.Range("facts", 1, kFactsMax, &stage.facts_min, &stage.facts_max));
  TRY_STATUS(
      reader.Range("questions", 1, kQuestionsMax, &stage.questions_min, &stage.questions_max));
  TRY_STATUS(reader.Boolean("short_values", &stage.short_values));
  TRY_STATUS(ReadRates(reader, &stage));
  TRY_STATUS(ReadGate(reader, &stage));
  TRY_STATUS(reader.RefuseUnknown());
  return stage;
}

}  // namespace

const char* RowKindName(RowKind kind) {
  switch (kind) {
    case RowKind::kList:
      return "list";
    case RowKind::kDocument:
      return "document";
    case RowKind::kPlain:
      return "plain";
  }
  return "";
}

Status ReadQuantization(KeyReader& reader, Quantization* quantization) {
  const Json* value = reader.Take("quantization");
  if (value == nullptr) return {};
  if (value->is_string()) {
    size_t choice = 0;
    TRY_STATUS(reader.Word("quantization", {"none", "all"}, &choice));
    *quantization = choice == 1 ? Quantization::All() : Quantization::None();
    return {};
  }
  KeyReader entry = TRY(KeyReader::Open(*value, reader.what(), reader.Name("quantization")));
  *quantization = Quantization::None();
  size_t rows = 0;
  TRY_STATUS(entry.Word("rows", {"float", "bf16", "q4k", "harsh"}, &rows));
  quantization->rows = static_cast<RowPrecision>(rows);
  TRY_STATUS(entry.Boolean("index", &quantization->index));
  TRY_STATUS(entry.Boolean("window", &quantization->window));
  TRY_STATUS(entry.Boolean("activations", &quantization->activations));
  TRY_STATUS(entry.Boolean("weights", &quantization->weights));
  return entry.RefuseUnknown();
}

Result<TrainingConfig> ParseTrainingConfig(std::string_view text, std::string_view what) {
  const Json file = TRY(ParseJson(text, what));
  KeyReader reader = TRY(KeyReader::Open(file, what, ""));
  TrainingConfig config;
  int64_t seed = 1;
  TRY_STATUS(reader.Integer("seed", 0, kTrainingSeedMax, &seed));
  config.seed = static_cast<uint64_t>(seed);
  TRY_STATUS(reader.Number("checkpoint_minutes", 0, kStageMinutesMax, &config.checkpoint_minutes));
  const Json* stages = reader.Take("stages");
  const size_t count = stages != nullptr && stages->is_array() ? stages->as_array().size() : 0;
  if (count == 0 || count > kStageCountMax) {
    return Fail(fmt::format("{}: stages must be a list of 1 to {} stages.", what, kStageCountMax));
  }
  TRY_STATUS(reader.RefuseUnknown());
  for (size_t i = 0; i < count; ++i) {
    StageConfig stage = TRY(ReadStage(stages->as_array()[i], what, fmt::format("stages[{}]", i)));
    for (const StageConfig& earlier : config.stages) {
      if (earlier.name != stage.name) continue;
      return Fail(fmt::format("{}: stages[{}].name is \"{}\", which an earlier stage has already.",
                              what, i, stage.name));
    }
    config.stages.push_back(std::move(stage));
  }
  config.digest = Digest(DumpJson(file, JsonStyle::kCompact));
  config.what = what;
  return config;
}

Result<TrainingConfig> LoadTrainingConfig(const std::string& path) {
  const std::string text = TRY(ReadFile(path, kTrainingConfigBytesMax));
  return ParseTrainingConfig(text, path);
}

Result<int64_t> FindStage(const TrainingConfig& training, std::string_view name) {
  std::string names;
  for (size_t i = 0; i < training.stages.size(); ++i) {
    if (training.stages[i].name == name) return static_cast<int64_t>(i);
    names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", training.stages[i].name);
  }
  return Fail(fmt::format("{} has no stage \"{}\"; it has {}.", training.what, name, names));
}

Status CheckStages(const TrainingConfig& training, const ModelConfig& model) {
  for (size_t i = 0; i < training.stages.size(); ++i) {
    const StageConfig& stage = training.stages[i];
    ModelConfig read_as = model;
    if (stage.index_topk > 0) read_as.index_topk = stage.index_topk;
    if (stage.candidate_topk_blocks > 0) {
      read_as.candidate_topk_blocks = stage.candidate_topk_blocks;
    }
    if (model.candidate_source_layer_id >= 0 && read_as.candidate_rows_min() < read_as.index_topk) {
      return Fail(
          fmt::format("{}: stages[{}] ({}) selects lists of {} rows in a pool of {} blocks of {} "
                      "rows, which may hold fewer; give it a smaller \"index_topk\" or a larger "
                      "\"candidate_topk_blocks\".",
                      training.what, i, stage.name, read_as.index_topk,
                      read_as.candidate_topk_blocks, read_as.candidate_block_size));
    }
    if (!(stage.drafts > 0) || model.num_nextn_predict_layers > 0) continue;
    return Fail(
        fmt::format("{}: stages[{}].drafts of stage {} is {}, but the model has no DSpark stages; "
                    "leave it out, or set num_nextn_predict_layers in config.json.",
                    training.what, i, stage.name, stage.drafts));
  }
  return {};
}

double StageProgress(const StageLength& length, const StageCounters& done) {
  if (length.steps > 0) {
    return static_cast<double>(done.steps) / static_cast<double>(length.steps);
  }
  if (length.tokens > 0) {
    return static_cast<double>(done.tokens) / static_cast<double>(length.tokens);
  }
  constexpr double kSecondsPerMinute = 60;
  return done.seconds / (length.minutes * kSecondsPerMinute);
}

double RateFactor(const StageConfig& stage, const StageCounters& done) {
  double factor = 1;
  if (done.steps < stage.warmup_steps) {
    factor = static_cast<double>(done.steps + 1) / static_cast<double>(stage.warmup_steps);
  }
  const double left = 1 - std::min(1.0, StageProgress(stage.length, done));
  if (left < stage.decay_share) {
    factor *= stage.decay_to + (1 - stage.decay_to) * left / stage.decay_share;
  }
  return factor;
}

}  // namespace minke::train

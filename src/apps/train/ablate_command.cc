// minke-train ablate: trains and evaluates rows of the laboratory's plan, and prints its tables.
#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <system_error>
#include <utility>

#include <fmt/format.h>

#include "apps/train/commands.h"
#include "apps/train/output_files.h"
#include "apps/train/progress.h"
#include "core/file.h"
#include "train/ablation_plan.h"
#include "train/ablation_report.h"
#include "train/blas_check.h"
#include "train/digest.h"
#include "train/evaluation.h"
#include "train/export.h"
#include "train/generated_rows.h"
#include "train/model_folder.h"
#include "train/trainer.h"

namespace minke::train {
namespace {

// What all rows of one call have in common.
struct Laboratory {
  AblationPlan plan;
  std::string trunk_config;             // text of the trunk's config.json
  std::unique_ptr<GeneratedRows> rows;  // opened by the first row that trains: it takes seconds
  Filler filler;
  std::string held_out;  // text for bits per byte
  std::vector<AblationResult> known;
};

struct TrainedRow {
  TrunkIdentity trunk;
  ModelFolder folder;
  std::unique_ptr<Model> model;  // of a row without stages
  std::unique_ptr<Trainer> trainer;
  int64_t trained_tokens = 0;

  const Model& weights() const { return trainer != nullptr ? trainer->model() : *model; }
};

// Whether the row begins with the weights of a trunk that is an exported model.
bool IsExported(const AblateFlags& flags, const AblationRow& row) {
  return row.trunk_state == kStateFileName && !FileExists(JoinPath(flags.trunk, row.trunk_state));
}

// A retrained trunk has the name and the config of the one before.
Result<TrunkIdentity> IdentifyTrunk(const AblateFlags& flags, const Laboratory& laboratory,
                                    const AblationRow& row) {
  if (row.trunk_state.empty()) return TrunkIdentity{laboratory.trunk_config, ""};
  const std::string name = IsExported(flags, row) ? kWeightsFile : row.trunk_state;
  const MappedFile file = TRY(MappedFile::Open(JoinPath(flags.trunk, name)));
  const std::span<const std::byte> bytes = file.bytes();
  return TrunkIdentity{
      laboratory.trunk_config,
      Digest(std::string_view(reinterpret_cast<const char*>(bytes.data()), bytes.size()))};
}

std::string FolderName(const AblationRow& row, uint64_t seed) {
  std::string name;
  for (const char c : row.name) {
    const bool plain = std::isalnum(static_cast<unsigned char>(c)) != 0;
    name += plain ? c : '-';
  }
  return fmt::format("{}-seed{}", name, seed);
}

// The row's model folder under the work folder: the trunk's files with the row's config.
Result<ModelFolder> MakeRowFolder(const AblateFlags& flags, const Laboratory& laboratory,
                                  const AblationRow& row, const std::string& dir) {
  TRY_STATUS(MakeFolder(dir));
  const std::string config =
      TRY(ChangeConfig(laboratory.trunk_config, row.config_changes, row.name));
  TRY_STATUS(WriteText(JoinPath(dir, kModelConfigFile), config));
  for (const char* name : {kTokenizerFile, kTokenizerConfigFile}) {
    const std::string text = TRY(ReadFile(JoinPath(flags.trunk, name), kTokenizerFileBytesMax));
    TRY_STATUS(WriteText(JoinPath(dir, name), text));
  }
  return OpenModelFolder(JoinPath(dir, kModelConfigFile), dir);
}

Status Begin(const AblateFlags& flags, const AblationRow& row, const std::string& dir,
             Trainer* trainer) {
  if (FileExists(trainer->StatePath())) {
    const std::string way_out = fmt::format("Remove {} to train the row anew.", dir);
    TRY_STATUS(trainer->Resume(trainer->StatePath(), false, way_out));
    NoteDamagedLog(*trainer, dir);
    return {};
  }
  if (row.trunk_state.empty()) return {};
  const std::string state = JoinPath(flags.trunk, row.trunk_state);
  if (row.config_changes.empty()) return trainer->Branch(state);
  int64_t taken = 0;
  TRY_STATUS(trainer->BranchMatching(state, &taken));
  PrintNote(fmt::format("{} of {} parameters are those of {}.", taken,
                        trainer->model().parameters().size(), state));
  return {};
}

// The weights of a row without stages: a state of the trunk, or the trunk itself, if it is an
// exported model. Of that one no number of tokens is known.
Status TakeWeights(const AblateFlags& flags, const AblationRow& row, TrainedRow* trained) {
  if (IsExported(flags, row)) {
    trained->model = TRY(OpenWeights(trained->folder, flags.trunk, ""));
    return {};
  }
  StateFile state;
  trained->model = TRY(OpenState(trained->folder, JoinPath(flags.trunk, row.trunk_state), &state));
  trained->trained_tokens = state.position.tokens;
  return {};
}

Result<TrainedRow> TrainRow(const AblateFlags& flags, Laboratory& laboratory,
                            const AblationRow& row, uint64_t seed) {
  const std::string dir = JoinPath(flags.work, FolderName(row, seed));
  TrainedRow trained{TRY(IdentifyTrunk(flags, laboratory, row)),
                     TRY(MakeRowFolder(flags, laboratory, row, dir)), nullptr, nullptr, 0};
  ModelFolder& folder = trained.folder;
  if (row.training.stages.empty()) {
    TRY_STATUS(TakeWeights(flags, row, &trained));
    return trained;
  }
  if (laboratory.rows == nullptr) {
    Tokenizer tokenizer =
        TRY(Tokenizer::Parse(folder.tokenizer_text, JoinPath(dir, kTokenizerFile)));
    laboratory.rows = TRY(GeneratedRows::Open(flags.corpus, std::move(tokenizer)));
  }
  TrainingConfig training = row.training;
  if (flags.steps > 0) {
    for (StageConfig& stage : training.stages) stage.length = StageLength{flags.steps, 0, 0};
  }
  RunIdentity identity{training.digest,
                       Digest(folder.config_text),
                       Digest(folder.tokenizer_text),
                       laboratory.rows->digest(),
                       seed,
                       flags.replicas};
  std::unique_ptr<Model> model = TRY(Model::Create(folder.config, folder.engram_token_map, seed));
  trained.trainer = std::make_unique<Trainer>(training, std::move(identity), std::move(model),
                                              *laboratory.rows, dir);
  TRY_STATUS(Begin(flags, row, dir, trained.trainer.get()));
  Progress progress;
  RunCallbacks callbacks;
  callbacks.on_step = [&progress](const StepReport& report) { progress.Show(report); };
  callbacks.should_stop = [] { return false; };
  TRY(trained.trainer->Run(callbacks));
  progress.Finish();
  trained.trained_tokens = trained.trainer->position().tokens;
  return trained;
}

Result<AblationResult> EvaluateRow(const Laboratory& laboratory, const AblationRow& row,
                                   uint64_t seed, const AblationVariant& variant,
                                   const TrainedRow& trained) {
  const AblationPlan& plan = laboratory.plan;
  const Quantization& quantization = variant.options.quantization;
  AblationResult result;
  result.table = row.table;
  result.row = row.name;
  result.variant = variant.name;
  result.seed = seed;
  result.trained_tokens = trained.trained_tokens;
  const int64_t longest = *std::max_element(row.lengths.begin(), row.lengths.end());
  for (const int64_t length : row.lengths) {
    const std::vector<RecallProbe> probes =
        TRY(MakeProbes({length, plan.cases, plan.seed, WordSplit::kTraining}, laboratory.filler,
                       trained.folder.tokenizer));
    const RecallScore score = ScoreRecall(trained.weights(), trained.folder.tokenizer, probes,
                                          variant.options, variant.replay_tokens);
    if (length == longest) {
      for (const IndexQuality& quality :
           MeasureIndexes(trained.weights(), probes, variant.options)) {
        result.indexes.push_back({quality.layer, quality.top1_recall, quality.mass_recall,
                                  quality.pool_recall, quality.pool_topk_recall});
      }
    }
    result.recall.push_back({length, score.cases, score.digits, score.answers});
  }
  result.bits_per_byte = ScoreText(trained.weights(), trained.folder.tokenizer, laboratory.held_out,
                                   plan.window, plan.text_tokens, variant.options)
                             .bits_per_byte();
  const ModelConfig& config = trained.folder.config;
  result.cache_bytes_per_token = CacheBytesPerToken(config, quantization.rows, quantization.index);
  result.indexed_keys_per_query = IndexedKeysPerQuery(config, longest, variant.options.pool);
  return result;
}

const AblationResult* FindKnown(const Laboratory& laboratory, const AblationRow& row, uint64_t seed,
                                const AblationVariant& variant) {
  const auto& known = laboratory.known;
  const auto found = std::find_if(known.begin(), known.end(), [&](const AblationResult& result) {
    return result.row == row.name && result.seed == seed && result.variant == variant.name;
  });
  return found == known.end() ? nullptr : &*found;
}

bool IsAsked(const AblateFlags& flags, const AblationRow& row, uint64_t seed) {
  return (flags.row.empty() || row.name == flags.row) && (!flags.seed || *flags.seed == seed);
}

// Results that are there already are what is asked for now. Before anything is trained, which takes
// hours.
Status CheckKnown(const AblateFlags& flags, const Laboratory& laboratory) {
  for (const AblationRow& row : laboratory.plan.rows) {
    std::optional<TrunkIdentity> trunk;
    for (const uint64_t seed : row.seeds) {
      if (!IsAsked(flags, row, seed)) continue;
      for (const AblationVariant& variant : row.variants) {
        const AblationResult* known = FindKnown(laboratory, row, seed, variant);
        if (known == nullptr) continue;
        if (!trunk) trunk = TRY(IdentifyTrunk(flags, laboratory, row));
        const AblationRequest asked{row.lengths, laboratory.plan.cases, flags.steps,
                                    SetupDigest(laboratory.plan, row, variant, *trunk)};
        TRY_STATUS(CheckRequest(*known, asked, flags.results));
        PrintNote(
            fmt::format("{}: {}, read as {}, seed {}: its result is in line {} of {} already.",
                        row.table, row.name, variant.name, seed, known->line, flags.results));
      }
    }
  }
  return {};
}

Status RunRow(const AblateFlags& flags, Laboratory& laboratory, const AblationRow& row) {
  for (const uint64_t seed : row.seeds) {
    if (!IsAsked(flags, row, seed)) continue;
    std::optional<TrainedRow> trained;
    for (const AblationVariant& variant : row.variants) {
      if (FindKnown(laboratory, row, seed, variant) != nullptr) continue;
      if (!trained) {
        PrintNote(fmt::format("{}: {}, seed {}", row.table, row.name, seed));
        trained = TRY(TrainRow(flags, laboratory, row, seed));
      }
      AblationResult result = TRY(EvaluateRow(laboratory, row, seed, variant, *trained));
      result.steps = flags.steps;
      result.setup = SetupDigest(laboratory.plan, row, variant, trained->trunk);
      const std::string line = ResultLine(result);
      std::cout << line << std::flush;
      if (flags.results.empty()) continue;
      // Several processes may append: a line is one write.
      std::ofstream out(flags.results, std::ios::app);
      out << line << std::flush;
      if (!out) return Fail(ErrorCode::kIo, fmt::format("Cannot append to {}.", flags.results));
    }
  }
  return {};
}

Result<std::vector<AblationResult>> KnownResults(const std::string& path) {
  if (path.empty() || !FileExists(path)) return std::vector<AblationResult>();
  return ParseResults(TRY(ReadFile(path, kResultsBytesMax)), path);
}

Result<Laboratory> OpenLaboratory(const AblateFlags& flags, AblationPlan plan) {
  std::string trunk_config =
      TRY(ReadFile(JoinPath(flags.trunk, kModelConfigFile), kConfigBytesMax));
  const std::string held_out_path = JoinPath(flags.corpus, "heldout.txt");
  std::string held_out = TRY(ReadFile(held_out_path, kTextFileBytesMax));
  Filler filler = TRY(Filler::Create(held_out, held_out_path));
  return Laboratory{std::move(plan),   std::move(trunk_config), nullptr,
                    std::move(filler), std::move(held_out),     TRY(KnownResults(flags.results))};
}

Status Ablate(const AblateFlags& flags) {
  if (flags.tables) {
    const std::vector<AblationResult> results = TRY(KnownResults(flags.results));
    if (results.empty()) {
      return Fail(fmt::format("{} has no result to print; --plan with --results makes some.",
                              flags.results));
    }
    std::cout << MarkdownTables(results);
    return {};
  }
  UseOneThreadPerCaller();
  const std::string plan_text = TRY(ReadFile(flags.plan, kAblationPlanBytesMax));
  AblationPlan plan = TRY(ParseAblationPlan(plan_text, flags.plan));
  if (flags.cases > 0) plan.cases = flags.cases;
  for (AblationRow& row : plan.rows) {
    if (!flags.lengths.empty()) row.lengths = flags.lengths;
  }
  const bool found =
      flags.row.empty() || std::any_of(plan.rows.begin(), plan.rows.end(),
                                       [&flags](const auto& row) { return row.name == flags.row; });
  if (!found) {
    std::string names;
    for (const AblationRow& row : plan.rows) {
      names += fmt::format("{}\"{}\"", names.empty() ? "" : ", ", row.name);
    }
    return Fail(fmt::format("{} has no row \"{}\"; it has {}.", flags.plan, flags.row, names));
  }
  Laboratory laboratory = TRY(OpenLaboratory(flags, std::move(plan)));
  TRY_STATUS(CheckKnown(flags, laboratory));
  for (const AblationRow& row : laboratory.plan.rows) TRY_STATUS(RunRow(flags, laboratory, row));
  return {};
}

}  // namespace

int RunAblate(const AblateFlags& flags) {
  const Status status = Ablate(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke::train

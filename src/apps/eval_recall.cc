// minke eval recall: planted facts, asked for through the engine, greedily.
#include <algorithm>
#include <chrono>
#include <filesystem>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "apps/common.h"
#include "apps/eval_command.h"
#include "apps/eval_report.h"
#include "apps/progress_bar.h"
#include "core/file.h"
#include "recall/recall_case.h"
#include "recall/scoring.h"

namespace minke {
namespace {

constexpr std::string_view kFillerFile = "eval_text.txt";
constexpr int64_t kAnswerTokensSpare = 16;  // beyond twice the right answer's

// One kind of cases. The first is what --require is about.
struct CaseKind {
  const char* key;      // in JSON
  const char* heading;  // of the table
  const char* legend;   // of the plot
  int64_t share_of_cases = 1;
};
constexpr CaseKind kKinds[] = {
    {"results", "Numbers of keys as in training", "known nouns"},
    {"unseen_keys", "Keys of nouns that no training row has", "unseen nouns", 4},
    {"unseen_phrasing", "Ways of saying and asking that no training row has", "unseen phrasing", 4},
    {"word_values", "Words instead of numbers", "words", 4},
};
constexpr size_t kKindCount = std::size(kKinds);

FactOptions FactsOf(size_t kind, int64_t length, const EvalRecallFlags& flags) {
  FactOptions options = EvaluationFacts(length);
  options.questions = std::min(flags.questions, options.facts);
  options.follow_ups = false;
  if (kKinds[kind].key == std::string_view("unseen_keys")) options.keys = WordSplit::kHeldOut;
  if (kKinds[kind].key == std::string_view("unseen_phrasing")) {
    options.phrasing = WordSplit::kHeldOut;
  }
  if (kKinds[kind].key == std::string_view("word_values")) options.word_value_share = 1;
  return options;
}

class RecallEvaluation {
 public:
  RecallEvaluation(const EvalRecallFlags& flags, const Engine& engine, const Tokenizer& tokenizer,
                   const Filler& filler)
      : flags_(flags), engine_(engine), tokenizer_(tokenizer), filler_(filler) {}

  Status Run() {
    const auto start = std::chrono::steady_clock::now();
    for (const int64_t length : flags_.lengths) {
      for (size_t kind = 0; kind < kKindCount; ++kind) total_tokens_ += length * CasesOf(kind);
    }
    for (const int64_t length : flags_.lengths) {
      for (size_t kind = 0; kind < kKindCount; ++kind) TRY_STATUS(RunLength(length, kind));
    }
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    return {};
  }

  const RecallTable& table(size_t kind) const { return tables_[kind]; }
  double seconds() const { return seconds_; }

 private:
  int64_t CasesOf(size_t kind) const {
    return std::max<int64_t>(1, flags_.cases / kKinds[kind].share_of_cases);
  }

  Status RunLength(int64_t length, size_t kind) {
    const int64_t cases = CasesOf(kind);
    for (int64_t done = 0, document = 0; done < cases; ++document) {
      CaseOptions options;
      options.tokens = length;
      options.facts = FactsOf(kind, length, flags_);
      options.facts.questions = std::min(options.facts.questions, cases - done);
      options.separate_questions = true;
      if (flags_.thinking == "on") options.thinking_mode = ThinkingMode::kThinking;
      Random random({kEvaluationDomain, flags_.seed, static_cast<uint64_t>(length),
                     static_cast<uint64_t>(kind), static_cast<uint64_t>(document)});
      const RecallCase recall = TRY(MakeRecallCase(options, filler_, tokenizer_, random));
      for (size_t i = 0; i < recall.facts.questions.size(); ++i) {
        TRY_STATUS(Ask(recall, options, i, length, kind));
        bar_.Show(fmt::format("{} tokens, {}", length, kKinds[kind].legend), done_tokens_,
                  total_tokens_);
        ++done;
      }
    }
    return {};
  }

  Status Ask(const RecallCase& recall, const CaseOptions& options, size_t index, int64_t length,
             size_t kind) {
    const Question& question = recall.facts.questions[index];
    const ChatRequest request = AskedAbout(recall, options, index);
    const Prompt prompt = TRY(EncodeChat(request));
    const std::vector<int32_t> ids = TRY(PromptIds(prompt, tokenizer_));
    GenerationOptions generation;
    generation.max_tokens =
        2 * static_cast<int64_t>(tokenizer_.EncodePlain(question.answer).size()) +
        kAnswerTokensSpare;
    const std::unique_ptr<Session> session = engine_.NewSession();
    const GenerationResult result = TRY(engine_.Generate(*session, ids, generation));
    const int64_t distance = static_cast<int64_t>(ids.size()) - 1 - recall.value_positions[index];
    tables_[kind].Add(length, distance, ScoreAnswer(recall.facts, question, result.answer));
    done_tokens_ += length;
    return {};
  }

  const EvalRecallFlags& flags_;
  const Engine& engine_;
  const Tokenizer& tokenizer_;
  const Filler& filler_;
  ProgressBar bar_;
  RecallTable tables_[kKindCount];
  int64_t total_tokens_ = 0;  // for the bar
  int64_t done_tokens_ = 0;
  double seconds_ = 0;
};

// The text between the facts, and how to name it.
struct NamedFiller {
  Filler filler;
  std::string name;
};
Result<NamedFiller> ReadFiller(const EvalRecallFlags& flags, const std::string& model_dir) {
  const std::string beside = JoinPath(model_dir, std::string(kFillerFile));
  if (flags.filler.empty() && !FileExists(beside)) {
    return NamedFiller{Filler::Neutral(flags.seed), "made-up sentences"};
  }
  const std::string path = flags.filler.empty() ? beside : flags.filler;
  std::string text = TRY(ReadInput(path, kTextFileBytesMax));
  return NamedFiller{TRY(Filler::Create(std::move(text), path)), path};
}

Json ReportJson(const EvalRecallFlags& flags, const Engine& engine, const std::string& filler,
                const RecallEvaluation& evaluation) {
  Json json;
  json.Set("model", engine.info().model_dir);
  json.Set("random_weights", engine.info().random_weights);
  json.Set("seed", flags.seed);
  json.Set("numerics", flags.model.numerics);
  json.Set("kernels", engine.info().kernels);
  json.Set("prefill", flags.prefill);
  json.Set("thinking", flags.thinking == "on");
  json.Set("filler", filler);
  json.Set("questions_per_document", flags.questions);
  for (size_t kind = 0; kind < kKindCount; ++kind) {
    json.Set(kKinds[kind].key, evaluation.table(kind).ToJson());
  }
  json.Set("seconds", evaluation.seconds());
  return json;
}

std::string ReportText(const std::string& filler, const RecallEvaluation& evaluation) {
  std::string text;
  for (size_t kind = 0; kind < kKindCount; ++kind) {
    text += evaluation.table(kind).ToText(kKinds[kind].heading) + "\n";
  }
  return text +
         fmt::format("Text between the facts: {}. {:.0f} s.\n", filler, evaluation.seconds());
}

Status WritePlot(const EvalRecallFlags& flags, const Engine& engine,
                 const RecallEvaluation& evaluation) {
  if (flags.plot.empty()) return {};
  std::vector<std::pair<std::string, const RecallTable*>> tables;
  for (size_t kind = 0; kind < kKindCount; ++kind) {
    tables.emplace_back(kKinds[kind].legend, &evaluation.table(kind));
  }
  const std::filesystem::path dir(engine.info().model_dir);
  const std::string name = (dir.has_filename() ? dir : dir.parent_path()).filename().string();
  const std::string svg = RecallPlot(name, tables);
  return WriteFile(flags.plot, std::as_bytes(std::span(svg)));
}

// The first length below what is required of it, as a sentence.
std::optional<std::string> Shortfall(const std::vector<std::pair<int64_t, double>>& requirements,
                                     const RecallTable& table) {
  for (const auto& [length, share] : requirements) {
    const RecallCount& count = table.OfLength(length);
    if (count.digits_share() >= share) continue;
    return fmt::format(
        "At {} tokens {:.1f} % of {} answers have the exact digits, but --require "
        "asks for {:.1f} %.",
        length, 100 * count.digits_share(), count.cases, 100 * share);
  }
  return std::nullopt;
}

Status EvalRecall(const EvalRecallFlags& flags,
                  const std::vector<std::pair<int64_t, double>>& requirements) {
  const std::filesystem::path plot_dir = std::filesystem::path(flags.plot).parent_path();
  if (std::error_code error; !plot_dir.empty() && !std::filesystem::is_directory(plot_dir, error)) {
    // Said now, not after an hour of work.
    return Fail(ErrorCode::kNotFound, fmt::format("--plot names {}, but there is no folder {}.",
                                                  flags.plot, plot_dir.string()));
  }
  if (std::error_code error; std::filesystem::is_directory(flags.plot, error)) {
    return Fail(fmt::format("--plot names {}, which is a folder; name a file in it.", flags.plot));
  }
  for (size_t i = 0; i < flags.lengths.size(); ++i) {
    const auto first = std::find(flags.lengths.begin(), flags.lengths.end(), flags.lengths[i]);
    if (first == flags.lengths.begin() + static_cast<std::ptrdiff_t>(i)) continue;
    return Fail(
        fmt::format("--lengths names {} twice; its cases would count twice.", flags.lengths[i]));
  }
  CacheFlags cache;
  cache.prefill = flags.prefill;
  const std::unique_ptr<Engine> engine = TRY(OpenEngine(flags.model, cache));
  const std::string& model_dir = engine->info().model_dir;
  const Tokenizer tokenizer = TRY(Tokenizer::Load(JoinPath(model_dir, "tokenizer.json")));
  const NamedFiller filler = TRY(ReadFiller(flags, model_dir));
  RecallEvaluation evaluation(flags, *engine, tokenizer, filler.filler);
  TRY_STATUS(evaluation.Run());
  if (flags.json) {
    std::cout << DumpJson(ReportJson(flags, *engine, filler.name, evaluation), JsonStyle::kPretty)
              << '\n';
  } else {
    std::cout << ReportText(filler.name, evaluation);
  }
  TRY_STATUS(WritePlot(flags, *engine, evaluation));
  const std::optional<std::string> shortfall = Shortfall(requirements, evaluation.table(0));
  if (shortfall.has_value()) return Fail(*shortfall);
  return {};
}

}  // namespace

int RunEvalRecall(const EvalRecallFlags& flags) {
  const auto requirements = ParseRequirements(flags.require, flags.lengths);
  if (!requirements) {
    PrintError(requirements.error());
    return kExitUsage;
  }
  const Status status = EvalRecall(flags, *requirements);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

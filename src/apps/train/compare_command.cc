// minke-train compare: the trainer's greedy answers against the engine's, on the same prompts.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <limits>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "apps/train/commands.h"
#include "core/file.h"
#include "core/json.h"
#include "engine/engine.h"
#include "train/agreement.h"
#include "train/blas_check.h"
#include "train/evaluation.h"
#include "train/model_folder.h"
#include "train/recall_probe.h"

namespace minke::train {
namespace {

// Prompts of one length.
struct LengthReport {
  int64_t length = 0;
  int64_t cases = 0;
  int64_t same = 0;
  int64_t close_calls = 0;
  int64_t different = 0;
  int64_t tokens = 0;       // compared and equal
  double lead_change = 0;   // sum over them of |engine's lead - trainer's|
  int64_t replay_same = 0;  // the engine's answer after a replay prefill is its exact one
};

struct Difference {
  int64_t length = 0;
  int64_t index = 0;  // of the case
  int64_t token = 0;  // the first one that differs
  float lead = 0;     // the trainer's there
  float engine_lead = 0;
  std::string trainer;
  std::string engine;
};

struct Comparison {
  std::vector<LengthReport> lengths;
  std::vector<Difference> differences;

  int64_t different() const { return static_cast<int64_t>(differences.size()); }
};

Result<std::unique_ptr<Engine>> OpenEngine(const CompareFlags& flags, PrefillMode prefill) {
  EngineOptions options;
  options.model_dir = flags.model;
  options.threads = 1;
  options.numerics = TRY(ParseNumericMode(flags.numerics));
  options.prefill = prefill;
  return Engine::Open(options);
}

float LeadOf(std::span<const float> logits) {
  float best = -std::numeric_limits<float>::infinity();
  float next = best;
  for (const float logit : logits) {
    next = std::max(next, std::min(best, logit));
    best = std::max(best, logit);
  }
  return best - next;
}

Result<GreedyAnswer> AskEngine(const Engine& engine, const RecallProbe& probe) {
  GreedyAnswer answer;
  GenerationOptions options;
  options.max_tokens = kAnswerTokensMax;
  options.on_token = [&answer](const TokenEvent& event) {
    if (event.id != kNoToken) answer.leads.push_back(LeadOf(event.logits));
  };
  const std::unique_ptr<Session> session = engine.NewSession();
  answer.ids = TRY(engine.Generate(*session, probe.prompt, options)).ids;
  return answer;
}

// What the model is asked through, on both sides.
struct Sides {
  const ModelFolder& folder;
  const Model& model;
  const ForwardOptions& options;
  const Engine& exact;
  const Engine& replay;
};

float LeadAt(const GreedyAnswer& answer, int64_t token) {
  const auto at = static_cast<size_t>(token);
  return at < answer.leads.size() ? answer.leads[at] : 0.0F;
}

Status CompareCase(const Sides& sides, const RecallProbe& probe, LengthReport* report,
                   std::vector<Difference>* differences) {
  const GreedyAnswer trainer =
      DecodeGreedily(sides.model, probe.prompt, probe.answer, sides.options, kNoReplay);
  const GreedyAnswer engine = TRY(AskEngine(sides.exact, probe));
  const Agreement agreement = CompareAnswers(trainer.ids, trainer.leads, engine.ids);
  report->same += agreement.end == AgreementEnd::kSame ? 1 : 0;
  report->close_calls += agreement.end == AgreementEnd::kCloseCall ? 1 : 0;
  report->different += agreement.end == AgreementEnd::kDifferent ? 1 : 0;
  report->tokens += agreement.tokens;
  for (int64_t token = 0; token < agreement.tokens; ++token) {
    report->lead_change += std::abs(LeadAt(engine, token) - LeadAt(trainer, token));
  }
  if (agreement.end == AgreementEnd::kDifferent) {
    const Tokenizer& tokenizer = sides.folder.tokenizer;
    differences->push_back({report->length, report->cases, agreement.tokens,
                            LeadAt(trainer, agreement.tokens), LeadAt(engine, agreement.tokens),
                            tokenizer.DecodeBytes(trainer.ids), tokenizer.DecodeBytes(engine.ids)});
  }
  report->replay_same += TRY(AskEngine(sides.replay, probe)).ids == engine.ids ? 1 : 0;
  ++report->cases;
  return {};
}

// The roundings of the engine's numerics that the trainer has.
Quantization RoundingsOf(const CompareFlags& flags) {
  Quantization quantization = Quantization::All();
  quantization.activations = flags.numerics == "official";
  return quantization;
}

Result<Comparison> Compare(const CompareFlags& flags) {
  UseOneThreadPerCaller();
  const ModelFolder folder =
      TRY(OpenModelFolder(JoinPath(flags.model, kModelConfigFile), flags.model));
  const std::unique_ptr<Model> model = TRY(OpenWeights(folder, flags.model, ""));
  const std::unique_ptr<Engine> exact = TRY(OpenEngine(flags, PrefillMode::kExact));
  const std::unique_ptr<Engine> replay = TRY(OpenEngine(flags, PrefillMode::kReplay));
  const Filler filler = TRY(OpenProbeFiller(flags.filler, flags.seed));
  ForwardOptions options;
  options.sparse = true;
  options.pool = true;
  options.quantization = RoundingsOf(flags);
  const Sides sides{folder, *model, options, *exact, *replay};
  Comparison comparison;
  for (const int64_t length : flags.lengths) {
    LengthReport report;
    report.length = length;
    for (const RecallProbe& probe : TRY(MakeProbes(
             {length, flags.cases, flags.seed, WordSplit::kTraining}, filler, folder.tokenizer))) {
      TRY_STATUS(CompareCase(sides, probe, &report, &comparison.differences));
    }
    comparison.lengths.push_back(report);
  }
  return comparison;
}

double MeanLeadChange(const LengthReport& report) {
  return report.tokens == 0 ? 0 : report.lead_change / static_cast<double>(report.tokens);
}

void PrintJson(const CompareFlags& flags, const Comparison& comparison) {
  JsonArray results;
  for (const LengthReport& report : comparison.lengths) {
    results.emplace_back(JsonObject{{"length", report.length},
                                    {"cases", report.cases},
                                    {"same", report.same},
                                    {"close_calls", report.close_calls},
                                    {"different", report.different},
                                    {"tokens", report.tokens},
                                    {"lead_change", MeanLeadChange(report)},
                                    {"replay_same", report.replay_same}});
  }
  JsonArray differences;
  for (const Difference& one : comparison.differences) {
    differences.emplace_back(JsonObject{{"length", one.length},
                                        {"case", one.index},
                                        {"token", one.token},
                                        {"lead", static_cast<double>(one.lead)},
                                        {"engine_lead", static_cast<double>(one.engine_lead)},
                                        {"trainer", one.trainer},
                                        {"engine", one.engine}});
  }
  const Json json(JsonObject{{"model", flags.model},
                             {"numerics", flags.numerics},
                             {"seed", flags.seed},
                             {"lead_min", static_cast<double>(kLeadMin)},
                             {"results", std::move(results)},
                             {"differences", std::move(differences)}});
  std::cout << DumpJson(json, JsonStyle::kPretty) << '\n';
}

void PrintTable(const Comparison& comparison) {
  std::cout << fmt::format("{:>7}  {:>6}  {:>6}  {:>11}  {:>10}  {:>13}  {:>11}  {:>11}\n",
                           "length", "cases", "same", "close calls", "different", "tokens equal",
                           "lead change", "replay same");
  for (const LengthReport& report : comparison.lengths) {
    std::cout << fmt::format("{:>7}  {:>6}  {:>6}  {:>11}  {:>10}  {:>13}  {:>11.3f}  {:>11}\n",
                             report.length, report.cases, report.same, report.close_calls,
                             report.different, report.tokens, MeanLeadChange(report),
                             report.replay_same);
  }
  for (const Difference& one : comparison.differences) {
    std::cout << fmt::format(
        "{} tokens, case {}, token {} of the answer:\n"
        "  trainer  {}  (lead {:.3f})\n  engine   {}  (lead {:.3f})\n",
        one.length, one.index, one.token, one.trainer, one.lead, one.engine, one.engine_lead);
  }
}

Status CompareAndPrint(const CompareFlags& flags) {
  const Comparison comparison = TRY(Compare(flags));
  if (flags.json) {
    PrintJson(flags, comparison);
  } else {
    PrintTable(comparison);
  }
  if (comparison.different() == 0) return {};
  return Fail(
      fmt::format("{} answers of the engine differ from the trainer's where it had a lead "
                  "of at least {}.",
                  comparison.different(), kLeadMin));
}

}  // namespace

int RunCompare(const CompareFlags& flags) {
  const Status status = CompareAndPrint(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke::train

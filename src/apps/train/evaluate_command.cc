// minke-train evaluate and minke-train greedy: a model in training on recall cases and text.
#include <iostream>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "apps/train/commands.h"
#include "core/file.h"
#include "core/json.h"
#include "train/blas_check.h"
#include "train/evaluation.h"
#include "train/model_folder.h"
#include "train/recall_probe.h"

namespace minke::train {
namespace {

struct Opened {
  ModelFolder folder;
  std::unique_ptr<Model> model;
  ForwardOptions options;
  int64_t replay_tokens = kNoReplay;
};

Result<Opened> Open(const WeightsFlags& flags) {
  UseOneThreadPerCaller();
  ModelFolder folder = TRY(OpenModelFolder(JoinPath(flags.model, kModelConfigFile), flags.model));
  std::unique_ptr<Model> model = TRY(OpenWeights(folder, flags.model, flags.state));
  ForwardOptions options;
  options.sparse = flags.attention != "dense";
  options.pool = flags.attention == "sparse+pool";
  options.quantization = flags.quantization == "all" ? Quantization::All() : Quantization::None();
  options.mask_compressed = flags.mask;
  options.engram = !flags.no_engram;
  const int64_t replay_tokens = flags.replay ? folder.config.sliding_window : kNoReplay;
  return Opened{std::move(folder), std::move(model), std::move(options), replay_tokens};
}

Result<Json> EvaluateRecall(const EvaluateFlags& flags, const Opened& opened) {
  const Filler filler = TRY(OpenProbeFiller(flags.filler, flags.seed));
  JsonArray results;
  for (const int64_t length : flags.lengths) {
    ProbeOptions wanted;
    wanted.tokens = length;
    wanted.cases = flags.cases;
    wanted.seed = flags.seed;
    wanted.keys = flags.held_out_keys ? WordSplit::kHeldOut : WordSplit::kTraining;
    const std::vector<RecallProbe> probes =
        TRY(MakeProbes(wanted, filler, opened.folder.tokenizer));
    const RecallScore score = ScoreRecall(*opened.model, opened.folder.tokenizer, probes,
                                          opened.options, opened.replay_tokens);
    const auto cases = static_cast<double>(score.cases);
    results.emplace_back(JsonObject{{"length", length},
                                    {"cases", score.cases},
                                    {"digits_exact", static_cast<double>(score.digits) / cases},
                                    {"answer_exact", static_cast<double>(score.answers) / cases}});
  }
  return Json(std::move(results));
}

Status Evaluate(const EvaluateFlags& flags) {
  const Opened opened = TRY(Open(flags.weights));
  Json report{JsonObject{}};
  report.Set("model", flags.weights.model);
  report.Set("attention", flags.weights.attention);
  report.Set("quantization", flags.weights.quantization);
  report.Set("mask_compressed", flags.weights.mask);
  report.Set("engram", !flags.weights.no_engram);
  report.Set("replay", flags.weights.replay);
  report.Set("results", TRY(EvaluateRecall(flags, opened)));
  if (!flags.text.empty()) {
    const std::string text = TRY(ReadFile(flags.text, kTextFileBytesMax));
    const TextScore score = ScoreText(*opened.model, opened.folder.tokenizer, text, flags.window,
                                      flags.text_tokens, opened.options);
    report.Set("text", JsonObject{{"tokens", score.tokens},
                                  {"bytes", score.bytes},
                                  {"nats_per_token", score.nats_per_token()},
                                  {"bits_per_byte", score.bits_per_byte()}});
  }
  std::cout << DumpJson(report, JsonStyle::kPretty) << '\n';
  return {};
}

template <typename Number>
JsonArray List(const std::vector<Number>& numbers) {
  JsonArray list;
  for (const Number number : numbers) {
    if constexpr (std::is_floating_point_v<Number>) {
      list.emplace_back(static_cast<double>(number));
    } else {
      list.emplace_back(static_cast<int64_t>(number));
    }
  }
  return list;
}

Status Greedy(const GreedyFlags& flags) {
  const Opened opened = TRY(Open(flags.weights));
  const Filler filler = TRY(OpenProbeFiller(flags.filler, flags.seed));
  ProbeOptions wanted;
  wanted.tokens = flags.length;
  wanted.cases = flags.cases;
  wanted.seed = flags.seed;
  for (const RecallProbe& probe : TRY(MakeProbes(wanted, filler, opened.folder.tokenizer))) {
    const GreedyAnswer answer = DecodeGreedily(*opened.model, probe.prompt, probe.answer,
                                               opened.options, opened.replay_tokens);
    const Json line(JsonObject{{"prompt", List(probe.prompt)},
                               {"expected", List(probe.answer)},
                               {"answer", List(answer.ids)},
                               {"leads", List(answer.leads)},
                               {"text", opened.folder.tokenizer.DecodeBytes(answer.ids)}});
    std::cout << DumpJson(line, JsonStyle::kCompact) << std::endl;
  }
  return {};
}

}  // namespace

int RunEvaluate(const EvaluateFlags& flags) {
  const Status status = Evaluate(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

int RunGreedy(const GreedyFlags& flags) {
  const Status status = Greedy(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke::train

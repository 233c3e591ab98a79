// minke eval perplexity: the mean negative log-likelihood of a given text.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <memory>
#include <numbers>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "apps/common.h"
#include "apps/eval_command.h"
#include "apps/progress_bar.h"
#include "apps/token_pass.h"
#include "core/thread_pool.h"
#include "engine/model_loader.h"
#include "recall/filler.h"
#include "simulator/capacity.h"
#include "text/control_tokens.h"
#include "text/utf8.h"

namespace minke {
namespace {

struct TextScore {
  double nats = 0;
  int64_t tokens = 0;
  int64_t bytes = 0;
  int64_t windows = 0;
  int64_t documents = 0;

  double nats_per_token() const { return nats / static_cast<double>(tokens); }
  double bits_per_byte() const { return nats / std::numbers::ln2 / static_cast<double>(bytes); }
};

// Of bytes that are no text the figures would say nothing, since every one is encoded somehow.
Status CheckText(const EvalPerplexityFlags& flags, std::string_view text) {
  const size_t valid = ValidUtf8Prefix(text);
  if (valid == text.size()) return {};
  return Fail(fmt::format(
      "{} is no UTF-8 text: the bytes at offset {} (0x{:02x} first) are no "
      "character; name a file of plain text, or convert this one.",
      flags.file == "-" ? "Standard input" : flags.file, valid, static_cast<uint8_t>(text[valid])));
}

// -log softmax(logits)[id], in double.
double NegativeLogLikelihood(std::span<const float> logits, int32_t id) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (const float logit : logits) sum += std::exp(static_cast<double>(logit) - largest);
  return largest + std::log(sum) - static_cast<double>(logits[static_cast<size_t>(id)]);
}

// The documents of a text without blank ends; a line with a form feed alone stands between two.
std::vector<std::string_view> DocumentsOf(std::string_view text) {
  std::vector<std::string_view> documents;
  const auto add = [&documents](std::string_view document) {
    const size_t begin = document.find_first_not_of(" \n\t\r");
    if (begin == std::string_view::npos) return;
    documents.push_back(document.substr(begin, document.find_last_not_of(" \n\t\r") + 1 - begin));
  };
  const std::string border = "\n" + std::string(kDocumentBorder) + "\n";
  size_t begin = 0;
  for (size_t at = text.find(border); at != std::string_view::npos; at = text.find(border, begin)) {
    add(text.substr(begin, at - begin));
    begin = at + border.size();
  }
  add(text.substr(begin));
  return documents;
}

// bos and `window` tokens at a time; the last token of each is only foreseen, never read.
Status ScoreDocument(const EvalPerplexityFlags& flags, std::span<const int32_t> ids, int32_t bos,
                     TokenPass& pass, TextScore* score) {
  for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(flags.window)) {
    const std::span<const int32_t> targets =
        ids.subspan(begin, std::min(ids.size() - begin, static_cast<size_t>(flags.window)));
    std::vector<int32_t> read = {bos};
    read.insert(read.end(), targets.begin(), targets.end() - 1);
    const auto total = static_cast<int64_t>(read.size());
    TRY_STATUS(pass.Run(
        read, [&](int64_t done) { return std::min(kPrefillChunkTokensDefault, total - done); },
        [&](int64_t done, View<const float> logits) {
          for (int64_t row = 0; row < logits.rows; ++row) {
            score->nats +=
                NegativeLogLikelihood({logits.Row(row), static_cast<size_t>(logits.cols)},
                                      targets[static_cast<size_t>(done + row)]);
          }
        }));
    score->tokens += static_cast<int64_t>(targets.size());
    ++score->windows;
  }
  ++score->documents;
  return {};
}

Result<TextScore> ScoreText(const EvalPerplexityFlags& flags, const LoadedModel& loaded,
                            ThreadPool& pool, const std::string& text) {
  const std::optional<int32_t> bos = loaded.tokenizer.ControlToken(kBosToken);
  if (!bos.has_value()) {
    return Fail(fmt::format("The tokenizer has no control token {}, which begins every window.",
                            kBosToken));
  }
  if (flags.window > loaded.model->config().max_position_embeddings) {
    return Fail(ErrorCode::kLimit,
                fmt::format("--window is {}, but the context of this model holds {} tokens.",
                            flags.window, loaded.model->config().max_position_embeddings));
  }
  TextScore score;
  TokenPass pass(*loaded.model, pool);
  ProgressBar bar;
  for (const std::string_view document : DocumentsOf(text)) {
    const std::vector<int32_t> ids = loaded.tokenizer.EncodePlain(document);
    score.bytes += static_cast<int64_t>(document.size());
    TRY_STATUS(ScoreDocument(flags, ids, *bos, pass, &score));
    if (!std::isfinite(score.nats)) {
      return Fail(
          ErrorCode::kModel,
          fmt::format("The model in {} gives probabilities that are no numbers; its weights "
                      "are damaged: get the checkpoint's files again.",
                      loaded.model->checkpoint().directory()));
    }
    bar.Show(fmt::format("{} tokens", score.tokens), score.bytes,
             static_cast<int64_t>(text.size()));
  }
  if (score.tokens == 0) {
    return Fail(fmt::format("{} has no text in it; name a file of plain text.", flags.file));
  }
  return score;
}

void PrintScore(const EvalPerplexityFlags& flags, const LoadedModel& loaded,
                const TextScore& score) {
  if (!flags.json) {
    std::cout << fmt::format(
        "{:.4f} nats per token, {:.4f} bits per byte, perplexity {:.2f}\n"
        "{} tokens, {} bytes, {} documents, {} windows of at most {} tokens\n",
        score.nats_per_token(), score.bits_per_byte(), std::exp(score.nats_per_token()),
        CountText(score.tokens), CountText(score.bytes), CountText(score.documents),
        CountText(score.windows), CountText(flags.window));
    return;
  }
  Json json;
  json.Set("file", flags.file);
  json.Set("nats_per_token", score.nats_per_token());
  json.Set("bits_per_byte", score.bits_per_byte());
  json.Set("perplexity", std::exp(score.nats_per_token()));
  json.Set("tokens", score.tokens);
  json.Set("bytes", score.bytes);
  json.Set("documents", score.documents);
  json.Set("windows", score.windows);
  json.Set("window", flags.window);
  json.Set("numerics", flags.model.numerics);
  json.Set("kernels", KernelsName(*loaded.model));
  json.Set("random_weights", loaded.random_weights);
  std::cout << DumpJson(json, JsonStyle::kPretty) << '\n';
}

Status EvalPerplexity(const EvalPerplexityFlags& flags) {
  const EngineOptions options = TRY(MakeEngineOptions(flags.model, {}));
  const std::string text = TRY(ReadInput(flags.file, kTextFileBytesMax));
  TRY_STATUS(CheckText(flags, text));
  const int threads = TRY(ThreadCount(options));
  const LoadedModel loaded = TRY(LoadModel(options));
  if (loaded.random_weights) NoteRandomWeights();
  ThreadPool pool(threads, kShareCostMin, PinningOf(options));
  TRY_STATUS(PrepareModel(flags.model, *loaded.model, pool));
  PrintScore(flags, loaded, TRY(ScoreText(flags, loaded, pool, text)));
  return {};
}

}  // namespace

int RunEvalPerplexity(const EvalPerplexityFlags& flags) {
  const Status status = EvalPerplexity(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

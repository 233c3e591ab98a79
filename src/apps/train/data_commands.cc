// minke-train corpus and minke-train tokenizer: what a model is to be trained on.
#include <filesystem>
#include <iostream>
#include <set>
#include <span>
#include <string_view>
#include <system_error>

#include <fmt/format.h>

#include "apps/train/commands.h"
#include "core/file.h"
#include "text/tokenizer.h"
#include "train/corpus.h"
#include "train/model_folder.h"
#include "train/tokenizer_trainer.h"

namespace minke::train {
namespace {

constexpr int64_t kRecallLines = 12'000;  // of facts and questions beside the corpus (docs/nano.md)
constexpr uint64_t kRecallLinesSeed = 1;
constexpr size_t kSampleBytes = size_t{8} << 20;  // of the corpus; more does not change the pieces

Status MakeFolder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (!error) return {};
  return Fail(ErrorCode::kIo, fmt::format("Cannot make {}: {}.", path, error.message()));
}

Status WriteText(const std::string& path, std::string_view text) {
  return WriteFile(path, std::as_bytes(std::span(text.data(), text.size())));
}

Status MakeTokenizer(const TokenizerFlags& flags) {
  const std::string corpus =
      TRY(ReadFile(JoinPath(flags.corpus, std::string(kCorpusTextFile)), kTextFileBytesMax));
  const std::string lines = RecallLines(kRecallLines, kRecallLinesSeed);
  TokenizerTrainingOptions options;
  if (flags.vocab_size > 0) options.vocab_size = flags.vocab_size;
  options.required_pieces = RecallPieces();
  const std::string_view sample = std::string_view(corpus).substr(0, kSampleBytes);
  const std::string json = TRY(TrainTokenizer({sample, lines}, options));
  TRY_STATUS(MakeFolder(flags.out));
  TRY_STATUS(WriteText(JoinPath(flags.out, kTokenizerFile), json));
  TRY_STATUS(WriteText(JoinPath(flags.out, kTokenizerConfigFile), TokenizerConfigText()));
  const Tokenizer tokenizer = TRY(Tokenizer::Parse(json, kTokenizerFile));
  const auto tokens = static_cast<double>(tokenizer.EncodePlain(sample).size());
  std::cout << fmt::format("{}: {} tokens, {:.2f} bytes per token of the corpus.\n", flags.out,
                           tokenizer.vocab_size(), static_cast<double>(sample.size()) / tokens);
  return {};
}

Status CleanCorpus(const CorpusFlags& flags) {
  TRY_STATUS(MakeFolder(flags.out));
  const CorpusReport report = TRY(MakeCorpus(
      flags.packages, flags.out, [](std::string_view package) { std::cerr << package << '\n'; }));
  std::cout << fmt::format(
      "{}: {} documents, {} bytes to train on, {} bytes held out, {} "
      "paragraphs left out as repetitions.\n",
      flags.out, report.documents, report.training_bytes, report.held_out_bytes,
      report.duplicate_paragraphs);
  return {};
}

}  // namespace

int RunTokenizer(const TokenizerFlags& flags) {
  const Status status = MakeTokenizer(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

int RunCorpus(const CorpusFlags& flags) {
  if (flags.list) {
    std::set<std::string_view> packages;
    for (const CorpusSource& source : CorpusSources()) packages.insert(source.package);
    for (const std::string_view package : packages) std::cout << package << '\n';
    return kExitSuccess;
  }
  const Status status = CleanCorpus(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke::train

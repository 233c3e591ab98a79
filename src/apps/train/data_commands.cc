// minke-train corpus and minke-train tokenizer: what a model is to be trained on.
#include <iostream>
#include <set>
#include <string_view>

#include <fmt/format.h>

#include "apps/train/commands.h"
#include "apps/train/output_files.h"
#include "train/corpus.h"
#include "train/tokenizer_trainer.h"

namespace minke::train {
namespace {

Status MakeTokenizerFolder(const TokenizerFlags& flags) {
  TRY_STATUS(MakeFolder(flags.out));
  const TokenizerReport report = TRY(MakeTokenizer(
      flags.corpus, flags.out, flags.vocab_size > 0 ? flags.vocab_size : kNanoVocabulary));
  std::cout << fmt::format(
      "{}: {} tokens, {} classes for Engram, {:.2f} bytes per token of the held-out text.\n",
      flags.out, report.vocab_size, report.compressed_vocab_size, report.bytes_per_token);
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
  const Status status = MakeTokenizerFolder(flags);
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

#include "train/generated_rows.h"

#include "core/file.h"
#include "train/corpus.h"
#include "train/digest.h"

namespace minke::train {

Result<std::unique_ptr<GeneratedRows>> GeneratedRows::Open(const std::string& corpus_dir,
                                                           Tokenizer tokenizer) {
  const std::string path = JoinPath(corpus_dir, std::string(kCorpusTextFile));
  std::string text = TRY(ReadFile(path, kCorpusTextBytesMax));
  std::string digest = Digest(text);
  std::unique_ptr<RowGenerator> generator =
      TRY(RowGenerator::Create(std::move(tokenizer), std::move(text), path));
  return std::unique_ptr<GeneratedRows>(new GeneratedRows(std::move(generator), std::move(digest)));
}

Row GeneratedRows::Make(const RowRequest& request) const {
  const StageConfig& stage = *request.stage;
  const RowName name{request.seed, request.step, request.index};
  RowRules rules;
  rules.tokens = request.length;
  rules.facts_min = stage.facts_min;
  rules.facts_max = stage.facts_max;
  rules.questions_min = stage.questions_min;
  rules.questions_max = stage.questions_max;
  rules.short_values = stage.short_values;
  rules.first = static_cast<float>(stage.weights.first);
  rules.value = static_cast<float>(stage.weights.value);
  rules.restated = static_cast<float>(stage.weights.restated);
  rules.text_share = stage.text_share;
  switch (request.kind) {
    case RowKind::kList:
      return generator_->ListRow(name, rules);
    case RowKind::kDocument:
      return generator_->DocumentRow(name, rules);
    case RowKind::kPlain:
      return generator_->PlainRow(name, rules);
  }
  return {};
}

}  // namespace minke::train

// The rows of a run, from the corpus and the generator of facts.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/result.h"
#include "text/tokenizer.h"
#include "train/row_generator.h"
#include "train/row_source.h"

namespace minke::train {

inline constexpr uint64_t kCorpusTextBytesMax = uint64_t{1} << 30;

class GeneratedRows : public RowSource {
 public:
  // corpus_dir: made by MakeCorpus(). Takes seconds, because all text becomes tokens once.
  static Result<std::unique_ptr<GeneratedRows>> Open(const std::string& corpus_dir,
                                                     Tokenizer tokenizer);

  Row Make(const RowRequest& request) const override;
  const std::string& digest() const { return digest_; }  // of the text
  int64_t text_tokens() const { return generator_->text_tokens(); }

 private:
  GeneratedRows(std::unique_ptr<RowGenerator> generator, std::string digest)
      : generator_(std::move(generator)), digest_(std::move(digest)) {}

  std::unique_ptr<RowGenerator> generator_;
  std::string digest_;
};

}  // namespace minke::train

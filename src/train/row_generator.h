// Training rows made of the corpus and of planted facts (docs/nano.md, "Rows"). A row depends on
// its name alone (seed, step, index) and on the rules: nothing is remembered between rows, so a run
// that continues sees the rows that it would have seen.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "recall/facts.h"
#include "recall/filler.h"
#include "text/tokenizer.h"
#include "train/row.h"

namespace minke::train {

inline constexpr int64_t kGeneratedRowTokensMin = 64;

struct RowRules {
  int64_t tokens = 256;  // of the row, exactly; at least kGeneratedRowTokensMin
  // Of a document row. Fewer where the row has no room for them.
  int64_t facts_min = 3;
  int64_t facts_max = 7;
  int64_t questions_min = 3;
  int64_t questions_max = 5;
  // More values of one and two digits and hardly any unusual key: for the first stage, where the
  // look-up is to be learned and not the copying of what was found.
  bool short_values = false;
  // Weights of predicting a token, by what it is. Text weighs 1.
  float first = 1;
  float value = 1;
  float restated = 1;
  double text_share = 1;  // of the text of document rows that is supervised; plain rows: all
};

// Names a row.
struct RowName {
  uint64_t seed = 0;
  int64_t step = 0;
  int64_t index = 0;
};

// Immutable after Create(); its members may be called by several threads at once.
class RowGenerator {
 public:
  // `text`: train.txt of a corpus; `what` names it in errors. Errors: no text, a tokenizer without
  // the control tokens of the format, or text of fewer tokens than a row needs.
  static Result<std::unique_ptr<RowGenerator>> Create(Tokenizer tokenizer, std::string text,
                                                      std::string_view what);

  // Lists of keys and values, every key many times: all mentions but the first are supervised.
  Row ListRow(const RowName& name, const RowRules& rules) const;
  // Documents with facts, and a conversation about them in the released format.
  Row DocumentRow(const RowName& name, const RowRules& rules) const;
  // Running text from the beginning of a paragraph on, after the begin-of-sequence token.
  Row PlainRow(const RowName& name, const RowRules& rules) const;

  const Tokenizer& tokenizer() const { return tokenizer_; }
  int64_t text_tokens() const { return static_cast<int64_t>(text_ids_.size()); }

 private:
  RowGenerator(Tokenizer tokenizer, Filler filler)
      : tokenizer_(std::move(tokenizer)), filler_(std::move(filler)) {}
  Status ReadControlTokens();
  void EncodeText();
  FactOptions UsualFacts(const RowRules& rules) const;

  Tokenizer tokenizer_;
  Filler filler_;
  std::vector<std::string> words_;    // for keys of corpus words
  std::vector<uint16_t> text_ids_;    // every document between bos and eos
  std::vector<uint32_t> paragraphs_;  // where one begins in text_ids_
  int32_t bos_ = 0;
  int32_t eos_ = 0;
  int32_t assistant_ = 0;
  int32_t think_start_ = 0;
  int32_t think_end_ = 0;
};

}  // namespace minke::train

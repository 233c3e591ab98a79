#include "train/row_generator.h"

#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <utility>

#include "recall/recall_case.h"
#include "text/control_tokens.h"
#include "train/tokenizer_trainer.h"

namespace minke::train {

namespace {

// Streams of one row name.
enum class Purpose : uint64_t { kList = 1, kDocument, kPlain };

Random RandomOf(const RowName& name, Purpose purpose) {
  return Random({kTrainingDomain, name.seed, static_cast<uint64_t>(name.step),
                 static_cast<uint64_t>(name.index), static_cast<uint64_t>(purpose)});
}

// Collects tokens with what each of them is as a target; Take() moves that to the position before.
class RowBuilder {
 public:
  explicit RowBuilder(const RowRules& rules) : rules_(rules) {}

  void Add(int32_t id, TargetKind kind) {
    ids_.push_back(id);
    kinds_.push_back(kind);
  }
  void Add(const std::vector<int32_t>& ids, TargetKind kind) {
    for (const int32_t id : ids) Add(id, kind);
  }
  void AddValue(const std::vector<int32_t>& ids) {
    for (size_t i = 0; i < ids.size(); ++i) {
      Add(ids[i], i == 0 ? TargetKind::kFirst : TargetKind::kValue);
    }
  }
  void SetKind(size_t index, TargetKind kind) { kinds_[index] = kind; }
  int64_t size() const { return static_cast<int64_t>(ids_.size()); }
  const std::vector<int32_t>& ids() const { return ids_; }

  Row Take() {
    const auto tokens = static_cast<size_t>(rules_.tokens);
    CHECK(ids_.size() >= tokens);
    ids_.resize(tokens);
    Row row;
    row.weights.assign(tokens, 0.0F);
    row.targets.assign(tokens, TargetKind::kOther);
    for (size_t i = 0; i + 1 < tokens; ++i) {
      row.targets[i] = kinds_[i + 1];
      row.weights[i] = Weight(kinds_[i + 1]);
    }
    row.ids = std::move(ids_);
    return row;
  }

 private:
  float Weight(TargetKind kind) const {
    switch (kind) {
      case TargetKind::kFirst:
        return rules_.first;
      case TargetKind::kValue:
        return rules_.value;
      case TargetKind::kRestated:
        return rules_.restated;
      case TargetKind::kText:
        return 1;
      case TargetKind::kOther:
        return 0;
    }
    return 0;
  }

  const RowRules& rules_;
  std::vector<int32_t> ids_;
  std::vector<TargetKind> kinds_;
};

// A text that a value ends or stands in, cut where the value's tokens begin: the blank before a
// number is a token of its own, that before a word is part of the word's first token.
struct ValueCut {
  std::string before;
  std::string value;
};
ValueCut CutAtValue(std::string_view text, size_t offset, const std::string& value) {
  const bool digit = value[0] >= '0' && value[0] <= '9';
  const bool blank = offset > 0 && text[offset - 1] == ' ';
  if (digit || !blank) return {std::string(text.substr(0, offset)), value};
  return {std::string(text.substr(0, offset - 1)), " " + value};
}

}  // namespace

Result<std::unique_ptr<RowGenerator>> RowGenerator::Create(Tokenizer tokenizer, std::string text,
                                                           std::string_view what) {
  if (tokenizer.vocab_size() > kTrainedVocabularyMax) {
    return Fail(ErrorCode::kLimit,
                fmt::format("The tokenizer has {} tokens; rows are made for at most {}.",
                            tokenizer.vocab_size(), kTrainedVocabularyMax));
  }
  Filler filler = TRY(Filler::Create(std::move(text), what));
  auto generator =
      std::unique_ptr<RowGenerator>(new RowGenerator(std::move(tokenizer), std::move(filler)));
  TRY_STATUS(generator->ReadControlTokens());
  generator->words_ = generator->filler_.CommonWords();
  generator->EncodeText();
  return generator;
}

Status RowGenerator::ReadControlTokens() {
  const std::pair<std::string_view, int32_t*> wanted[] = {{kBosToken, &bos_},
                                                          {kEosToken, &eos_},
                                                          {kAssistantToken, &assistant_},
                                                          {kThinkStartToken, &think_start_},
                                                          {kThinkEndToken, &think_end_}};
  for (const auto& [content, id] : wanted) {
    const std::optional<int32_t> found = tokenizer_.ControlToken(content);
    if (!found.has_value()) {
      return Fail(
          fmt::format("The tokenizer has no control token {}, which every row needs; make "
                      "one with minke-train tokenizer.",
                      content));
    }
    *id = *found;
  }
  return {};
}

void RowGenerator::EncodeText() {
  const std::vector<FillerSentence>& sentences = filler_.sentences();
  for (size_t i = 0; i < sentences.size();) {
    size_t next = i + 1;
    while (next < sentences.size() && !sentences[next].begins_paragraph) ++next;
    if (sentences[i].begins_document) {
      if (!text_ids_.empty()) text_ids_.push_back(static_cast<uint16_t>(eos_));
      text_ids_.push_back(static_cast<uint16_t>(bos_));
    }
    const bool ends_document = next == sentences.size() || sentences[next].begins_document;
    const size_t begin = sentences[i].begin;
    const size_t end = sentences[next - 1].begin + sentences[next - 1].size;
    std::string text = filler_.text().substr(begin, end - begin);
    if (!ends_document) text += "\n\n";
    paragraphs_.push_back(static_cast<uint32_t>(text_ids_.size()));
    for (const int32_t id : tokenizer_.EncodePlain(text)) {
      text_ids_.push_back(static_cast<uint16_t>(id));
    }
    i = next;
  }
  text_ids_.push_back(static_cast<uint16_t>(eos_));
}

FactOptions RowGenerator::UsualFacts(const RowRules& rules) const {
  // Without unusual keys a model learns its list of nouns and nothing of a user's own words.
  constexpr double kUnusualShare = 0.1;  // each of names and corpus words
  constexpr double kUnusualShareAtFirst = 0.02;
  const double unusual = rules.short_values ? kUnusualShareAtFirst : kUnusualShare;
  FactOptions options;
  options.invented_key_share = unusual;
  options.corpus_key_share = unusual;
  options.corpus_attribute_share = unusual;
  if (!words_.empty()) options.corpus_words = words_;
  options.value_digits = {4, 4, 4, 4, 4, 4, 2, 3, 5, 6};
  if (rules.short_values) options.value_digits = {1, 2, 2, 4};
  options.word_value_share = rules.short_values ? 0.05 : 0.15;
  return options;
}

Row RowGenerator::ListRow(const RowName& name, const RowRules& rules) const {
  constexpr int64_t kKeysMin = 4;
  constexpr int64_t kKeysMax = 10;       // of a short row
  constexpr int64_t kTokensPerKey = 32;  // of a long one, for every further key
  constexpr int64_t kFormatsMax = 2;
  Random random = RandomOf(name, Purpose::kList);
  FactOptions options = UsualFacts(rules);
  if (!rules.short_values) options.value_digits = {1, 2, 4, 4};
  std::vector<std::string_view> formats;
  const int64_t format_count = random.Between(1, kFormatsMax);
  for (int64_t i = 0; i < format_count; ++i) formats.push_back(random.Pick(ListTemplates()));
  const int64_t keys_max = std::max(kKeysMax, rules.tokens / kTokensPerKey);
  const int64_t key_count = random.Between(kKeysMin, keys_max);
  std::vector<Fact> facts;
  std::vector<std::string> keys;
  const std::string attribute(random.Pick(AttributeWords()));
  for (int64_t i = 0; i < key_count; ++i) {
    Fact fact;
    fact.key = MakeKey(options, keys, random);
    fact.attribute = attribute;
    fact.value = MakeValue(options, random, &fact.word_value);
    keys.push_back(fact.key);
    facts.push_back(std::move(fact));
  }
  RowBuilder row(rules);
  row.Add(bos_, TargetKind::kOther);
  std::vector<char> seen(facts.size(), 0);
  size_t last = facts.size();
  while (row.size() < rules.tokens) {
    const auto index = static_cast<size_t>(random.Below(key_count));
    if (index == last) continue;
    last = index;
    size_t offset = 0;
    const std::string text = FillTemplate(random.Pick(formats), facts[index], &offset);
    const ValueCut cut = CutAtValue(text, offset, facts[index].value);
    row.Add(tokenizer_.EncodePlain(cut.before), TargetKind::kOther);
    const std::vector<int32_t> value = tokenizer_.EncodePlain(cut.value);
    if (seen[index] != 0) {
      row.AddValue(value);
    } else {
      row.Add(value, TargetKind::kOther);
    }
    seen[index] = 1;
    row.Add(tokenizer_.EncodePlain(text.substr(offset + facts[index].value.size())),
            TargetKind::kOther);
  }
  return row.Take();
}

Row RowGenerator::PlainRow(const RowName& name, const RowRules& rules) const {
  Random random = RandomOf(name, Purpose::kPlain);
  RowBuilder row(rules);
  size_t at = random.Pick(paragraphs_);
  row.Add(bos_, TargetKind::kOther);
  while (row.size() < rules.tokens) {
    const int32_t id = text_ids_[at];
    // Nobody is to foresee that another document begins.
    row.Add(id, id == bos_ ? TargetKind::kOther : TargetKind::kText);
    at = at + 1 == text_ids_.size() ? 0 : at + 1;
  }
  return row.Take();
}

namespace {

CaseOptions DrawCase(const RowRules& rules, const FactOptions& facts, Random& random) {
  constexpr double kThinkingShare = 0.3;
  constexpr double kOtherEffortShare = 0.3;
  constexpr double kSystemShare = 0.2;
  constexpr double kDocumentInSystemShare = 0.15;
  constexpr double kOwnPartShare = 0.15;
  CaseOptions options;
  options.tokens = rules.tokens;
  options.facts = facts;
  options.facts.facts = random.Between(rules.facts_min, rules.facts_max);
  options.facts.questions = random.Between(rules.questions_min, rules.questions_max);
  options.answer_last = true;
  if (random.Chance(kThinkingShare)) {
    options.thinking_mode = ThinkingMode::kThinking;
    if (random.Chance(kOtherEffortShare)) {
      options.reasoning_effort =
          static_cast<int>(random.Between(kReasoningEffortMin, kReasoningEffortMax));
    }
  }
  if (random.Chance(kSystemShare)) options.system = std::string(random.Pick(SystemMessages()));
  const double place = random.Uniform();
  if (place < kDocumentInSystemShare) {
    options.place = DocumentPlace::kSystem;
  } else if (place < kDocumentInSystemShare + kOwnPartShare) {
    options.place = DocumentPlace::kPartOfUser;
  }
  return options;
}

// A case that fits: with fewer questions and facts where need be, then without what is said around
// them, and at last with the keys and numbers that need least room.
RecallCase FittingCase(CaseOptions options, const Filler& filler, const Tokenizer& tokenizer,
                       Random& random) {
  constexpr int64_t kQuestionsWorthKeeping = 2;
  while (true) {
    Result<RecallCase> recall = MakeRecallCase(options, filler, tokenizer, random);
    if (recall) return std::move(*recall);
    CHECK(recall.error().code == ErrorCode::kLimit, recall.error().message);
    FactOptions& facts = options.facts;
    if (facts.questions > kQuestionsWorthKeeping || (facts.facts == 1 && facts.questions > 1)) {
      --facts.questions;
    } else if (facts.facts > 1) {
      --facts.facts;
    } else if (options.thinking_mode == ThinkingMode::kThinking || !options.system.empty()) {
      options.thinking_mode = ThinkingMode::kChat;
      options.system.clear();
    } else {
      CHECK(facts.value_digits.size() > 1, "a row has no room for one fact");
      facts.invented_key_share = 0;
      facts.corpus_key_share = 0;
      facts.corpus_attribute_share = 0;
      facts.word_value_share = 0;
      facts.value_digits = {1};
    }
  }
}

}  // namespace

Row RowGenerator::DocumentRow(const RowName& name, const RowRules& rules) const {
  Random random = RandomOf(name, Purpose::kDocument);
  const RecallCase recall =
      FittingCase(DrawCase(rules, UsualFacts(rules), random), filler_, tokenizer_, random);
  RowBuilder row(rules);
  for (const int32_t id : recall.ids) {
    const bool text = !tokenizer_.IsControl(id) && random.Chance(rules.text_share);
    row.Add(id, text ? TargetKind::kText : TargetKind::kOther);
  }
  size_t question = 0;
  for (size_t i = 0; i + 1 < recall.ids.size(); ++i) {
    if (recall.ids[i] != assistant_) continue;
    const Question& asked = recall.facts.questions[question++];
    const Fact& fact = recall.facts.facts[asked.fact];
    const ValueCut cut = CutAtValue(asked.answer, asked.answer_start.size() + 1, fact.value);
    size_t at = i + 1;
    // In thinking mode the model itself ends its empty reasoning.
    if (recall.ids[at] == think_start_) row.SetKind(++at, TargetKind::kRestated);
    ++at;
    const size_t value_begin = at + tokenizer_.EncodePlain(cut.before).size();
    const size_t value_end = value_begin + tokenizer_.EncodePlain(cut.value).size();
    for (; at < recall.ids.size(); ++at) {
      row.SetKind(at, at < value_begin || at >= value_end ? TargetKind::kRestated
                      : at == value_begin                 ? TargetKind::kFirst
                                                          : TargetKind::kValue);
      if (recall.ids[at] == eos_) break;
    }
  }
  CHECK(question == recall.facts.questions.size());
  // What words left free: the beginning of another document.
  row.Add(bos_, TargetKind::kOther);
  for (size_t at = random.Pick(paragraphs_); row.size() < rules.tokens; ++at) {
    const int32_t id = text_ids_[at % text_ids_.size()];
    const bool text = id != bos_ && random.Chance(rules.text_share);
    row.Add(id, text ? TargetKind::kText : TargetKind::kOther);
  }
  return row.Take();
}

}  // namespace minke::train

#include "recall/recall_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace minke {

namespace {

constexpr std::string_view kParagraphBreak = "\n\n";

// A stretch of the document: a sentence of the filler or a fact, with the blanks before it.
struct Stretch {
  std::string text;
  size_t fact = 0;
  bool is_fact = false;
};

ChatMessage TextMessage(Role role, std::string text) {
  ChatMessage message;
  message.role = role;
  message.content.push_back(
      {.kind = ContentPart::Kind::kText, .text = std::move(text), .image = {}});
  return message;
}

// The conversation about a document. `questions`: indices into facts.questions, in order.
ChatRequest MakeRequest(const CaseOptions& options, const std::string& document,
                        const FactSet& facts, const std::vector<size_t>& questions) {
  ChatRequest request;
  request.options.thinking_mode = options.thinking_mode;
  request.options.reasoning_effort = options.reasoning_effort;
  std::string system = options.system;
  if (options.place == DocumentPlace::kSystem) {
    system += (system.empty() ? "" : std::string(kParagraphBreak)) + document;
  }
  if (!system.empty()) request.messages.push_back(TextMessage(Role::kSystem, std::move(system)));
  for (size_t i = 0; i < questions.size(); ++i) {
    const Question& question = facts.questions[questions[i]];
    ChatMessage user = TextMessage(Role::kUser, question.text);
    if (i == 0 && options.place == DocumentPlace::kUser) {
      user.content[0].text = document + std::string(kParagraphBreak) + question.text;
    } else if (i == 0 && options.place == DocumentPlace::kPartOfUser) {
      user.content.insert(user.content.begin(),
                          {.kind = ContentPart::Kind::kText, .text = document, .image = {}});
    }
    request.messages.push_back(std::move(user));
    if (i + 1 < questions.size() || options.answer_last) {
      ChatMessage answer = TextMessage(Role::kAssistant, question.answer);
      // Thought about nothing: what a model does that only looks up.
      answer.reasoning_content = "";
      request.messages.push_back(std::move(answer));
    }
  }
  return request;
}

// Those of the conversation that is cut to length.
std::vector<size_t> QuestionsOf(const CaseOptions& options, const FactSet& facts) {
  std::vector<size_t> questions(facts.questions.size());
  for (size_t i = 0; i < questions.size(); ++i) questions[i] = i;
  if (!options.separate_questions) return questions;
  return {*std::max_element(questions.begin(), questions.end(), [&facts](size_t a, size_t b) {
    return facts.questions[a].text.size() < facts.questions[b].text.size();
  })};
}

Result<std::vector<int32_t>> RequestIds(const ChatRequest& request, const Tokenizer& tokenizer) {
  return PromptIds(TRY(EncodeChat(request)), tokenizer);
}

std::string Join(const std::vector<Stretch>& stretches) {
  std::string document;
  for (const Stretch& stretch : stretches) {
    // The document begins with a word, not with the blank before it.
    document += document.empty() ? stretch.text.substr(stretch.text.find_first_not_of(" \n"))
                                 : stretch.text;
  }
  return document;
}

// Sentences from `first` on, as many as `tokens` have room for; the last is cut between words.
std::vector<Stretch> TakeFiller(const Filler& filler, const Tokenizer& tokenizer, size_t first,
                                int64_t tokens) {
  std::vector<Stretch> stretches;
  const size_t count = filler.sentences().size();
  for (size_t i = 0; tokens > 0; ++i) {
    const size_t index = (first + i) % count;
    const FillerSentence& sentence = filler.sentences()[index];
    std::string text(sentence.begins_paragraph ? kParagraphBreak : " ");
    text += filler.Sentence(index);
    auto used = static_cast<int64_t>(tokenizer.EncodePlain(text).size());
    while (used > tokens) {
      const size_t blank = text.find_last_of(" \n");
      if (blank == std::string::npos || blank < 2) return stretches;
      text.resize(blank);
      used = static_cast<int64_t>(tokenizer.EncodePlain(text).size());
    }
    tokens -= used;
    stretches.push_back({std::move(text), 0, false});
  }
  return stretches;
}

// The facts between the sentences, each at a random place, in random order.
std::vector<Stretch> PlaceFacts(std::vector<Stretch> sentences, const FactSet& facts,
                                Random& random) {
  std::vector<std::pair<int64_t, size_t>> places;
  for (size_t fact = 0; fact < facts.facts.size(); ++fact) {
    places.emplace_back(random.Below(static_cast<int64_t>(sentences.size()) + 1), fact);
  }
  // Of those at one place the first drawn goes first.
  std::stable_sort(places.begin(), places.end(),
                   [](const auto& a, const auto& b) { return a.first < b.first; });
  std::vector<Stretch> stretches;
  size_t next = 0;
  for (size_t i = 0; i <= sentences.size(); ++i) {
    while (next < places.size() && places[next].first == static_cast<int64_t>(i)) {
      const size_t fact = places[next++].second;
      stretches.push_back({" " + facts.facts[fact].sentence, fact, true});
    }
    if (i < sentences.size()) stretches.push_back(std::move(sentences[i]));
  }
  return stretches;
}

// Takes words from the last sentence of filler, then from the one before it. False: none is left.
bool DropWord(std::vector<Stretch>* stretches) {
  for (size_t i = stretches->size(); i-- > 0;) {
    Stretch& stretch = (*stretches)[i];
    if (stretch.is_fact) continue;
    const size_t blank = stretch.text.find_last_of(" \n");
    const size_t word = stretch.text.find_first_not_of(" \n");
    if (blank == std::string::npos || blank < word) {
      stretches->erase(stretches->begin() + static_cast<int64_t>(i));
    } else {
      stretch.text.resize(blank);
    }
    return true;
  }
  return false;
}

// The tokens before the end of a fact's value: those of the conversation cut off there, without
// the control tokens that ask for an answer.
Result<int64_t> ValuePosition(const CaseOptions& options, const RecallCase& recall,
                              const std::vector<Stretch>& stretches, size_t fact,
                              const Tokenizer& tokenizer) {
  std::string document;
  for (const Stretch& stretch : stretches) {
    const size_t skipped = document.empty() ? stretch.text.find_first_not_of(" \n") : 0;
    if (stretch.is_fact && stretch.fact == fact) {
      const Fact& known = recall.facts.facts[fact];
      const size_t end =
          stretch.text.size() - known.sentence.size() + known.value_offset + known.value.size();
      document += stretch.text.substr(skipped, end - skipped);
      break;
    }
    document += stretch.text.substr(skipped);
  }
  CaseOptions cut = options;
  cut.answer_last = false;
  if (cut.place == DocumentPlace::kPartOfUser) cut.place = DocumentPlace::kUser;
  ChatRequest request = MakeRequest(cut, document, recall.facts, {0});
  if (cut.place == DocumentPlace::kUser) request.messages.back().content[0].text = document;
  if (cut.place == DocumentPlace::kSystem) request.messages.pop_back();
  const std::vector<int32_t> ids = TRY(RequestIds(request, tokenizer));
  size_t size = ids.size();
  while (size > 0 && tokenizer.IsControl(ids[size - 1])) --size;
  return static_cast<int64_t>(size) - 1;
}

}  // namespace

Result<RecallCase> MakeRecallCase(const CaseOptions& options, const Filler& filler,
                                  const Tokenizer& tokenizer, Random& random) {
  RecallCase recall;
  recall.facts = MakeFacts(options.facts, random);
  const std::vector<size_t> questions = QuestionsOf(options, recall.facts);
  const std::vector<Stretch> bare = PlaceFacts({}, recall.facts, random);
  recall.request = MakeRequest(options, Join(bare), recall.facts, questions);
  const auto least = static_cast<int64_t>(TRY(RequestIds(recall.request, tokenizer)).size());
  if (least > options.tokens) {
    return Fail(ErrorCode::kLimit,
                fmt::format("{} facts and {} questions take {} tokens without any text between "
                            "them, which is more than the {} asked for; ask for longer documents "
                            "or fewer facts.",
                            options.facts.facts, options.facts.questions, least, options.tokens));
  }
  const auto first =
      static_cast<size_t>(random.Below(static_cast<int64_t>(filler.sentences().size())));
  std::vector<Stretch> stretches = PlaceFacts(
      TakeFiller(filler, tokenizer, first, options.tokens - least), recall.facts, random);
  while (true) {
    recall.document = Join(stretches);
    recall.request = MakeRequest(options, recall.document, recall.facts, questions);
    recall.ids = TRY(RequestIds(recall.request, tokenizer));
    if (static_cast<int64_t>(recall.ids.size()) <= options.tokens) break;
    if (!DropWord(&stretches)) break;
  }
  if (options.answer_last) return recall;
  for (const Question& question : recall.facts.questions) {
    recall.value_positions.push_back(
        TRY(ValuePosition(options, recall, stretches, question.fact, tokenizer)));
  }
  return recall;
}

ChatRequest AskedAbout(const RecallCase& recall, const CaseOptions& options, size_t question) {
  CHECK(question < recall.facts.questions.size() && !options.answer_last);
  return MakeRequest(options, recall.document, recall.facts, {question});
}

}  // namespace minke

#include "train/recall_probe.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "recall/random.h"
#include "recall/recall_case.h"
#include "text/chat_encoding.h"

namespace minke::train {
namespace {

// The conversation with the last answer given.
Result<std::vector<int32_t>> AnsweredIds(const RecallCase& recall, const Tokenizer& tokenizer) {
  ChatRequest request = recall.request;
  ChatMessage answer;
  answer.role = Role::kAssistant;
  answer.reasoning_content = "";
  answer.content.push_back({.kind = ContentPart::Kind::kText,
                            .text = recall.facts.questions.back().answer,
                            .image = {}});
  request.messages.push_back(std::move(answer));
  return PromptIds(TRY(EncodeChat(request)), tokenizer);
}

}  // namespace

Result<std::vector<RecallProbe>> MakeProbes(const ProbeOptions& options, const Filler& filler,
                                            const Tokenizer& tokenizer) {
  CaseOptions wanted;
  wanted.tokens = options.tokens;
  wanted.facts = EvaluationFacts(options.tokens);
  wanted.facts.keys = options.keys;
  std::vector<RecallProbe> probes;
  for (int64_t i = 0; i < options.cases; ++i) {
    Random random({kEvaluationDomain, options.seed, static_cast<uint64_t>(options.tokens),
                   static_cast<uint64_t>(i)});
    RecallCase recall = TRY(MakeRecallCase(wanted, filler, tokenizer, random));
    const std::vector<int32_t> all = TRY(AnsweredIds(recall, tokenizer));
    RecallProbe probe;
    probe.prompt = recall.ids;
    const bool continues = all.size() > probe.prompt.size() &&
                           std::equal(probe.prompt.begin(), probe.prompt.end(), all.begin());
    if (!continues) {
      return Fail(
          fmt::format("Case {} of {} tokens: the conversation with its answer does not "
                      "begin with the prompt; the tokenizer joins text across turns.",
                      i, options.tokens));
    }
    probe.answer.assign(all.begin() + static_cast<std::ptrdiff_t>(probe.prompt.size()), all.end());
    // A digit is a token, and a full stop and the end of the turn follow the last one.
    constexpr int64_t kTokensBehindValue = 2;
    const std::string& value = recall.facts.facts[recall.facts.questions.back().fact].value;
    probe.value_begins = static_cast<int64_t>(probe.answer.size()) - kTokensBehindValue -
                         static_cast<int64_t>(value.size());
    const bool begins =
        probe.value_begins > 0 &&
        tokenizer.TokenBytes(probe.answer[static_cast<size_t>(probe.value_begins)]) ==
            value.substr(0, 1);
    if (!begins) {
      return Fail(
          fmt::format("Case {} of {} tokens: the tokenizer does not write the number {} "
                      "digit by digit.",
                      i, options.tokens, value));
    }
    probe.distance = static_cast<int64_t>(probe.prompt.size()) - 1 - recall.value_positions.back();
    probe.facts = std::move(recall.facts);
    probes.push_back(std::move(probe));
  }
  return probes;
}

Result<Filler> OpenProbeFiller(const std::string& path, uint64_t seed) {
  if (path.empty()) return Filler::Neutral(seed);
  return Filler::Create(TRY(ReadFile(path, kFillerBytesMax)), path);
}

}  // namespace minke::train

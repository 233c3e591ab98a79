#include "train/evaluation.h"

#include <algorithm>
#include <cmath>

#include "core/result.h"
#include "recall/scoring.h"

namespace minke::train {
namespace {

// ids [1, T] of two parts.
torch::Tensor Ids(std::span<const int32_t> first, std::span<const int32_t> second) {
  const auto length = static_cast<int64_t>(first.size() + second.size());
  torch::Tensor ids = torch::empty({1, length}, torch::kInt64);
  int64_t* out = ids.data_ptr<int64_t>();
  out = std::copy(first.begin(), first.end(), out);
  std::copy(second.begin(), second.end(), out);
  return ids;
}

}  // namespace

GreedyAnswer DecodeGreedily(const Model& model, std::span<const int32_t> prompt,
                            std::span<const int32_t> draft, const ForwardOptions& options,
                            int64_t replay_tokens) {
  const torch::NoGradGuard no_grad;
  CHECK(!prompt.empty());
  const auto end_of_turn = static_cast<int32_t>(model.config().eos_token_id);
  ForwardOptions pass = options;
  if (replay_tokens >= 0) {
    const auto length = static_cast<int64_t>(prompt.size());
    pass.decoder_from = {std::max<int64_t>(0, length - replay_tokens)};
  }
  GreedyAnswer answer;
  std::vector<int32_t> guess(draft.begin(), draft.end());  // after what is decided
  while (true) {
    std::vector<int32_t> tail = answer.ids;
    tail.insert(tail.end(), guess.begin(), guess.end());
    const ForwardResult result = model.Forward(Ids(prompt, tail), pass);
    const auto from = static_cast<int64_t>(prompt.size() + answer.ids.size()) - 1;
    const torch::Tensor logits =
        model.Logits(result.hidden[0].slice(0, from, result.hidden.size(1)), options.quantization);
    const auto [values, indices] = logits.topk(2, 1);
    for (size_t i = 0; i <= guess.size(); ++i) {
      const auto row = static_cast<int64_t>(i);
      const auto best = static_cast<int32_t>(indices[row][0].item<int64_t>());
      answer.ids.push_back(best);
      answer.leads.push_back((values[row][0] - values[row][1]).item<float>());
      const bool full = static_cast<int64_t>(answer.ids.size()) >= kAnswerTokensMax;
      if (best == end_of_turn || full) return answer;
      if (i < guess.size() && guess[i] == best) continue;
      // The rest of the guess is still the best one there is: answers are alike in length.
      const size_t used = std::min(i + 1, guess.size());
      guess.erase(guess.begin(), guess.begin() + static_cast<std::ptrdiff_t>(used));
      break;
    }
  }
}

RecallScore ScoreRecall(const Model& model, const Tokenizer& tokenizer,
                        std::span<const RecallProbe> probes, const ForwardOptions& options,
                        int64_t replay_tokens) {
  RecallScore score;
  for (const RecallProbe& probe : probes) {
    const GreedyAnswer answer =
        DecodeGreedily(model, probe.prompt, probe.answer, options, replay_tokens);
    std::span<const int32_t> words = answer.ids;
    if (!words.empty() && words.back() == model.config().eos_token_id) {
      words = words.first(words.size() - 1);
    }
    const AnswerScore one =
        ScoreAnswer(probe.facts, probe.facts.questions.back(), tokenizer.DecodeBytes(words));
    ++score.cases;
    score.digits += one.digits_exact ? 1 : 0;
    score.answers += one.answer_exact ? 1 : 0;
  }
  return score;
}

std::vector<IndexQuality> MeasureIndexes(const Model& model, std::span<const RecallProbe> probes,
                                         const ForwardOptions& options) {
  const torch::NoGradGuard no_grad;
  // The end of the turn and the full stop follow the value; its first character is what is looked
  // up, and one position before it is the query that does so.
  std::vector<IndexQuality> sums;
  for (const RecallProbe& probe : probes) {
    const auto length = static_cast<int64_t>(probe.prompt.size() + probe.answer.size());
    ForwardOptions pass = options;
    pass.distill = true;
    pass.measured = torch::zeros({1, length}, torch::kBool);
    pass.measured[0][static_cast<int64_t>(probe.prompt.size()) + probe.value_begins - 1] = true;
    const ForwardResult result = model.Forward(Ids(probe.prompt, probe.answer), pass);
    if (sums.empty()) sums.resize(result.index_quality.size());
    for (size_t i = 0; i < sums.size(); ++i) {
      const IndexQuality& one = result.index_quality[i];
      sums[i].layer = one.layer;
      sums[i].queries += one.queries;
      sums[i].top1_recall += one.queries * one.top1_recall;
      sums[i].mass_recall += one.queries * one.mass_recall;
      sums[i].pool_recall += one.queries * one.pool_recall;
      sums[i].pool_topk_recall += one.queries * one.pool_topk_recall;
    }
  }
  for (IndexQuality& sum : sums) {
    const double queries = std::max(1.0, sum.queries);
    sum.top1_recall /= queries;
    sum.mass_recall /= queries;
    sum.pool_recall /= queries;
    sum.pool_topk_recall /= queries;
  }
  return sums;
}

double TextScore::nats_per_token() const {
  return tokens == 0 ? 0 : nats / static_cast<double>(tokens);
}

double TextScore::bits_per_byte() const {
  return bytes == 0 ? 0 : nats / std::log(2.0) / static_cast<double>(bytes);
}

TextScore ScoreText(const Model& model, const Tokenizer& tokenizer, std::string_view text,
                    int64_t window_tokens, int64_t tokens_max, const ForwardOptions& options) {
  const torch::NoGradGuard no_grad;
  CHECK(window_tokens >= 2);
  std::vector<int32_t> ids = tokenizer.EncodePlain(text.substr(0, kEncodeBytesMax));
  ids.resize(std::min(ids.size(), static_cast<size_t>(tokens_max)));
  const auto window = static_cast<size_t>(window_tokens);
  TextScore score;
  size_t scored = 1;  // the first token has nothing before it
  for (size_t begin = 0; scored < ids.size(); begin += window / 2) {
    const size_t end = std::min(begin + window, ids.size());
    const std::span<const int32_t> part = std::span(ids).subspan(begin, end - begin);
    const ForwardResult result = model.Forward(Ids(part, {}), options);
    const auto from = static_cast<int64_t>(scored - begin) - 1;
    const auto to = static_cast<int64_t>(end - begin) - 1;
    const torch::Tensor logits =
        model.Logits(result.hidden[0].slice(0, from, to), options.quantization);
    const torch::Tensor wanted = Ids(part, {})[0].slice(0, from + 1, to + 1);
    const torch::Tensor nats = torch::log_softmax(logits, 1).gather(1, wanted.unsqueeze(1)).neg();
    score.nats += nats.sum(torch::kFloat64).item<double>();
    for (size_t i = scored; i < end; ++i) {
      score.bytes += static_cast<int64_t>(tokenizer.TokenBytes(ids[i]).size());
    }
    score.tokens += to - from;
    scored = end;
  }
  return score;
}

}  // namespace minke::train

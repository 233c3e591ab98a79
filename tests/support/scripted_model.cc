#include "tests/support/scripted_model.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "core/file.h"
#include "text/control_tokens.h"

namespace minke::testing {
namespace {

// Of a user turn, what is looked at: its beginning and its end.
constexpr size_t kTurnTokensMax = 2048;
constexpr size_t kChosenMax = 4096;
constexpr float kChosenLogit = 20.0f;

constexpr std::array<std::string_view, 11> kControlNames = {
    kBosToken,        kEosToken,      kPadToken,  kSystemToken,         kUserToken, kAssistantToken,
    kThinkStartToken, kThinkEndToken, kDsmlToken, kLatestReminderToken, kImageToken};

int32_t IdOf(const Tokenizer& tokenizer, std::string_view name) {
  return tokenizer.ControlToken(name).value_or(-1);
}

}  // namespace

std::vector<int32_t> ScriptIds(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<int32_t> ids;
  const auto add_plain = [&](std::string_view part) {
    const std::vector<int32_t> plain = tokenizer.EncodePlain(part);
    ids.insert(ids.end(), plain.begin(), plain.end());
  };
  while (!text.empty()) {
    size_t first = text.size();
    std::string_view found;
    for (const std::string_view name : kControlNames) {
      const size_t at = text.find(name);
      if (at < first && tokenizer.ControlToken(name).has_value()) {
        first = at;
        found = name;
      }
    }
    if (first > 0) add_plain(text.substr(0, first));
    if (!found.empty()) ids.push_back(*tokenizer.ControlToken(found));
    text.remove_prefix(first + found.size());
  }
  return ids;
}

ScriptedModel::ScriptedModel(Tokenizer tokenizer, ScriptedModelOptions options)
    : tokenizer_(std::move(tokenizer)), options_(std::move(options)) {
  user_ = IdOf(tokenizer_, kUserToken);
  assistant_ = IdOf(tokenizer_, kAssistantToken);
  think_start_ = IdOf(tokenizer_, kThinkStartToken);
  think_end_ = IdOf(tokenizer_, kThinkEndToken);
  eos_ = IdOf(tokenizer_, kEosToken);
  const std::vector<int32_t> line_break = tokenizer_.EncodePlain("\n");
  if (line_break.size() == 1) line_break_ = line_break.front();
  for (const Script& script : options_.scripts) {
    const std::string_view whole = script.answer;
    const size_t end = whole.find(kThinkEndToken);
    const std::string_view rest =
        end == std::string_view::npos ? whole : whole.substr(end + kThinkEndToken.size());
    answers_.push_back({script.pattern, ScriptIds(tokenizer_, whole), ScriptIds(tokenizer_, rest)});
  }
}

Result<std::unique_ptr<ScriptedModel>> ScriptedModel::Create(const std::string& model_dir,
                                                             ScriptedModelOptions options) {
  Tokenizer tokenizer = TRY(Tokenizer::Load(JoinPath(model_dir, "tokenizer.json")));
  for (const std::string_view name : {kAssistantToken, kUserToken, kEosToken}) {
    if (!tokenizer.ControlToken(name).has_value()) {
      return Fail("the tokenizer of " + model_dir + " has no " + std::string(name));
    }
  }
  return std::unique_ptr<ScriptedModel>(
      new ScriptedModel(std::move(tokenizer), std::move(options)));
}

const ScriptedModel::Answer* ScriptedModel::Choose(std::span<const int32_t> turn) {
  std::vector<int32_t> seen(
      turn.begin(), turn.begin() + static_cast<ptrdiff_t>(std::min(turn.size(), kTurnTokensMax)));
  if (turn.size() > kTurnTokensMax) {
    const size_t rest = std::min(turn.size() - kTurnTokensMax, kTurnTokensMax);
    seen.insert(seen.end(), turn.end() - static_cast<ptrdiff_t>(rest), turn.end());
  }
  uint64_t digest = 14695981039346656037U;  // FNV-1a
  for (const int32_t id : seen) digest = (digest ^ static_cast<uint32_t>(id)) * 1099511628211U;
  const auto known = chosen_.find(digest);
  if (known != chosen_.end()) return known->second;
  const std::string text = tokenizer_.DecodeBytes(seen);
  const auto fits = [&](const Answer& answer) {
    return text.find(answer.pattern) != std::string::npos;
  };
  const auto found = std::find_if(answers_.begin(), answers_.end(), fits);
  const Answer* answer = found == answers_.end() ? nullptr : &*found;
  if (chosen_.size() >= kChosenMax) chosen_.clear();
  chosen_.emplace(digest, answer);
  return answer;
}

int32_t ScriptedModel::NextOfText(std::span<const int32_t> history) {
  const auto last = std::find(history.rbegin(), history.rend(), line_break_);
  if (last == history.rend()) return eos_;
  const auto drawn = static_cast<size_t>(last - history.rbegin());
  const Answer* answer = Choose(history.first(history.size() - drawn));
  return answer != nullptr && drawn < answer->plain.size() ? answer->plain[drawn] : eos_;
}

int32_t ScriptedModel::Next(std::span<const int32_t> history) {
  const auto last = std::find(history.rbegin(), history.rend(), assistant_);
  if (last == history.rend()) return NextOfText(history);
  const auto header = static_cast<size_t>(history.rend() - last) - 1;  // of the assistant token
  const auto before = history.first(header);
  const auto user = std::find(before.rbegin(), before.rend(), user_);
  const Answer* answer = Choose(before.last(static_cast<size_t>(user - before.rbegin())));
  std::span<const int32_t> drawn = history.subspan(header + 1);
  bool thinking = true;
  if (!drawn.empty() && (drawn.front() == think_start_ || drawn.front() == think_end_)) {
    thinking = drawn.front() == think_start_;
    drawn = drawn.subspan(1);
  }
  if (answer == nullptr) return eos_;
  const std::vector<int32_t>& ids = thinking ? answer->thinking : answer->plain;
  return drawn.size() < ids.size() ? ids[drawn.size()] : eos_;
}

ForwardFunction ScriptedModel::function() {
  return [this](std::span<const ForwardSequence> sequences) -> Status {
    int64_t rows = 0;
    for (const ForwardSequence& sequence : sequences) {
      rows += sequence.new_tokens;
      if (sequence.logits.empty()) continue;
      std::fill(sequence.logits.begin(), sequence.logits.end(), 0.0f);
      sequence.logits[static_cast<size_t>(Next(sequence.history))] = kChosenLogit;
    }
    const auto delay = options_.step_delay + rows * options_.row_delay;
    if (delay.count() > 0) std::this_thread::sleep_for(delay);
    return {};
  };
}

}  // namespace minke::testing

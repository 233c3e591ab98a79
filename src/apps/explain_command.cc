// minke cache explain: what of a prompt is known, and why not more, without running the model.
#include <iostream>

#include <fmt/format.h>

#include "apps/cache_report.h"
#include "apps/commands.h"
#include "apps/common.h"
#include "apps/prompt_input.h"
#include "apps/terminal.h"

namespace minke {
namespace {

// Tokens shown before and after the first difference.
constexpr int64_t kContextTokens = 12;

// The place of the first difference in words: "...text before >>> text from there on...".
Result<std::string> Around(const Engine& engine, std::span<const int32_t> ids, int64_t position) {
  const auto size = static_cast<int64_t>(ids.size());
  const int64_t begin = std::max<int64_t>(0, position - kContextTokens);
  const int64_t end = std::min(size, position + kContextTokens);
  const auto text = [&](int64_t from, int64_t to) {
    return engine.Detokenize(
        ids.subspan(static_cast<size_t>(from), static_cast<size_t>(to - from)));
  };
  const std::string before = TRY(text(begin, position));
  const std::string after = TRY(text(position, end));
  return EscapeForTerminal(before) + " >>> " + EscapeForTerminal(after);
}

Status Explain(const ExplainFlags& flags) {
  const std::string file_text = TRY(ReadPromptFile(flags));
  EngineOptions options = TRY(MakeEngineOptions(flags.model, flags.cache));
  options.cache.disk_read_only = true;
  const std::unique_ptr<Engine> engine = TRY(Engine::Open(options));
  const ChatPrompt prompt = TRY(MakePrompt(*engine, flags, file_text));
  const CacheUse use = TRY(engine->ExplainCache(prompt.ids, flags.cache.tenant));
  const auto size = static_cast<int64_t>(prompt.ids.size());
  const bool differs = use.first_difference >= 0 && use.first_difference < size;
  const std::string around =
      differs ? TRY(Around(*engine, prompt.ids, use.first_difference)) : std::string();
  if (flags.json) {
    Json json = CacheUseJson(use);
    json.Set("prompt_tokens", size);
    json.Set("explanation", ExplainCacheUse(use));
    json.Set("around", differs ? Json(around) : Json());
    std::cout << DumpJson(json, JsonStyle::kPretty) << '\n';
    return {};
  }
  std::cout << fmt::format(
      "prompt     {} tokens\n"
      "cached     {} ({} in the memory of this process, {} on disk)\n"
      "replayed   {}\n"
      "computed   {}\n"
      "reason     {}\n"
      "           {}\n",
      size, use.cached_tokens, use.ram_tokens, use.disk_tokens, use.replayed_tokens,
      use.computed_tokens, use.reason, ExplainCacheUse(use));
  if (differs) std::cout << fmt::format("token {:<5}{}\n", use.first_difference, around);
  return {};
}

}  // namespace

int RunExplain(const ExplainFlags& flags) {
  const Status status = Explain(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

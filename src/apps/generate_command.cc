// minke generate: one prompt, one answer, as text or as JSON.
#include <atomic>
#include <fstream>
#include <iostream>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "apps/cache_report.h"
#include "apps/commands.h"
#include "apps/common.h"
#include "apps/interrupts.h"
#include "apps/prompt_input.h"
#include "apps/terminal.h"
#include "text/control_tokens.h"
#include "text/output_parser.h"

namespace minke {
namespace {

double Rate(int64_t count, double seconds) {
  return seconds > 0 ? static_cast<double>(count) / seconds : 0.0;
}

// Writes one float32 little-endian row per drawn token: what it was drawn from.
class LogitsFile {
 public:
  explicit LogitsFile(const std::string& path) : path_(path) {
    if (!path.empty()) file_.open(path, std::ios::binary | std::ios::trunc);
  }
  void Write(std::span<const float> logits) {
    if (path_.empty() || logits.empty()) return;
    file_.write(reinterpret_cast<const char*>(logits.data()),
                static_cast<std::streamsize>(logits.size_bytes()));
  }
  Status Finish() {
    if (path_.empty()) return {};
    file_.close();
    if (file_.good()) return {};
    return Fail(ErrorCode::kIo, fmt::format("{} could not be written.", path_));
  }

 private:
  std::string path_;
  std::ofstream file_;
};

Json LogprobJson(const Engine& engine, const TokenLogprob& token) {
  Json json;
  json.Set("id", static_cast<int64_t>(token.id));
  json.Set("text", engine.Detokenize({&token.id, 1}).value_or(std::string()));
  json.Set("logprob", token.logprob);
  return json;
}

Json EventLogprobs(const Engine& engine, const TokenEvent& event) {
  Json json = LogprobJson(engine, *event.logprob);
  JsonArray top;
  for (const TokenLogprob& token : event.alternatives) top.push_back(LogprobJson(engine, token));
  json.Set("top_logprobs", std::move(top));
  return json;
}

// Reasoning, content and tool calls by the strict rules where the text is well formed, otherwise
// by the end of the reasoning alone, saying why.
void SetMessage(const ChatPrompt& prompt, const GenerationResult& result, Json* json) {
  const ThinkingMode mode = prompt.thinking ? ThinkingMode::kThinking : ThinkingMode::kChat;
  Result<ParsedCompletion> parsed = ParseCompletion(result.text + std::string(kEosToken), mode);
  if (!parsed || result.finish_reason != FinishReason::kStop) {
    json->Set("reasoning_content", result.reasoning);
    json->Set("content", result.answer);
    json->Set("parse_error",
              parsed ? Json("The answer did not end by itself.") : Json(parsed.error().message));
    return;
  }
  json->Set("reasoning_content", parsed->reasoning_content);
  json->Set("content", parsed->content);
  JsonArray calls;
  for (const ParsedToolCall& call : parsed->tool_calls) {
    Json entry;
    entry.Set("name",
              call.tool_namespace.empty() ? call.name : call.tool_namespace + "::" + call.name);
    entry.Set("arguments", call.arguments);
    calls.push_back(std::move(entry));
  }
  json->Set("tool_calls", std::move(calls));
}

Json UsageJson(const GenerationResult& result) {
  Json usage;
  const auto completion = static_cast<int64_t>(result.ids.size());
  usage.Set("prompt_tokens", result.prompt_tokens);
  usage.Set("completion_tokens", completion);
  usage.Set("reasoning_tokens", result.reasoning_tokens);
  usage.Set("prompt_cache_hit_tokens", result.cache.cached_tokens);
  usage.Set("prompt_cache_miss_tokens", result.prompt_tokens - result.cache.cached_tokens);
  usage.Set("total_tokens", result.prompt_tokens + completion);
  return usage;
}

Json TimingsJson(const GenerationResult& result) {
  Json timings;
  const auto drawn = static_cast<int64_t>(result.ids.size());
  timings.Set("prefill_seconds", result.prefill_seconds);
  timings.Set("prefill_tokens_per_second",
              Rate(result.prompt_tokens - result.cache.cached_tokens, result.prefill_seconds));
  timings.Set("decode_seconds", result.decode_seconds);
  timings.Set("decode_tokens_per_second", Rate(drawn - 1, result.decode_seconds));
  return timings;
}

Json CacheJson(const Engine& engine, const Session& session, const CacheUse& use) {
  const SessionMemory memory = session.memory();
  Json cache = CacheUseJson(use);
  cache.Set("bytes_per_token", engine.info().kv_bytes_per_token);
  cache.Set("used_bytes", memory.used_bytes);
  cache.Set("capacity_bytes", memory.capacity_bytes);
  cache.Set("constant_bytes", memory.constant_bytes);
  return cache;
}

Json WeightsJson(const GenerationResult& result) {
  const WeightsUse& use = result.weights;
  Json weights;
  weights.Set("budget_bytes", use.budget_bytes);
  weights.Set("dense_bytes", use.dense_bytes);
  weights.Set("expert_slots", use.expert_slots);
  weights.Set("expert_count", use.expert_count);
  weights.Set("direct_io", use.direct);
  weights.Set("compute_seconds", ComputeSeconds(result));
  weights.Set("wait_seconds", use.wait_seconds);
  weights.Set("read_bytes", use.read_bytes);
  weights.Set("waited_bytes", use.waited_bytes);
  weights.Set("expert_hits", use.expert_hits);
  weights.Set("expert_misses", use.expert_misses);
  weights.Set("experts_prefetched", use.experts_prefetched);
  weights.Set("expert_prefetch_hits", use.expert_prefetch_hits);
  weights.Set("engram_hits", use.engram_hits);
  weights.Set("engram_misses", use.engram_misses);
  return weights;
}

Json ResultJson(const Engine& engine, const GenerateFlags& flags, const ChatPrompt& prompt,
                const GenerationResult& result, const Session& session, uint64_t seed) {
  Json json;
  json.Set("model", engine.info().model_dir);
  json.Set("random_weights", engine.info().random_weights);
  json.Set("numerics", flags.model.numerics);
  json.Set("kernels", engine.info().kernels);
  json.Set("seed", seed);
  json.Set("prompt", prompt.text);
  json.Set("prompt_ids", JsonIds(prompt.ids));
  json.Set("ids", JsonIds(result.ids));
  json.Set("text", result.text);
  if (!flags.raw) SetMessage(prompt, result, &json);
  json.Set("finish_reason", FinishReasonName(result.finish_reason));
  if (result.finish_reason == FinishReason::kStopString) {
    json.Set("stop_string", result.stop_string);
  }
  json.Set("usage", UsageJson(result));
  json.Set("timings", TimingsJson(result));
  json.Set("cache", CacheJson(engine, session, result.cache));
  if (result.weights.streamed) json.Set("weights", WeightsJson(result));
  return json;
}

int64_t MaxTokens(const GenerateFlags& flags, const ChatPrompt& prompt) {
  if (flags.max_tokens >= 0) return flags.max_tokens;
  return prompt.thinking ? kThinkingAnswerTokensDefault : kAnswerTokensDefault;
}

Status Generate(const GenerateFlags& flags) {
  // Before Ctrl-C is watched for, so that it ends a program that waits for its input.
  const std::string file_text = TRY(ReadPromptFile(flags));
  Interrupts interrupts = TRY(Interrupts::Create());
  std::atomic<bool> cancel = false;
  const std::unique_ptr<InterruptWatch> watch =
      TRY(InterruptWatch::Start(interrupts, cancel, /*second_exits=*/true));
  const std::unique_ptr<Engine> engine = TRY(OpenEngine(flags.model, flags.cache));
  const ChatPrompt prompt = TRY(MakePrompt(*engine, flags, file_text));
  LogitsFile logits_file(flags.logits_out);
  StatusLine status;
  AnswerPrinter printer;
  JsonArray logprobs;

  GenerationOptions options;
  options.sampling = flags.sampling;
  options.sampling.seed = ChooseSeed(flags.seed);
  options.max_tokens = MaxTokens(flags, prompt);
  options.tenant = flags.cache.tenant;
  options.ignore_eos = flags.ignore_eos;
  options.stop_strings = flags.stop;
  options.stop_tokens = flags.stop_tokens;
  options.cancel = &cancel;
  options.prefill_progress = [&](int64_t done, int64_t total) { status.ShowPrefill(done, total); };
  options.on_token = [&](const TokenEvent& event) {
    status.Clear();
    logits_file.Write(event.logits);
    if (event.logprob != nullptr) logprobs.push_back(EventLogprobs(*engine, event));
    if (!flags.json) printer.Print(event);
  };
  const std::unique_ptr<Session> session = engine->NewSession();
  const GenerationResult result = TRY(engine->Generate(*session, prompt.ids, options));
  status.Clear();
  if (!flags.json) printer.Finish();
  TRY_STATUS(logits_file.Finish());
  if (flags.json) {
    Json json = ResultJson(*engine, flags, prompt, result, *session, options.sampling.seed);
    if (options.sampling.logprobs >= 0) json.Set("logprobs", std::move(logprobs));
    std::cout << DumpJson(json, JsonStyle::kCompact) << '\n';
  }
  if (flags.stats) PrintAnswerStats(*engine, result, *session);
  engine->FlushCache();
  NoteDiskWarning(*engine);
  if (result.finish_reason == FinishReason::kCancelled) {
    return Fail(ErrorCode::kCancelled,
                fmt::format("Stopped by {}; what was written is incomplete.", interrupts.Name()));
  }
  return {};
}

}  // namespace

int RunGenerate(const GenerateFlags& flags) {
  const Status status = Generate(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

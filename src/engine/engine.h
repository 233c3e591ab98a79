// The engine as a library: the one header that an embedding program, the command line and the
// server include. It hides the model behind a pointer and speaks in token ids and UTF-8 text.
//
// Two nouns. An Engine is a loaded model; it is immutable but for its worker threads and scratch.
// A Session is one mutable timeline of tokens whose state (the cache) is in memory. Callers pass
// the full list of tokens each time, and the session works out what it can keep: the state of a
// sequence cannot be rewound, so a list that continues what is in memory costs only the new
// tokens, and any other list starts over.
//
// Thread safety: one call at a time over an Engine and all its Sessions, because they share the
// worker threads. Only GenerationOptions::cancel may be set from elsewhere, a signal handler
// included. An Engine outlives its Sessions.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace minke {

// Which values are rounded where. kOfficial is the model; the float32 modes are for diagnosis.
enum class NumericMode {
  kOfficial,       // every rounding point of the model
  kF32,            // no rounding of activations or caches
  kF32CacheQuant,  // float32 activations, quantized caches
};
// "official", "f32", "f32-cachequant".
const char* NumericModeName(NumericMode mode);
Result<NumericMode> ParseNumericMode(std::string_view name);

// Which implementation of the arithmetic. They give the same bits.
enum class KernelChoice {
  kDefault,    // SIMD for official numerics, the plain twins for the float32 modes
  kReference,  // the plain twins, for diagnosis
  kFast,       // SIMD
};

inline constexpr int64_t kPrefillChunkTokensDefault = 256;
inline constexpr int64_t kPrefillChunkTokensMax = 4096;
inline constexpr size_t kStopStringsMax = 16;       // strings
inline constexpr size_t kStopStringBytesMax = 512;  // bytes of one string
inline constexpr int kLogprobsMax = 20;             // alternatives reported per token

struct EngineOptions {
  std::string model_dir;  // config.json, tokenizer.json, *.safetensors
  int threads = 0;        // 0: one per processor this process may use
  NumericMode numerics = NumericMode::kOfficial;
  // Reproduce the official reference's stale index keys on open groups (architecture.md 4.9).
  bool reference_artifacts = false;
  KernelChoice kernels = KernelChoice::kDefault;
  int64_t context_tokens_max = 0;  // 0: max_position_embeddings of the model
  // Rows of one forward call while reading a prompt. Any value gives the same bits.
  int64_t prefill_chunk_tokens = kPrefillChunkTokensDefault;
};

struct EngineInfo {
  std::string model_dir;
  std::string description;  // "10 layers, hidden size 128, ...", for people
  int64_t layer_count = 0;
  int64_t vocab_size = 0;
  int64_t parameter_count = 0;    // logical elements, every part of the checkpoint
  uint64_t checkpoint_bytes = 0;  // all shards
  uint64_t memory_bytes = 0;      // physical memory of the machine, 0 if unknown
  int64_t context_tokens_max = 0;
  double kv_bytes_per_token = 0;   // what each further token of context costs
  int64_t window_state_bytes = 0;  // sliding windows of one sequence, whatever its length
  int threads = 0;
  std::string kernels;                // "reference", or the SIMD target
  bool random_weights = false;        // minke.json beside the weights says that nobody trained them
  std::vector<std::string> warnings;  // whole sentences
};

// Filters apply in this order: penalties and bias, temperature, top_k, top_p, min_p; then the
// draw. Each later filter sees the distribution that the earlier ones left.
struct SamplingOptions {
  double temperature =
      0.0;  // 0: greedy, the best logit, lower id on ties. At most 100; positive values count as at
  // least 1e-5, as in the reference.
  int64_t top_k = 0;   // the k best; 0: all
  double top_p = 1.0;  // (0, 1]: the fewest best tokens that hold this much of the probability
  double min_p = 0.0;  // [0, 1]: at least this share of the best token's probability
  // Positive logits of tokens seen in prompt or answer are divided by it, others multiplied.
  double repetition_penalty = 1.0;  // (0, 100]
  double presence_penalty = 0.0;    // [-2, 2]: subtracted once from tokens of the answer
  double frequency_penalty = 0.0;   // [-2, 2]: subtracted per occurrence in the answer
  std::vector<std::pair<int32_t, double>> logit_bias;  // added after the penalties
  // The draw at a position depends on seed, position and logits alone: not on what else runs, and
  // not on whether the tokens before it were generated or read.
  uint64_t seed = 0;
  int logprobs = -1;  // alternatives to report per token, at most kLogprobsMax; -1: no logprobs
};

struct TokenLogprob {
  int32_t id = 0;
  double logprob = 0;  // natural logarithm, of the model's own softmax before any filter
};

inline constexpr int32_t kNoToken = -1;

struct TokenEvent {
  int32_t id = kNoToken;  // kNoToken: text that was held back, now due
  int64_t position = 0;   // in the timeline
  // Whole characters, possibly none: half characters and beginnings of stop strings are held back.
  std::string_view text;
  bool is_control = false;    // a control token, e.g. the end of reasoning; text is its name
  bool in_reasoning = false;  // before the end-of-reasoning token of a prompt that opened it
  const TokenLogprob* logprob = nullptr;       // of `id`, if asked for
  std::span<const TokenLogprob> alternatives;  // best first, if asked for
  std::span<const float> logits;               // [vocab_size] that the token was drawn from
};

enum class FinishReason {
  kStop,        // a stop token
  kStopString,  // a stop string; neither it nor anything after it is in the text
  kLength,      // max_tokens, or the context is full
  kCancelled,   // the caller asked
};
const char* FinishReasonName(FinishReason reason);  // "stop", "stop_string", "length", "cancelled"

struct GenerationOptions {
  SamplingOptions sampling;
  int64_t max_tokens = -1;           // -1: as many as the context has room for
  bool ignore_eos = false;           // the end-of-sequence token is a token like others
  std::vector<int32_t> stop_tokens;  // in addition to the end-of-sequence token
  // Matched in answer text only, never in reasoning, across token borders (serving.md 1.4).
  std::vector<std::string> stop_strings;
  const std::atomic<bool>* cancel = nullptr;  // looked at between chunks and between tokens
  std::function<void(int64_t done, int64_t total)> prefill_progress;  // tokens
  std::function<void(const TokenEvent&)> on_token;
};

struct GenerationResult {
  FinishReason finish_reason = FinishReason::kLength;
  bool context_full = false;  // kLength because the context has no room left
  std::string stop_string;    // which one, for kStopString
  std::vector<int32_t> ids;   // drawn tokens, a stop token included
  std::string text;           // all event texts; a stop token adds none
  std::string reasoning;      // the part before the end-of-reasoning token
  std::string answer;         // the part after it, or everything where none was opened
  int64_t prompt_tokens = 0;
  int64_t reused_tokens = 0;     // of the prompt, already in the cache
  int64_t reasoning_tokens = 0;  // up to and with the end-of-reasoning token
  double prefill_seconds = 0;
  double decode_seconds = 0;  // after the first token was drawn
};

// Bytes that a session holds.
struct SessionMemory {
  int64_t used_bytes = 0;      // rows of the tokens in the timeline
  int64_t capacity_bytes = 0;  // blocks held for them
  int64_t constant_bytes = 0;  // windows, open groups and history
};

class Engine;
class Generation;  // one running Generate(), see generation.cc

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The tokens whose state is in memory.
  std::span<const int32_t> tokens() const;
  SessionMemory memory() const;
  void Reset();

 private:
  friend class Engine;
  friend class Generation;
  struct Impl;
  explicit Session(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

struct ChatOptions {
  // Unset: what the request says, or thinking.
  std::optional<bool> thinking;
  std::string effort;          // "low", "high", "max", "1" ... "100"; empty: what the request says
  bool drop_thinking = false;  // leave out the reasoning of earlier turns (serving.md 2.3)
  // Encode only what follows the first `context_messages` messages, which are in the timeline.
  int64_t context_messages = 0;
};

struct ChatPrompt {
  std::string text;
  std::vector<int32_t> ids;
  bool thinking = false;
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> Open(const EngineOptions& options);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  const EngineInfo& info() const;

  // Plain text: nothing in it becomes a control token.
  Result<std::vector<int32_t>> Tokenize(std::string_view text) const;
  // Control tokens by name; ids outside the vocabulary are an error.
  Result<std::string> Detokenize(std::span<const int32_t> ids) const;
  // The begin-of-sequence token and the plain text: the prompt of a base-model continuation.
  Result<std::vector<int32_t>> TextPrompt(std::string_view text) const;
  // `json`: an array of messages, or an object with `messages` and, if wanted, `tools`,
  // `response_format`, `thinking`, `reasoning_effort`. `what` names it in errors.
  Result<ChatPrompt> EncodeChat(std::string_view json, std::string_view what,
                                const ChatOptions& options) const;

  int32_t eos_token() const;
  // The id of a control token by its text, e.g. "</think>".
  std::optional<int32_t> ControlToken(std::string_view text) const;

  std::unique_ptr<Session> NewSession() const;

  // Makes the session's timeline begin with `prompt` and continues it. Afterwards the timeline is
  // the prompt and the drawn tokens but the last, which nothing has read yet. A cancelled prompt
  // leaves what was read of it. Errors: a prompt that is empty, has ids outside the vocabulary or
  // leaves no room in the context; options out of range; logits that are not numbers.
  Result<GenerationResult> Generate(Session& session, std::span<const int32_t> prompt,
                                    const GenerationOptions& options) const;

 private:
  friend class Session;
  friend class Generation;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minke

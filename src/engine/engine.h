// The engine as a library: the one header that an embedding program, the command line and the
// server include. It hides the model behind a pointer and speaks in token ids and UTF-8 text.
//
// Two nouns. An Engine is a loaded model with its prefix cache. A Session is one mutable timeline
// of tokens whose working state is in memory. Callers pass the full list of tokens each time, and
// the engine works out what it need not compute: a list that continues the session's timeline costs
// only the new tokens; of any other list, what the prefix cache knows of its beginning, in memory
// or on disk (docs/cache.md). Every answer says what was cached and, if little was, why.
//
// Thread safety: one call at a time over an Engine and all its Sessions, because they share the
// worker threads and the cache. Only GenerationOptions::cancel may be set from elsewhere, a signal
// handler included. An Engine outlives its Sessions.
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

// How a prompt is read, and from what a cached beginning of one may be continued.
enum class PrefillMode {
  // Every layer for every token; continued from snapshots only. Any way to an answer gives the same
  // bits.
  kExact,
  // The upper layers for the last window of a prompt only (architecture.md 6.2, variant V3), and a
  // cached beginning may be continued by running its last window again (6.3). Half the work, and no
  // snapshot needed; answers depend a little on where a prompt was cut.
  kReplay,
};
const char* PrefillModeName(PrefillMode mode);  // "exact", "replay"
Result<PrefillMode> ParsePrefillMode(std::string_view name);

// The prefix cache: budgets, and where its disk tier is.
struct CacheOptions {
  // Rows of all sequences and of the cache, and working states of sequences. 0: a quarter of the
  // physical memory, at most 8 GiB. Never exceeded: a prompt that does not fit is refused.
  int64_t ram_bytes = 0;
  // Snapshots in memory. 0: an eighth of ram_bytes. On disk the same number again, at least.
  int64_t snapshot_bytes = 0;
  std::string disk_dir;                    // empty: no disk tier
  int64_t disk_bytes = int64_t{64} << 30;  // real disk blocks of everything in it
  int64_t disk_write_bytes_per_hour = int64_t{64} << 30;
  bool disk_read_only = false;  // look at a directory that another process may be using
  // Besides the ends of inputs, outputs and messages, a snapshot every so many tokens.
  int64_t snapshot_interval_tokens = 4096;
};
inline constexpr int64_t kSnapshotIntervalTokensMin = 128;
inline constexpr size_t kTenantBytesMax = 512;  // bytes of a tenant's name

inline constexpr int64_t kPrefillChunkTokensDefault = 256;
inline constexpr int64_t kPrefillChunkTokensMax = 4096;
inline constexpr size_t kStopStringsMax = 16;       // strings
inline constexpr size_t kStopStringBytesMax = 512;  // bytes of one string
inline constexpr int kLogprobsMax = 20;             // alternatives reported per token

// What a step computes for one timeline, for a function that stands in for the model.
struct ForwardSequence {
  std::span<const int32_t> history;  // every token of the timeline, the new ones of the step last
  int64_t new_tokens = 0;            // of them, at least one
  std::span<float> logits;           // [vocab_size] to be written, of what follows; empty: unwanted
};
// Computes a step of several timelines in place of the model. An error is that of every answer in
// the step.
using ForwardFunction = std::function<Status(std::span<const ForwardSequence>)>;

struct EngineOptions {
  std::string model_dir;  // config.json, tokenizer.json, *.safetensors
  int threads = 0;        // 0: one per processor this process may use
  // Each thread stays on a processor of its own, and so does whoever calls the engine. With more
  // threads than processors nobody does, and EngineInfo has a warning.
  bool pin_threads = false;
  NumericMode numerics = NumericMode::kOfficial;
  // Reproduce the official reference's stale index keys on open groups (architecture.md 4.9).
  bool reference_artifacts = false;
  KernelChoice kernels = KernelChoice::kDefault;
  int64_t context_tokens_max = 0;  // 0: max_position_embeddings of the model
  // The most that weights may take in memory; experts and Engram tables beyond it are read as they
  // are needed, and the bits stay the same. 0: all are mapped, and the system decides.
  int64_t weights_ram_bytes = 0;
  // Rows of one forward call while reading a prompt. Any value gives the same bits.
  int64_t prefill_chunk_tokens = kPrefillChunkTokensDefault;
  PrefillMode prefill = PrefillMode::kExact;
  CacheOptions cache;
  // For tests and load tests: what computes logits in place of the model, as a function of the
  // tokens alone. Everything else stays real, with rows of zeros. Its cache is one of its own.
  ForwardFunction forward;
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
  int64_t cache_ram_bytes = 0;     // the budgets in force
  int64_t cache_snapshot_bytes = 0;
  int64_t snapshot_bytes_max = 0;  // of one snapshot
  PrefillMode prefill = PrefillMode::kExact;
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

// What of a prompt was not computed, and why not more. cached + replayed + computed = the prompt.
struct CacheUse {
  int64_t cached_tokens = 0;  // neither computed nor run again
  int64_t ram_tokens = 0;     // of them, found in memory
  int64_t disk_tokens = 0;    // of them, read from disk
  // Known, and yet run again to rebuild working state. Together with computed_tokens, the miss.
  int64_t replayed_tokens = 0;
  int64_t computed_tokens = 0;
  std::string tier = "none";  // what the answer continued: "session", "ram", "disk" or "none"
  // "none" (all that was known was used), "cold", "diverged", "evicted", "other_tenant",
  // "other_model", "below_granularity", "damaged", "no_snapshot", "no_room".
  std::string reason = "none";
  int64_t first_difference = -1;  // index of the first token that no known chain has; -1: unknown
};
// The report's reason as a sentence for a person, with what to do about it.
std::string ExplainCacheUse(const CacheUse& report);

// Weights that are read as they are needed (EngineOptions::weights_ram_bytes): what memory holds of
// them, and totals since the engine was opened. An expert counts once for every step and layer that
// needs it.
struct WeightsUse {
  bool streamed = false;  // all else is 0 without
  bool direct = false;    // reads pass the system's page cache by
  int64_t budget_bytes = 0;
  int64_t dense_bytes = 0;   // always in memory
  int64_t expert_slots = 0;  // experts that fit, of expert_count in all layers
  int64_t expert_count = 0;
  int64_t read_bytes = 0;
  double wait_seconds = 0;   // in which the disk was waited for
  int64_t waited_bytes = 0;  // of read_bytes, what arrived in that time
  int64_t expert_hits = 0;   // in memory, or on their way
  int64_t expert_misses = 0;
  int64_t experts_prefetched = 0;    // read because the next layer was likely to need them
  int64_t expert_prefetch_hits = 0;  // and it did; these are hits, too
  int64_t engram_hits = 0;           // pages of the Engram tables
  int64_t engram_misses = 0;
};

// The cache as it is now. Bytes are those of the budgets.
struct CacheStatus {
  int64_t ram_used_bytes = 0;
  int64_t ram_blocks = 0;  // known to the cache, in memory
  int64_t ram_snapshots = 0;
  int64_t snapshot_used_bytes = 0;
  int64_t blocks_evicted = 0;  // from memory, since the engine was opened
  bool disk = false;           // there is a disk tier
  int64_t disk_used_bytes = 0;
  int64_t disk_bytes_written = 0;  // since the engine was opened
  int64_t disk_bytes_read = 0;
  int64_t disk_records_damaged = 0;
  std::string disk_warning;  // why the disk tier is switched off, a whole sentence; or empty
  WeightsUse weights;        // not of the prefix cache, but of the same memory
};

enum class FinishReason {
  kStop,        // a stop token
  kStopString,  // a stop string; neither it nor anything after it is in the text
  kLength,      // max_tokens, or the context or the memory for it is full
  kCancelled,   // the caller asked
};
const char* FinishReasonName(FinishReason reason);  // "stop", "stop_string", "length", "cancelled"

struct GenerationOptions {
  SamplingOptions sampling;
  int64_t max_tokens = -1;  // -1: as many as the context has room for
  bool ignore_eos = false;  // the end-of-sequence token is a token like others
  // Whose cache it is: tenants never share an entry. At most kTenantBytesMax bytes.
  std::string tenant;
  std::vector<int32_t> stop_tokens;  // in addition to the end-of-sequence token
  // Matched in answer text only, never in reasoning, across token borders (serving.md 1.4).
  std::vector<std::string> stop_strings;
  const std::atomic<bool>* cancel = nullptr;  // looked at between chunks and between tokens
  std::function<void(int64_t done, int64_t total)> prefill_progress;  // tokens
  std::function<void(const TokenEvent&)> on_token;
};

struct GenerationResult {
  FinishReason finish_reason = FinishReason::kLength;
  bool context_full = false;  // kLength because the context, or the memory for it, has no room left
  std::string stop_string;    // which one, for kStopString
  std::vector<int32_t> ids;   // drawn tokens, a stop token included
  std::string text;           // all event texts; a stop token adds none
  std::string reasoning;      // the part before the end-of-reasoning token
  std::string answer;         // the part after it, or everything where none was opened
  int64_t prompt_tokens = 0;
  CacheUse cache;
  int64_t reasoning_tokens = 0;  // up to and with the end-of-reasoning token
  double prefill_seconds = 0;
  double decode_seconds = 0;  // after the first token was drawn
  WeightsUse weights;         // totals of this answer
};

// Bytes that a session holds.
struct SessionMemory {
  int64_t used_bytes = 0;      // rows of the tokens in the timeline
  int64_t capacity_bytes = 0;  // blocks held for them
  int64_t constant_bytes = 0;  // windows, open groups and history
};

struct Prompt;  // text/chat_encoding.h
class Engine;
class Generation;  // one running Generate(), see generation.cc
class Sequence;    // one answer as it grows, see sequence.h
class Service;     // many answers at once, see service.h

class Session {
 public:
  ~Session();
  Session(const Session&) = delete;
  Session& operator=(const Session&) = delete;

  // The tokens whose working state is in memory. Empty after the engine had to take the memory of
  // an idle session for another one's prompt.
  std::span<const int32_t> tokens() const;
  SessionMemory memory() const;
  void Reset();

 private:
  friend class Engine;
  friend class Generation;
  friend class Sequence;
  friend class Service;
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

  // The ids of a prompt that was encoded already (text/chat_encoding.h).
  Result<std::vector<int32_t>> PromptIds(const Prompt& prompt) const;
  // The bytes that a token stands for; see Tokenizer::TokenBytes().
  std::string_view TokenBytes(int32_t id) const;

  int32_t eos_token() const;
  // The id of a control token by its text, e.g. "</think>".
  std::optional<int32_t> ControlToken(std::string_view text) const;

  std::unique_ptr<Session> NewSession() const;
  // The same timeline, ready to go another way: rows are shared, the constant state is copied. An
  // error where the memory budget has no room for it.
  Result<std::unique_ptr<Session>> Fork(const Session& session) const;

  CacheStatus cache_status() const;
  // What Generate() in a new session would report for this prompt, from the cache as it is now.
  Result<CacheUse> ExplainCache(std::span<const int32_t> prompt, std::string_view tenant) const;
  // Waits until everything that is to be on disk is there.
  void FlushCache() const;
  // Reads the whole checkpoint into memory, so that the first tokens do not wait for the disk.
  // progress(done, total), in bytes, ends it by returning false. May take minutes.
  void Prewarm(const std::function<bool(uint64_t done, uint64_t total)>& progress) const;
  // Copies the weights into memory of huge pages, each page near the processor of the thread that
  // reads it. Before the first Generate(); the answers stay the same. progress(done, total), in
  // bytes. May take minutes. Errors: too little memory, weights_ram_bytes, files that cannot be
  // read; then the engine must not be used.
  Status CopyWeights(const std::function<void(uint64_t done, uint64_t total)>& progress);
  // Forgets what is cached in memory, but for running work; for tests and measurements.
  void DropCacheMemory() const;

  // Makes the session's timeline begin with `prompt` and continues it. Afterwards the timeline is
  // the prompt and the drawn tokens but the last, which nothing has read yet. A cancelled prompt
  // leaves what was read of it. Errors: a prompt that is empty, has ids outside the vocabulary or
  // leaves no room in the context; options out of range; logits that are not numbers.
  Result<GenerationResult> Generate(Session& session, std::span<const int32_t> prompt,
                                    const GenerationOptions& options) const;

 private:
  friend class Session;
  friend class Generation;
  friend class Sequence;
  friend class Service;
  struct Impl;
  explicit Engine(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minke

// One answer as it grows: what of its prompt is still to be read, where snapshots are due, the draw
// of the next token, and when it ends. Generate() runs one of them, the service many at a time;
// they decide which rows the next step has, and this what those rows are. It can be set aside at
// any time between two steps and taken up again in another session: the same tokens come out.
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"
#include "engine/engine_impl.h"
#include "engine/sampler.h"

namespace minke {

// Memory that is set aside for an answer at a time.
inline constexpr int64_t kAnswerTokensReserved = 4096;
// Blocks of what is cached that are read from disk between two looks at what else there is to do:
// 14.6 MB at the released sizes.
inline constexpr int64_t kDiskBlocksAtOnce = 128;

struct SequenceOptions {
  SamplingOptions sampling;
  int64_t max_tokens = -1;  // -1: as many as the context has room for
  bool ignore_eos = false;
  std::vector<int32_t> stop_tokens;  // in addition to the end-of-sequence token
  std::string tenant;
};

enum class SequencePhase {
  kWaiting,  // without memory: new, or set aside
  kLoading,  // the disk has more of what is cached: call TakeUp() again
  kPrefill,  // rows of the history are to be read
  kDraw,     // all is read, and the logits of the last row are there
  kDecode,   // the token drawn last is to be read
};

// A token that was drawn.
struct DrawnToken {
  int32_t id = 0;
  int64_t position = 0;  // in the timeline
  bool is_stop = false;
  std::optional<Logprobs> logprobs;  // if asked for
};

class Sequence {
 public:
  // What can be said against the request before anything runs.
  static Status Check(const Engine::Impl& engine, std::span<const int32_t> prompt,
                      const SequenceOptions& options);
  // REQUIRES that Check() has nothing against it.
  Sequence(Engine::Impl& engine, std::vector<int32_t> prompt, SequenceOptions options);
  ~Sequence() { CHECK(session_ == nullptr, "a sequence was not set aside"); }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  SequencePhase phase() const { return phase_; }
  std::span<const int32_t> history() const { return history_; }  // prompt and drawn tokens
  int64_t prompt_tokens() const { return prompt_tokens_; }
  std::span<const int32_t> answer() const {
    return history().subspan(static_cast<size_t>(prompt_tokens_));
  }
  // Of the history, what has been read, and what is left.
  int64_t read_tokens() const { return static_cast<int64_t>(session_->tokens.size()); }
  int64_t rows_left() const { return static_cast<int64_t>(history_.size()) - read_tokens(); }
  // What the cache had when it was first taken up.
  const CacheUse& cache_use() const { return cache_use_; }

  // ---- memory ----
  // Begins, or goes on, in this session, which stays the caller's and is in use from now on. Reads
  // at most so many blocks from disk, then the phase is kLoading; otherwise kPrefill or kDraw.
  // `alone`: if memory has no room for the whole answer, less will do. Errors: no room; then it is
  // waiting as before.
  Status TakeUp(Session::Impl& session, bool alone,
                int64_t disk_blocks_max = std::numeric_limits<int64_t>::max());
  // Leaves what was read in the cache and waits. The session may be used otherwise then.
  void SetAside();

  // ---- one step ----
  // The next rows, at most rows_max, and no further than where a snapshot is due: valid until
  // Advance(). REQUIRES kPrefill or kDecode.
  StepRows NextRows(int64_t rows_max) const;
  // They were computed: so many of them are history now. Publishes the snapshot that is due.
  void Advance(int64_t count);
  // REQUIRES kDraw. Errors: logits that are not numbers.
  Result<DrawnToken> Draw(std::span<const float> logits);
  // Why the answer ends after the token drawn last, if it does; stop strings and cancelled requests
  // are the caller's.
  std::optional<FinishReason> Ending(const DrawnToken& token) const;
  int64_t max_tokens() const { return options_.max_tokens; }
  // max_tokens of the answer are there.
  bool has_max_tokens() const {
    return options_.max_tokens >= 0 && answer_tokens() >= options_.max_tokens;
  }
  // Makes room for the token drawn last, and for some that follow it. False where memory has none.
  bool Grow();

 private:
  bool IsStopToken(int32_t id) const;
  int64_t answer_tokens() const { return static_cast<int64_t>(answer().size()); }
  Status Admit(bool alone);
  Status CreateSampler();

  Engine::Impl& engine_;
  SequenceOptions options_;
  CacheKey tenant_key_;
  std::vector<int32_t> history_;
  int64_t prompt_tokens_ = 0;
  SequencePhase phase_ = SequencePhase::kWaiting;
  Session::Impl* session_ = nullptr;
  std::optional<Sampler> sampler_;
  std::vector<int64_t> cuts_;  // where snapshots are due while the history is read
  size_t cut_ = 0;             // the next of them
  int64_t decoder_start_ = 0;
  CacheUse cache_use_;
  bool was_taken_up_ = false;
};

}  // namespace minke

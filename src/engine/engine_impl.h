// What is behind the pointers of engine.h. For the files of this folder only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/block_pool.h"
#include "core/tensor.h"
#include "core/thread_pool.h"
#include "engine/engine.h"
#include "engine/model_loader.h"
#include "engine/resume.h"
#include "model/state.h"
#include "prefix_cache/block_store.h"
#include "prefix_cache/prefix_cache.h"

namespace minke {

// Block size of the pool for a model without rows, which takes none.
inline constexpr int64_t kNoRowsBlockBytes = 1;

// New tokens of one timeline in a step.
struct StepRows {
  SequenceState* state = nullptr;
  std::vector<int32_t>* timeline = nullptr;  // the tokens that the state has seen
  std::span<const int32_t> tokens;           // the new ones, at least one; not of the timeline
  bool want_logits = false;                  // of what follows the last of them
  int64_t decoder_from = 0;                  // the upper layers run from this row on
};

struct Engine::Impl {
  Impl(LoadedModel loaded_in, const EngineOptions& options_in, int threads)
      : options(options_in),
        loaded(std::move(loaded_in)),
        pool(threads, kShareCostMin, PinningOf(options_in)) {}

  // Opens the tiers as options.cache says; fills the budgets of info.
  Status OpenCache();
  // Takes memory from cached chains, then from idle sessions, until the pool of rows has so much
  // room. Spares sessions that are in use.
  bool MakeRoom(int64_t bytes);
  // Computes rows of several timelines in one call and makes them history. logits: [rows that want
  // them, vocab_size], in order. After an error the timelines are as before.
  Status RunStep(std::span<const StepRows> parts, View<float> logits);
  // The same by options.forward.
  Status RunSubstitute(std::span<const StepRows> parts, View<float> logits);
  // Where the prompt is to be cut for a snapshot: ascending positions in (start, prompt.size()).
  std::vector<int64_t> SnapshotCuts(std::span<const int32_t> prompt, int64_t start,
                                    int64_t known_tokens) const;
  int64_t window() const { return loaded.model->config().sliding_window; }

  EngineOptions options;
  LoadedModel loaded;
  EngineInfo info;
  std::optional<int32_t> think_start;
  std::optional<int32_t> think_end;
  std::vector<int32_t> message_starts;  // control tokens with which a message begins
  // Shared by every call, hence one call at a time (engine.h).
  ThreadPool pool;
  Arena arena;
  // In this order: the cache goes before the store, and both before the pools.
  std::unique_ptr<BlockPool> rows;
  std::unique_ptr<BlockPool> snapshots;
  std::unique_ptr<BlockStore> store;     // null without a disk tier
  std::unique_ptr<PrefixCache> cache;    // null where nothing can be cached
  std::vector<Session::Impl*> sessions;  // latest used last
};

struct Session::Impl {
  explicit Impl(Engine::Impl& engine_in);
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  // Prepares the state for `history`: goes on with the timeline, or with what the cache knows, or
  // from the start. Afterwards `tokens` is the beginning of it that need not run. Nothing where the
  // disk has more than the blocks that one call may read: then it is to be called again, with the
  // same arguments. prompt_tokens: of the history, read as a prompt; the rest is an answer to it.
  // Errors: the memory budget has no room for the working state.
  Result<std::optional<CacheUse>> Resume(std::span<const int32_t> history, int64_t prompt_tokens,
                                         const CacheKey& tenant_key, int64_t disk_blocks_max);
  // Sets memory aside for a growth to `length` tokens, or says why that cannot be.
  Status Admit(int64_t length);
  // Makes the full blocks known to the cache, and the state at its present length resumable.
  void PublishBlocks();
  void PublishSnapshot();
  // Gives all memory back; the timeline is empty.
  void Drop();
  Status NewState();

  Engine::Impl& engine;
  std::unique_ptr<SequenceState> state;  // null while the timeline is empty
  ChainPin pin;                          // of the chain that the state shares blocks with
  CacheKey tenant;
  std::vector<int32_t> tokens;  // as many as the state's length
  std::vector<float> logits;    // [vocab_size] after the last token; empty if it was not asked for
  int64_t charged_bytes = 0;    // of the state's constant part, in the pool of rows
  int64_t known_tokens = 0;     // how far rows were known when the prompt was resumed
  bool in_use = false;          // an answer is being written: its memory is not to be taken

 private:
  bool Continues(std::span<const int32_t> history, int64_t prompt_tokens,
                 const CacheKey& tenant_key) const;
  // Goes on with what the cache has, or from the start.
  Result<CacheUse> TakeOver(const CacheMatch& match, std::span<const int32_t> history,
                            int64_t prompt_tokens);
  // Makes the state what the plan says. False if the snapshot cannot be used after all.
  bool Restore(const ResumePlan& plan, const CacheMatch& match, std::span<const int32_t> history,
               int64_t prompt_tokens);

  std::optional<DiskReading> reading_;  // while Resume() is called again and again
};

}  // namespace minke

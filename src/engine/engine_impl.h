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

struct Engine::Impl {
  Impl(LoadedModel loaded_in, const EngineOptions& options_in, int threads)
      : options(options_in), loaded(std::move(loaded_in)), pool(threads) {}

  // Opens the tiers as options.cache says; fills the budgets of info.
  Status OpenCache();
  // Takes memory from cached chains, then from idle sessions, until the pool of rows has so much
  // room. Spares `running`.
  bool MakeRoom(int64_t bytes, const Session::Impl* running);
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

  // Prepares the state for a prompt: goes on with the timeline, or with what the cache knows, or
  // from the start. Afterwards `tokens` is the beginning of the prompt that need not run. Errors:
  // the memory budget has no room for the prompt.
  Result<CacheUse> Resume(std::span<const int32_t> prompt, const CacheKey& tenant_key);
  // Sets memory aside for a growth to `length` tokens, or says why that cannot be.
  Status Admit(int64_t length);
  // Reads tokens into the state; the upper layers run from row decoder_from on. With want_logits,
  // `logits` are those after the last of them.
  Status Append(std::span<const int32_t> ids, bool want_logits, int64_t decoder_from = 0);
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

 private:
  // Makes the state what the plan says. False if the snapshot cannot be used after all.
  Result<bool> Restore(const ResumePlan& plan, const CacheMatch& match,
                       std::span<const int32_t> prompt);
};

}  // namespace minke

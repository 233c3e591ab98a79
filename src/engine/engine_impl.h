// What is behind the pointers of engine.h. For engine.cc and generation.cc only.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "core/tensor.h"
#include "core/thread_pool.h"
#include "engine/engine.h"
#include "engine/model_loader.h"
#include "model/state.h"

namespace minke {

struct Engine::Impl {
  Impl(LoadedModel loaded_in, const EngineOptions& options_in, int threads)
      : options(options_in), loaded(std::move(loaded_in)), pool(threads) {}

  EngineOptions options;
  LoadedModel loaded;
  EngineInfo info;
  std::optional<int32_t> think_start;
  std::optional<int32_t> think_end;
  // Shared by every call, hence one call at a time (engine.h).
  ThreadPool pool;
  Arena arena;
};

struct Session::Impl {
  explicit Impl(const Model& model_in) : model(&model_in), state(model_in.NewSequence()) {}

  const Model* model;
  std::unique_ptr<SequenceState> state;
  std::vector<int32_t> tokens;  // as many as the state's length
  std::vector<float> logits;    // [vocab_size] after the last token; empty if it was not asked for

  // Reads tokens into the state. With want_logits, `logits` are those after the last of them.
  Status Append(Engine::Impl& engine, std::span<const int32_t> ids, bool want_logits);
  void Reset();
};

}  // namespace minke

// A sequence with a long past that nobody computed: random rows in its cache. For measurements
// only; what it generates means nothing.
#pragma once

#include <cstdint>
#include <memory>

#include "core/result.h"
#include "model/forward.h"
#include "model/state.h"

namespace minke {

// Of the pools of benchmarks: no budget but the machine's.
inline constexpr int64_t kBenchPoolBytes = int64_t{1} << 50;

// A state of `tokens` tokens, ready for the next one: every compressed row, index key and window
// row is a random one, encoded as the model would. tokens may be 0. `pool` has blocks of the
// layout's size and outlives the state. Errors: the pool has no room.
Result<std::unique_ptr<SequenceState>> MakeSyntheticContext(const Model& model, BlockPool& pool,
                                                            int64_t tokens, uint64_t seed);

}  // namespace minke

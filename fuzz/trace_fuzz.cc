// Trace files of either format: whatever is accepted must simulate, with every token accounted
// for, under every policy.
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>

#include "prefix_cache/eviction.h"
#include "simulator/simulator.h"
#include "simulator/trace.h"

namespace {

void CheckSimulation(const minke::Trace& trace, const std::string& policy, int64_t capacity) {
  const auto result = minke::Simulate(trace, policy, capacity, {});
  CHECK(result.has_value(), result.error().message);
  CHECK(result->peak_blocks <= capacity, policy);
  CHECK(result->reused.hit_blocks + result->reused.recomputed_blocks + result->new_blocks ==
            static_cast<int64_t>(trace.uses.size()),
        policy);
  CHECK(result->reused.hit_tokens + result->reused.recomputed_tokens + result->new_tokens +
                result->loose_tokens ==
            trace.input_tokens,
        policy);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  minke::TraceReader reader;
  const minke::Status status = reader.AddText(text, "input", 0);
  constexpr size_t kErrorBytesMax = 600;
  if (!status) {
    CHECK(!status.error().message.empty() && status.error().message.size() <= kErrorBytesMax,
          status.error().message);
    return 0;
  }
  const auto trace = reader.Finish();
  if (!trace) return 0;  // it has no request
  for (const std::string& policy : minke::EvictionPolicyNames()) {
    for (const int64_t capacity : {int64_t{1}, int64_t{3}}) {
      CheckSimulation(*trace, policy, capacity);
    }
  }
  return 0;
}

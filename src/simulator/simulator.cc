#include "simulator/simulator.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <memory>
#include <queue>
#include <span>
#include <utility>
#include <vector>

#include "prefix_cache/eviction.h"

namespace minke {
namespace {

constexpr int64_t kNeverUsed = std::numeric_limits<int64_t>::min();
constexpr size_t kRequestsPerProgress = 1024;

size_t GapClass(int64_t gap_us) {
  size_t gap = 0;
  while (gap_us / kMicrosecondsPerSecond >= kReuseGaps[gap].below_seconds) ++gap;
  return gap;
}

class Simulator {
 public:
  Simulator(const Trace& trace, std::unique_ptr<EvictionPolicy> policy, int64_t capacity_blocks)
      : trace_(trace),
        policy_(std::move(policy)),
        cached_(trace.parents.size(), false),
        last_use_us_(trace.parents.size(), kNeverUsed) {
    result_.capacity_blocks = capacity_blocks;
    result_.block_uses = static_cast<int64_t>(trace.uses.size());
    result_.input_tokens = trace.input_tokens;
  }

  SimulationResult Run(const SimulationProgress& progress) {
    std::vector<int64_t> computed;
    computed.reserve(trace_.requests.size());
    for (size_t i = 0; i < trace_.requests.size(); ++i) {
      const TraceRequest& request = trace_.requests[i];
      EndRequests(request.arrival_us);
      const int64_t hits = CountHits(request);
      computed.push_back(request.input_tokens - trace_.TokensOf(request, hits));
      Account(request, hits);
      const size_t kept = Keep(request);
      if (request.duration_us > 0) {
        running_.push({request.arrival_us + request.duration_us, i, kept});
      } else {
        Unpin(request, kept);
      }
      if (progress && i % kRequestsPerProgress == 0) {
        progress(static_cast<int64_t>(i), static_cast<int64_t>(trace_.requests.size()));
      }
    }
    result_.computed_tokens_p50 = Percentile(computed, 0.5);
    result_.computed_tokens_p90 = Percentile(std::move(computed), 0.9);
    return std::move(result_);
  }

 private:
  struct Running {
    int64_t end_us = 0;
    size_t request = 0;
    size_t kept = 0;  // blocks of it that are pinned
    bool operator>(const Running& other) const {
      return std::pair(end_us, request) > std::pair(other.end_us, other.request);
    }
  };

  bool Cached(TraceBlock block) const { return cached_[static_cast<size_t>(block)]; }

  void EndRequests(int64_t now_us) {
    while (!running_.empty() && running_.top().end_us <= now_us) {
      Unpin(trace_.requests[running_.top().request], running_.top().kept);
      running_.pop();
    }
  }

  void Unpin(const TraceRequest& request, size_t kept) {
    for (const TraceBlock block : trace_.Blocks(request).first(kept)) policy_->Unpin(block);
  }

  // Only what is cached from the start on is of use: a block needs all before it.
  int64_t CountHits(const TraceRequest& request) const {
    int64_t hits = 0;
    for (const TraceBlock block : trace_.Blocks(request)) {
      if (!Cached(block)) break;
      ++hits;
    }
    return hits;
  }

  void Account(const TraceRequest& request, int64_t hits) {
    int64_t position = 0;
    for (const TraceBlock block : trace_.Blocks(request)) {
      const int64_t tokens =
          trace_.TokensOf(request, position + 1) - trace_.TokensOf(request, position);
      const int64_t last_us =
          std::exchange(last_use_us_[static_cast<size_t>(block)], request.arrival_us);
      if (last_us == kNeverUsed) {
        ++result_.new_blocks;
        result_.new_tokens += tokens;
      } else {
        const bool hit = position < hits;
        for (ReuseCount* count :
             {&result_.reused, &result_.gaps[GapClass(request.arrival_us - last_us)]}) {
          (hit ? count->hit_blocks : count->recomputed_blocks) += 1;
          (hit ? count->hit_tokens : count->recomputed_tokens) += tokens;
        }
      }
      ++position;
    }
    result_.loose_tokens += request.input_tokens - trace_.TokensOf(request, position);
  }

  // Brings the chain into the cache from its root on, each block pinned from then on, so that no
  // block of it makes room for another. Returns how many of its blocks are in, and pinned.
  size_t Keep(const TraceRequest& request) {
    const std::span<const TraceBlock> chain = trace_.Blocks(request);
    size_t kept = 0;
    while (kept < chain.size() && (Cached(chain[kept]) || Insert(chain[kept]))) {
      policy_->Pin(chain[kept++]);
    }
    result_.refused_blocks += static_cast<int64_t>(chain.size() - kept);
    for (size_t i = kept; i-- > 0;) {
      policy_->Touch(chain[i]);
      const int32_t next = trace_.next_uses[request.first_use + i];
      policy_->SetNextUse(chain[i], next == kNoNextUse ? INT64_MAX : next);
    }
    return kept;
  }

  bool Insert(TraceBlock block) {
    if (cached_count_ == result_.capacity_blocks) {
      const EntryId victim = policy_->Victim();
      if (victim == kNoEntry) return false;
      policy_->Remove(victim);
      cached_[static_cast<size_t>(victim)] = false;
      --cached_count_;
      ++result_.evicted_blocks;
    }
    policy_->Insert(block, trace_.parents[static_cast<size_t>(block)]);
    cached_[static_cast<size_t>(block)] = true;
    ++cached_count_;
    result_.peak_blocks = std::max(result_.peak_blocks, cached_count_);
    return true;
  }

  const Trace& trace_;
  std::unique_ptr<EvictionPolicy> policy_;
  std::vector<bool> cached_;          // by block
  std::vector<int64_t> last_use_us_;  // by block; kNeverUsed before the first
  std::priority_queue<Running, std::vector<Running>, std::greater<>> running_;
  int64_t cached_count_ = 0;
  SimulationResult result_;
};

}  // namespace

double SimulationResult::BlockHitRate() const {
  return Share(reused.hit_blocks, block_uses);
}

double SimulationResult::TokenHitRate() const {
  return Share(reused.hit_tokens, input_tokens);
}

Result<SimulationResult> Simulate(const Trace& trace, const std::string& policy,
                                  int64_t capacity_blocks, const SimulationProgress& progress) {
  CHECK(capacity_blocks >= 1);
  Simulator simulator(trace, TRY(MakeEvictionPolicy(policy)), capacity_blocks);
  SimulationResult result = simulator.Run(progress);
  result.policy = policy;
  return result;
}

int64_t Percentile(std::vector<int64_t> values, double share) {
  if (values.empty()) return 0;
  const double rank = std::ceil(share * static_cast<double>(values.size()));
  const size_t index = std::clamp<size_t>(static_cast<size_t>(rank), 1, values.size()) - 1;
  const auto place = values.begin() + static_cast<ptrdiff_t>(index);
  std::nth_element(values.begin(), place, values.end());
  return *place;
}

}  // namespace minke

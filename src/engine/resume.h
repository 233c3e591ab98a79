// Where a prompt may be continued from, given what the cache knows of it, and what that costs. A
// pure decision: Generate() acts on it, and ExplainCache() reports it.
#pragma once

#include <cstdint>

#include "engine/engine.h"
#include "prefix_cache/prefix_cache.h"

namespace minke {

enum class ResumeKind {
  kCold,      // nothing is taken over but rows that need not be written again
  kSnapshot,  // the working state of a snapshot
  kReplay,    // rows alone; the window before their end runs again
};

struct ResumePlan {
  ResumeKind kind = ResumeKind::kCold;
  int64_t start = 0;         // the first token that runs
  int64_t known_tokens = 0;  // tokens whose rows are taken over
};

// prompt_tokens: length of the prompt; block_tokens: tokens of known full blocks; snapshot_tokens:
// length of the last snapshot within the prompt, 0 for none; both less than prompt_tokens.
// window: tokens that a replay has to run again.
ResumePlan PlanResume(PrefillMode mode, int64_t prompt_tokens, int64_t block_tokens,
                      int64_t snapshot_tokens, int64_t window);

// ram_block_tokens: of the known full blocks, those in memory; snapshot_tier, reason and
// first_difference: as the cache found them. In exact mode a missing snapshot is the reason where
// it cost more than a block: that can be helped without another prompt.
CacheUse ReportOf(PrefillMode mode, const ResumePlan& plan, int64_t prompt_tokens,
                  int64_t ram_block_tokens, CacheTier snapshot_tier, MissReason reason,
                  int64_t first_difference);

// First position of a prompt from which on the upper layers run (architecture.md 6.2): 0 for all.
// length: tokens that the working state has seen.
int64_t DecoderStart(PrefillMode mode, int64_t prompt_tokens, int64_t length, int64_t window);

}  // namespace minke

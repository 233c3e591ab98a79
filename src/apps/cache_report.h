// What the cache did for a prompt, in words, figures and as JSON; sizes on the command line.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "core/json.h"
#include "core/result.h"
#include "engine/engine.h"

namespace minke {

// cached_tokens, ram_tokens, disk_tokens, replayed_tokens, computed_tokens, tier, reason,
// first_difference (null where it is unknown).
Json CacheUseJson(const CacheUse& use);
// "120 of 131 prompt tokens cached (disk), 0 replayed, 11 computed. ..." in one line.
std::string CacheUseLine(const CacheUse& use);
// Seconds of an answer in which it did not wait for weights on the disk.
double ComputeSeconds(const GenerationResult& result);
// Says on stderr how fast a prompt was read and answered, from where, and what its cache takes.
void PrintAnswerStats(const Engine& engine, const GenerationResult& result, const Session& session);
// Says on stderr why the disk tier is off, if it is. Callers see to it that it is said once.
void NoteDiskWarning(const Engine& engine);

// "512MiB", "8GiB", "100000B" in bytes; at least one. `what` names the flag in errors.
Result<int64_t> ParseByteSize(std::string_view text, std::string_view what);

}  // namespace minke

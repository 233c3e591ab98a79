// Request traces that others published, read into one form for the simulator
// (docs/simulator.md). A request is a chain of blocks; chains with a common beginning share the
// blocks of it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/json.h"
#include "core/result.h"

namespace minke {

inline constexpr uint64_t kTraceFileBytesMax = uint64_t{1} << 30;
inline constexpr size_t kTraceFilesMax = 4096;
inline constexpr size_t kTraceRequestsMax = size_t{1} << 24;       // of all files together
inline constexpr size_t kTraceBlockUsesMax = size_t{1} << 28;      // of all files together
inline constexpr int64_t kTraceTokensMax = int64_t{1} << 32;       // of one request
inline constexpr int64_t kTraceBlockTokensMax = int64_t{1} << 20;  // of one block
inline constexpr double kTraceSecondsMax = 1e9;                    // on the clock of a trace
inline constexpr int kTraceSubAgentDepthMax = 16;                  // sub-agents of sub-agents

inline constexpr int64_t kMicrosecondsPerSecond = 1'000'000;

// Tokens of a block in Mooncake's traces, which do not say it (serving.md 7.6).
inline constexpr int64_t kMooncakeBlockTokens = 512;

// A block of a trace: an index into Trace::parents.
using TraceBlock = int32_t;
inline constexpr TraceBlock kNoTraceBlock = -1;

struct TraceRequest {
  int64_t arrival_us = 0;
  int64_t duration_us = 0;  // 0 where the trace does not say how long it ran
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  size_t first_use = 0;  // its blocks, root first, are uses[first_use, first_use + block_count)
  int64_t block_count = 0;
};

struct Trace {
  int64_t block_tokens = 0;
  std::vector<TraceRequest> requests;  // by arrival; of equal ones as they were read
  std::vector<TraceBlock> uses;        // the blocks of all requests
  std::vector<int32_t> next_uses;      // per use: the next request with the block, or kNoNextUse
  std::vector<TraceBlock> parents;     // per block: the one before it, kNoTraceBlock for a first
  int64_t input_tokens = 0;
  int64_t output_tokens = 0;
  int64_t timed_requests = 0;  // with a duration

  std::span<const TraceBlock> Blocks(const TraceRequest& request) const {
    return std::span(uses).subspan(request.first_use, static_cast<size_t>(request.block_count));
  }
  // Tokens of the input that its first `blocks` blocks hold.
  int64_t TokensOf(const TraceRequest& request, int64_t blocks) const;
};
inline constexpr int32_t kNoNextUse = INT32_MAX;

// Puts traces together. Ids are local to their file: no block is shared between files.
class TraceReader {
 public:
  // Reads a file of either format, recognised by what is in it, whose clock starts `offset_us`
  // after that of the trace. After an error the reader is of no more use.
  Status AddFile(const std::string& path, int64_t offset_us);
  // The same for text; `name` stands for the file in errors.
  Status AddText(std::string_view text, std::string_view name, int64_t offset_us);
  // REQUIRES success of all before. An error if there is no request. The reader is then empty.
  Result<Trace> Finish();

 private:
  Status AddMooncake(std::string_view text, std::string_view name);
  Status AddMooncakeLine(const Json& line, const std::string& what);
  Status AddSession(const Json& session, const std::string& what);
  Status AddRequests(const JsonArray& requests, const std::string& what, double start_seconds,
                     int depth);
  Status AddSubAgent(const Json& agent, const std::string& what, double start_seconds, int depth);
  Status AddSessionRequest(const Json& request, const std::string& what, double start_seconds);
  Status AddRequest(TraceRequest request, const JsonArray& ids, const std::string& what);
  Status SetBlockTokens(int64_t tokens, std::string_view name);
  Result<int64_t> Microseconds(double seconds, std::string_view key, std::string_view what) const;

  struct BlockId {
    TraceBlock parent = kNoTraceBlock;
    int64_t id = 0;
    bool operator==(const BlockId&) const = default;
  };
  struct BlockIdHash {
    size_t operator()(const BlockId& block) const;
  };

  Trace trace_;
  int64_t offset_us_ = 0;
  std::string first_file_;                                       // which set block_tokens
  std::unordered_map<BlockId, TraceBlock, BlockIdHash> blocks_;  // of the file that is being read
};

}  // namespace minke

#include "simulator/trace.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"

namespace minke {
namespace {

constexpr double kMillisecondsPerSecond = 1e3;
constexpr size_t kShownErrorBytesMax = 200;

bool IsBlank(std::string_view text) {
  return text.find_first_not_of(" \t\r\n") == std::string_view::npos;
}

// Takes the text up to the next line feed, which is dropped.
std::string_view TakeLine(std::string_view* text) {
  const size_t end = text->find('\n');
  const std::string_view line = text->substr(0, end);
  text->remove_prefix(end == std::string_view::npos ? text->size() : end + 1);
  return line;
}

Result<int64_t> TokenCount(const Json& request, std::string_view key, std::string_view what,
                           int64_t limit) {
  const int64_t tokens = TRY(JsonInt(request, key, what));
  if (tokens >= 0 && tokens <= limit) return tokens;
  return Fail(ErrorCode::kLimit, fmt::format("{}: \"{}\" must be 0 to {} tokens, but it is {}.",
                                             what, key, limit, tokens));
}

// A member that may be missing: not every request says how long it took.
Result<double> OptionalSeconds(const Json& request, std::string_view key, std::string_view what) {
  const Json* member = request.Find(key);
  if (member == nullptr || member->is_null()) return 0.0;
  return JsonDouble(request, key, what);
}

Result<int64_t> HashId(const Json& id, size_t index, std::string_view what) {
  if (id.is_integer() && id.as_double() >= 0 && id.as_double() < 9e18) return id.as_int();
  return Fail(fmt::format("{}: \"hash_ids\" entry {} must be an integer of 0 to 9e18, found {}.",
                          what, index,
                          id.is_integer() ? "one out of that range"
                                          : fmt::format("a value of type {}", id.TypeName())));
}

// Of each use, the number of the next request with that block.
std::vector<int32_t> NextUses(const Trace& trace) {
  std::vector<int32_t> next(trace.parents.size(), kNoNextUse);
  std::vector<int32_t> next_uses(trace.uses.size(), kNoNextUse);
  for (size_t i = trace.requests.size(); i-- > 0;) {
    const TraceRequest& request = trace.requests[i];
    for (size_t use = request.first_use; const TraceBlock block : trace.Blocks(request)) {
      next_uses[use++] = std::exchange(next[static_cast<size_t>(block)], static_cast<int32_t>(i));
    }
  }
  return next_uses;
}

}  // namespace

int64_t Trace::TokensOf(const TraceRequest& request, int64_t blocks) const {
  return std::min(request.input_tokens, blocks * block_tokens);
}

size_t TraceReader::BlockIdHash::operator()(const BlockId& block) const {
  // The finishing steps of MurmurHash3: ids and parents are small numbers in sequence.
  uint64_t hash = static_cast<uint64_t>(block.id) ^
                  (static_cast<uint64_t>(static_cast<uint32_t>(block.parent)) << 32);
  hash = (hash ^ (hash >> 33)) * 0xff51afd7ed558ccdULL;
  hash = (hash ^ (hash >> 33)) * 0xc4ceb9fe1a85ec53ULL;
  return static_cast<size_t>(hash ^ (hash >> 33));
}

Status TraceReader::AddFile(const std::string& path, int64_t offset_us) {
  const std::string text = TRY(ReadFile(path, kTraceFileBytesMax));
  return AddText(text, path, offset_us);
}

Status TraceReader::AddText(std::string_view text, std::string_view name, int64_t offset_us) {
  CHECK(offset_us >= 0);
  offset_us_ = offset_us;
  blocks_.clear();
  if (IsBlank(text)) return Fail(fmt::format("{} has no request: it is empty.", name));
  // A Mooncake trace is known by its first line, which is an object of its own.
  std::string_view rest = text;
  std::string_view first = TakeLine(&rest);
  while (IsBlank(first)) first = TakeLine(&rest);
  const Result<Json> line = ParseJson(first, name);
  if (line && line->Find("hash_ids") != nullptr) return AddMooncake(text, name);
  if (line && IsBlank(rest)) return AddSession(*line, std::string(name));
  const Result<Json> whole = ParseJson(text, name);
  if (whole) return AddSession(*whole, std::string(name));
  const Error& error = line ? whole.error() : line.error();
  return Fail(
      fmt::format("{} is no trace: it has to be lines of JSON with \"hash_ids\" (Mooncake) "
                  "or one JSON object with \"requests\" (agent session). As JSON: {}",
                  name, error.message.substr(0, kShownErrorBytesMax)));
}

Status TraceReader::AddMooncake(std::string_view text, std::string_view name) {
  TRY_STATUS(SetBlockTokens(kMooncakeBlockTokens, name));
  for (int64_t number = 1; !text.empty(); ++number) {
    const std::string_view line = TakeLine(&text);
    if (IsBlank(line)) continue;
    const std::string what = fmt::format("{}, line {}", name, number);
    TRY_STATUS(AddMooncakeLine(TRY(ParseJson(line, what)), what));
  }
  return {};
}

Status TraceReader::AddMooncakeLine(const Json& line, const std::string& what) {
  if (!line.is_object()) {
    return Fail(fmt::format("{}: a request must be an object, found a value of type {}.", what,
                            line.TypeName()));
  }
  TraceRequest request;
  const double milliseconds = TRY(JsonDouble(line, "timestamp", what));
  request.arrival_us =
      offset_us_ + TRY(Microseconds(milliseconds / kMillisecondsPerSecond, "timestamp", what));
  request.input_tokens = TRY(TokenCount(line, "input_length", what, kTraceTokensMax));
  request.output_tokens = TRY(TokenCount(line, "output_length", what, kTraceTokensMax));
  const JsonArray* ids = TRY(JsonList(line, "hash_ids", what));
  return AddRequest(request, *ids, what);
}

Status TraceReader::AddSession(const Json& session, const std::string& what) {
  if (!session.is_object() || session.Find("requests") == nullptr) {
    return Fail(
        fmt::format("{} is no trace: it has neither lines with \"hash_ids\" (Mooncake) nor "
                    "an object with \"requests\" (agent session).",
                    what));
  }
  const int64_t tokens = TRY(TokenCount(session, "block_size", what, kTraceBlockTokensMax));
  TRY_STATUS(SetBlockTokens(tokens, what));
  return AddRequests(*TRY(JsonList(session, "requests", what)), what, 0, 0);
}

Status TraceReader::AddRequests(const JsonArray& requests, const std::string& what,
                                double start_seconds, int depth) {
  if (depth > kTraceSubAgentDepthMax) {
    return Fail(ErrorCode::kLimit, fmt::format("{}: sub-agents are nested more than {} deep.", what,
                                               kTraceSubAgentDepthMax));
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    const Json& request = requests[i];
    const std::string name = fmt::format("{}: \"requests\" entry {}", what, i);
    if (!request.is_object()) {
      return Fail(
          fmt::format("{} must be an object, found a value of type {}.", name, request.TypeName()));
    }
    if (request.Find("requests") != nullptr) {
      TRY_STATUS(AddSubAgent(request, name, start_seconds, depth));
    } else {
      TRY_STATUS(AddSessionRequest(request, name, start_seconds));
    }
  }
  return {};
}

// The requests of a sub-agent run beside those of its session and share its ids. Their times count
// from the start of the session, as all others; where one lies before the sub-agent's own start,
// they can only count from that start.
Status TraceReader::AddSubAgent(const Json& agent, const std::string& what, double start_seconds,
                                int depth) {
  const JsonArray* requests = TRY(JsonList(agent, "requests", what));
  const double own_start = TRY(OptionalSeconds(agent, "t", what));
  bool relative = false;
  for (const Json& request : *requests) {
    const Json* time = request.Find("t");
    relative = relative || (time != nullptr && time->is_number() && time->as_double() < own_start);
  }
  return AddRequests(*requests, what, relative ? start_seconds + own_start : start_seconds,
                     depth + 1);
}

Status TraceReader::AddSessionRequest(const Json& request, const std::string& what,
                                      double start_seconds) {
  TraceRequest added;
  const double seconds = TRY(JsonDouble(request, "t", what));
  added.arrival_us = offset_us_ + TRY(Microseconds(start_seconds + seconds, "t", what));
  const double duration = TRY(OptionalSeconds(request, "api_time", what));
  added.duration_us = TRY(Microseconds(duration, "api_time", what));
  added.input_tokens = TRY(TokenCount(request, "in", what, kTraceTokensMax));
  added.output_tokens = TRY(TokenCount(request, "out", what, kTraceTokensMax));
  return AddRequest(added, *TRY(JsonList(request, "hash_ids", what)), what);
}

Status TraceReader::AddRequest(TraceRequest request, const JsonArray& ids,
                               const std::string& what) {
  const int64_t blocks_max = (request.input_tokens + trace_.block_tokens - 1) / trace_.block_tokens;
  if (static_cast<int64_t>(ids.size()) > blocks_max) {
    return Fail(
        fmt::format("{}: \"hash_ids\" has {} entries, but {} input tokens make at most {} "
                    "blocks of {}.",
                    what, ids.size(), request.input_tokens, blocks_max, trace_.block_tokens));
  }
  if (trace_.requests.size() >= kTraceRequestsMax) {
    return Fail(ErrorCode::kLimit, fmt::format("{}: the traces have more than {} requests, the "
                                               "most that is simulated.",
                                               what, kTraceRequestsMax));
  }
  if (trace_.uses.size() + ids.size() > kTraceBlockUsesMax) {
    return Fail(ErrorCode::kLimit, fmt::format("{}: the requests have more than {} blocks, the "
                                               "most that is simulated.",
                                               what, kTraceBlockUsesMax));
  }
  request.first_use = trace_.uses.size();
  request.block_count = static_cast<int64_t>(ids.size());
  TraceBlock parent = kNoTraceBlock;
  for (size_t i = 0; i < ids.size(); ++i) {
    const BlockId block = {.parent = parent, .id = TRY(HashId(ids[i], i, what))};
    const auto [found, is_new] =
        blocks_.try_emplace(block, static_cast<TraceBlock>(trace_.parents.size()));
    if (is_new) trace_.parents.push_back(parent);
    parent = found->second;
    trace_.uses.push_back(parent);
  }
  trace_.input_tokens += request.input_tokens;
  trace_.output_tokens += request.output_tokens;
  if (request.duration_us > 0) ++trace_.timed_requests;
  trace_.requests.push_back(request);
  return {};
}

Status TraceReader::SetBlockTokens(int64_t tokens, std::string_view name) {
  if (tokens < 1) return Fail(fmt::format("{}: \"block_size\" must be at least 1 token.", name));
  if (trace_.block_tokens == 0) {
    trace_.block_tokens = tokens;
    first_file_ = std::string(name);
  }
  if (trace_.block_tokens == tokens) return {};
  return Fail(
      fmt::format("{} has blocks of {} tokens, but {} has blocks of {}; simulate them one "
                  "after the other.",
                  name, tokens, first_file_, trace_.block_tokens));
}

Result<int64_t> TraceReader::Microseconds(double seconds, std::string_view key,
                                          std::string_view what) const {
  if (seconds >= 0 && seconds <= kTraceSecondsMax) {
    return static_cast<int64_t>(std::llround(seconds * kMicrosecondsPerSecond));
  }
  return Fail(fmt::format("{}: \"{}\" must be 0 to {:g} seconds, but it is {:g}.", what, key,
                          kTraceSecondsMax, seconds));
}

Result<Trace> TraceReader::Finish() {
  if (trace_.requests.empty()) return Fail("The trace files have no request.");
  std::stable_sort(
      trace_.requests.begin(), trace_.requests.end(),
      [](const TraceRequest& a, const TraceRequest& b) { return a.arrival_us < b.arrival_us; });
  trace_.next_uses = NextUses(trace_);
  blocks_.clear();
  return std::exchange(trace_, Trace());
}

}  // namespace minke

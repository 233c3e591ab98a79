// The commands of the program: what their flags say, and what runs them. flags.cc and
// cache_flags.cc fill the structs from the command line, one file per command acts on them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/result.h"
#include "engine/engine.h"

namespace CLI {  // NOLINT(readability-identifier-naming): of CLI11
class App;
}

namespace minke {

inline constexpr int kExitSuccess = 0;
inline constexpr int kExitFailure = 1;  // the work could not be done
inline constexpr int kExitUsage = 2;    // the command line is wrong

// Limits of files named on the command line, in bytes.
inline constexpr uint64_t kMessagesBytesMax = uint64_t{64} << 20;
inline constexpr uint64_t kTokenFileBytesMax = uint64_t{64} << 20;
inline constexpr uint64_t kTextFileBytesMax = uint64_t{256} << 20;

// Room for an answer where nothing is said, as in the hosted service (serving.md 1.4).
inline constexpr int64_t kAnswerTokensDefault = 8192;
inline constexpr int64_t kThinkingAnswerTokensDefault = 65536;

// What the released model keeps of a token in memory and on disk (architecture.md 5).
inline constexpr int64_t kSimulatedBytesPerToken = 890;

struct ModelFlags {
  std::string model_dir;  // empty: DefaultModelDir()
  int threads = 0;
  bool pin = false;
  std::string numerics = "official";
  bool reference_artifacts = false;
  std::string kernels = "default";
  bool prewarm = false;
  std::string weights_ram;  // a size, checked when the command line is read; empty: no bound
  std::string weights_memory = "mapped";
  int64_t context = 0;
  int64_t prefill_chunk = kPrefillChunkTokensDefault;
};

// Sizes are texts like "8GiB", checked when the command line is read; empty: the default.
struct CacheFlags {
  std::string kv_ram;
  std::string snapshot_budget;
  std::string kv_disk;
  std::string kv_disk_budget;
  std::string kv_disk_write_limit;  // bytes an hour
  std::string prefill = "exact";
  std::string tenant;
};

// A prompt on the command line.
struct PromptFlags {
  std::optional<std::string> prompt;    // a question, or with raw a text to continue
  std::optional<std::string> messages;  // a file, "-" for standard input
  std::string document;                 // a text file that the prompt is about, "-" as above
  bool raw = false;
  std::string system;
  std::string thinking;  // "on", "off", or empty: what the request says
  std::string effort;
};

struct GenerateFlags : PromptFlags {
  ModelFlags model;
  CacheFlags cache;
  int64_t max_tokens = -1;  // -1: the defaults above
  SamplingOptions sampling;
  std::optional<uint64_t> seed;
  std::vector<std::string> stop;
  std::vector<int32_t> stop_tokens;
  bool ignore_eos = false;
  bool json = false;
  bool stats = false;
  std::string logits_out;
};

struct ExplainFlags : PromptFlags {
  ModelFlags model;
  CacheFlags cache;
  bool json = false;
};

struct ChatFlags {
  ModelFlags model;
  CacheFlags cache;
  bool resume = false;
  std::string document;  // a text file that the first question is about
  bool stats = false;
  std::string system;
  std::string thinking;
  std::string effort;
  int64_t max_tokens = -1;
  SamplingOptions sampling;
  std::optional<uint64_t> seed;
};

struct TokenizeFlags {
  std::string model_dir;
  std::optional<std::string> text;
  std::optional<std::string> file;
  std::optional<std::string> chat;    // a messages file
  std::optional<std::string> decode;  // ids, or a file of ids
  std::string thinking;
  std::string effort;
  bool json = false;
};

struct InspectFlags {
  std::string model_dir;
  std::string config;  // config.json alone
  bool json = false;
};

struct LogitsFlags {
  ModelFlags model;
  std::string tokens;
  std::string out;
  int64_t chunk = kPrefillChunkTokensDefault;  // 0: the whole prompt in one call
  int64_t decode_from = -1;                    // -1: never
  std::string dump;
  bool json = false;
};

struct SimulateFlags {
  std::vector<std::string> traces;
  std::vector<std::string> capacities = {"unlimited"};  // as ParseCapacity() reads them
  std::vector<std::string> policies = {"lru"};
  std::vector<int64_t> bytes_per_token = {kSimulatedBytesPerToken};
  double stagger_seconds = 0;
  double prefill_tokens_per_second = 0;  // 0: not said
  bool json = false;
  std::string svg;
};

// Each returns an exit code and has said on stderr what went wrong.
int RunGenerate(const GenerateFlags& flags);
int RunChat(const ChatFlags& flags);
int RunExplain(const ExplainFlags& flags);
int RunTokenize(const TokenizeFlags& flags);
int RunInspect(const InspectFlags& flags);
int RunLogits(const LogitsFlags& flags);
int RunSimulate(const SimulateFlags& flags);

// Adds the flag that names the model.
void AddModelDir(CLI::App& command, std::string* model_dir);
// Adds the flags about prompts and the start, after those of AddModelFlags().
void AddContextFlags(CLI::App& command, ModelFlags* flags);
// Adds the flags of a command that runs the model.
void AddModelFlags(CLI::App& command, ModelFlags* flags);
// Adds the flags that say which cache is meant, or those and the budgets. `flags` outlives the app.
void AddCacheIdentityFlags(CLI::App& command, CacheFlags* flags);
void AddCacheFlags(CLI::App& command, CacheFlags* flags);
// Adds the command and its flags. `flags` outlives the app.
CLI::App* AddSimulate(CLI::App& app, SimulateFlags* flags);

// Parses the command line and runs the command.
int RunCommandLine(int argc, const char* const* argv);

}  // namespace minke

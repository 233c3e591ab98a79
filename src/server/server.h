// The server: three API families, a web page and the operator's pages over one engine
// (serving.md 1, 5). Routes are in routes.cc, the life of a request in answer_task.h.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "engine/service.h"
#include "server/http_server.h"
#include "text/replay_map.h"

namespace minke {

struct ServerOptions {
  HttpOptions http;
  // Binding to an address that other machines reach needs API keys, unless this says otherwise.
  bool allow_remote_without_key = false;
  std::string api_key_file;      // empty: everybody is let in
  std::string model_table_file;  // empty: the shipped table
  std::string price_file;        // empty: the shipped prices
  std::string ledger_file;       // empty: nothing is kept
  // What models wrote for turns (server/kept_turns.h); empty: known until the server ends.
  std::string turns_file;
  size_t turns_bytes_max = kReplayBytesDefault;  // memory for them; the oldest go
  std::vector<std::string> cors_origins;
  bool strict_reasoning = false;    // ApiReadOptions
  bool keep_alive_comments = true;  // SSE comments; some clients fail on them
  double keep_alive_seconds = 10;   // 0: none
  bool vllm_metrics = false;
  bool log_prompts = false;  // requests' bodies in the log
  std::string version;       // of the program
  // Gets one line of JSON an event, from any thread. Empty: no log.
  std::function<void(std::string_view line)> log;
};

// That the end of an answer may take to reach its client when the server ends.
inline constexpr double kLastWordsSeconds = 5;

class Server {
 public:
  // Takes the service. Errors name the file, flag or address.
  static Result<std::unique_ptr<Server>> Start(const ServerOptions& options,
                                               std::unique_ptr<Service> service);
  ~Server();
  Server(const Server&) = delete;
  Server& operator=(const Server&) = delete;

  std::string url() const;  // "http://127.0.0.1:8890"
  // What a person should know of the files it was given; whole sentences.
  const std::vector<std::string>& warnings() const;

  // New requests get a 503, running ones go on for at most so long, then they end with an error.
  // Waits for the clients to take the rest of their answers, at most the rest of that time or
  // kLastWordsSeconds. The cache and the ledger are on disk afterwards. False if requests were cut
  // off.
  bool Drain(double seconds_max);

 private:
  struct Impl;
  explicit Server(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minke

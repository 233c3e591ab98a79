// minke serve: the server as a program.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "apps/commands.h"

namespace minke {

struct ServeFlags {
  ModelFlags model;
  CacheFlags cache;
  std::string host = "127.0.0.1";
  uint16_t port = 8890;
  std::string api_key_file;
  bool allow_remote_without_key = false;
  std::string models;  // a model table
  std::string prices;
  std::string ledger;  // a file, or "none"
  std::vector<std::string> cors;
  bool strict_reasoning = false;
  bool no_comments = false;
  double keep_alive_seconds = 10;
  bool vllm_metrics = false;
  bool log = false;
  bool log_prompts = false;
  int64_t running = 64;
  int64_t queued = 1024;
  double queue_seconds = 600;
  double stall_seconds = 120;
  double drain_seconds = 30;
};

// Adds the command and its flags. `flags` outlives the app.
CLI::App* AddServe(CLI::App& app, ServeFlags* flags);
// Serves until Ctrl-C or SIGTERM. Returns an exit code and has said on stderr what went wrong.
int RunServe(const ServeFlags& flags);

}  // namespace minke

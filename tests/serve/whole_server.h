// The real server, service, engine, cache, tokenizer and parser in this process, with a script in
// place of the model's arithmetic, and clients that read its counters.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "core/result.h"
#include "engine/engine.h"
#include "engine/service.h"
#include "server/server.h"
#include "tests/support/scripted_model.h"

namespace minke::testing {

struct WholeServerOptions {
  std::string model_dir;
  ScriptedModelOptions script;  // without scripts the model itself answers
  EngineOptions engine;         // model_dir is set here, and forward where it is empty
  ServiceOptions service;
  ServerOptions server;
};

class WholeServer {
 public:
  static Result<std::unique_ptr<WholeServer>> Start(WholeServerOptions options);

  uint16_t port() const { return port_; }
  Server& server() { return *server_; }
  // Behind the server, to compare what it says with.
  Service& service() { return *service_; }

 private:
  WholeServer() = default;

  std::unique_ptr<ScriptedModel> model_;  // outlives the engine in the server
  std::unique_ptr<Server> server_;
  Service* service_ = nullptr;  // the server's
  uint16_t port_ = 0;
};

// What GET /metrics says, over a connection of its own; empty if there was no answer.
std::string MetricsText(uint16_t port);
// A number of it by name and labels, "minke_requests{state=\"queued\"}"; -1 if it is not there.
int64_t MetricOf(std::string_view metrics, std::string_view name);
// Requests that wait, are read or are written.
int64_t RequestsInEngine(std::string_view metrics);

}  // namespace minke::testing

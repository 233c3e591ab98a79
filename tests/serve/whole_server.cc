#include "tests/serve/whole_server.h"

#include <cstdlib>
#include <utility>

#include "tests/server/raw_client.h"

namespace minke::testing {

Result<std::unique_ptr<WholeServer>> WholeServer::Start(WholeServerOptions options) {
  std::unique_ptr<WholeServer> whole(new WholeServer());  // NOLINT: the constructor is private
  options.engine.model_dir = options.model_dir;
  if (!options.engine.forward && !options.script.scripts.empty()) {
    whole->model_ = TRY(ScriptedModel::Create(options.model_dir, std::move(options.script)));
    options.engine.forward = whole->model_->function();
  }
  std::unique_ptr<Engine> engine = TRY(Engine::Open(options.engine));
  std::unique_ptr<Service> service = TRY(Service::Start(std::move(engine), options.service));
  whole->service_ = service.get();
  options.server.http.port = 0;
  whole->server_ = TRY(Server::Start(options.server, std::move(service)));
  const std::string url = whole->server_->url();
  whole->port_ = static_cast<uint16_t>(std::stoi(url.substr(url.rfind(':') + 1)));
  return whole;
}

std::string MetricsText(uint16_t port) {
  test::RawClient client(port);
  return client.Ask("GET /metrics HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").body;
}

int64_t MetricOf(std::string_view metrics, std::string_view name) {
  const std::string line = "\n" + std::string(name) + " ";
  const size_t at = metrics.find(line);
  if (at == std::string_view::npos) return -1;
  return std::atoll(std::string(metrics.substr(at + line.size(), 24)).c_str());
}

int64_t RequestsInEngine(std::string_view metrics) {
  int64_t sum = 0;
  for (const char* state : {"queued", "prefilling", "decoding"}) {
    sum += MetricOf(metrics, "minke_requests{state=\"" + std::string(state) + "\"}");
  }
  return sum;
}

}  // namespace minke::testing

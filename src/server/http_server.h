// HTTP/1.1 over a socket: bounded requests in, bounded answers and streams out. The one place that
// includes Boost.Beast is http_server.cc. Knows no API and no engine.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/result.h"

namespace minke {

struct HttpOptions {
  std::string address = "127.0.0.1";
  uint16_t port = 8890;  // 0: any free one
  int threads = 1;       // that serve sockets
  int64_t connections_max = 4096;
  int64_t header_bytes_max = 64 << 10;
  int64_t body_bytes_max = int64_t{48} << 20;
  // All bodies that are being received together: one that would exceed it waits or is refused.
  int64_t bodies_bytes_max = int64_t{512} << 20;
  double header_seconds_max = 10;  // from the first byte to the end of the header
  double body_seconds_max = 60;    // without a byte
  double idle_seconds_max = 60;    // between requests
  double write_seconds_max = 60;   // without a byte taken by the client
  int64_t unsent_bytes_max = int64_t{16}
                             << 20;  // of one stream; a client that falls further behind is dropped
};

struct HttpRequest {
  std::string method;  // "GET"
  std::string path;    // decoded, without the query; starts with "/"
  std::string query;   // raw, without "?"
  std::vector<std::pair<std::string, std::string>> headers;  // names in lower case
  std::string body;
  std::string client;  // address of the peer

  // The first header of that (lower-case) name, or empty.
  std::string_view Header(std::string_view name) const;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// One request on its way to its answer. Every member may be called from any thread. If the last
// reference goes before an answer was given, the client gets a 500.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // The whole answer.
  virtual void Respond(int status, HttpHeaders headers, std::string body) = 0;
  // The head of an answer of unknown length; then Send() and Close().
  virtual void Start(int status, HttpHeaders headers) = 0;
  virtual void Send(std::string bytes) = 0;
  virtual void Close() = 0;
  // Called at most once, if the client goes away or falls too far behind before the answer is
  // complete; at once if it already has. Not called after the answer is complete.
  virtual void OnGone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
};

// Called on a socket thread for each request; must not block for long.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

struct HttpStatus {
  int64_t connections = 0;
  int64_t connections_total = 0;
  int64_t requests_total = 0;
  int64_t disconnects_total = 0;  // before the answer was complete
  int64_t refused_total = 0;      // malformed, too large, too slow, too many
};

class HttpServer {
 public:
  // Binds and listens. Errors name address and port and what to do.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, HttpHandler handler);
  // Closes the listener and every connection, ends the threads.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Stops accepting connections; running exchanges go on, kept-alive ones close after their answer.
  void StopAccepting();
  HttpStatus status() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minke

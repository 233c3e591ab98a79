// HTTP/1.1 over a socket: bounded requests in, bounded answers and streams out. Boost enters the
// program in http_server*.cc alone. Knows no API and no engine.
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

struct HttpRequest {
  std::string method;  // "GET"
  // Decoded, without the query; starts with "/" and holds no control character. ".." is left to
  // whoever takes a path for a file's.
  std::string path;
  std::string query;  // raw, without "?"
  // Names in lower case. At most one each of host, content-length and transfer-encoding.
  std::vector<std::pair<std::string, std::string>> headers;
  std::string body;
  std::string client;  // address of the peer, without its port

  // The first header of that (lower-case) name, or empty.
  std::string_view Header(std::string_view name) const;
};

using HttpHeaders = std::vector<std::pair<std::string, std::string>>;

// An answer of the server's own to a request that it did not take.
struct HttpErrorAnswer {
  HttpHeaders headers;  // besides those that are set here, Content-Type among them
  std::string body;     // JSON
};

struct HttpOptions {
  std::string address = "127.0.0.1";  // IPv4 or IPv6 in digits, or "localhost"; "::" takes both
  uint16_t port = 8890;               // 0: any free one
  int threads = 1;                    // that serve sockets; 1 to 64
  // One more takes the place of the one that has waited longest for a request to begin or for the
  // rest of a header; if all are busy it gets a 503.
  int64_t connections_max = 4096;
  int64_t header_bytes_max = 64 << 10;  // request line included
  int64_t headers_max = 256;
  int64_t body_bytes_max = int64_t{48} << 20;
  // What has come of all bodies that are being received together: past it bodies get a 503.
  int64_t bodies_bytes_max = int64_t{512} << 20;
  double header_seconds_max = 10;  // from the first byte to the end of the header
  double body_seconds_max = 60;    // without a byte
  double idle_seconds_max = 60;    // before the first request and between requests
  double write_seconds_max = 60;   // without a byte taken by the client
  // A body, or what there is to send of an answer, that takes longer than body_seconds_max or
  // write_seconds_max and moves slower than this is given up.
  int64_t bytes_per_second_min = 8 << 10;
  // Of one stream; a client that falls further behind is dropped.
  int64_t unsent_bytes_max = int64_t{16} << 20;
  // What the server answers itself (400, 408, 413, ...). `head`: of the request, null where it has
  // not come that far. Called on a socket thread. Empty: plain text.
  std::function<HttpErrorAnswer(int status, const HttpRequest* head, std::string_view message)>
      error_answer;
};

// One request on its way to its answer. Every member but TakeBody() may be called from any thread.
// If the last reference goes before an answer was given, the client gets a 500; if it goes between
// Start() and Close(), the connection is cut, so that the client sees a broken answer. May outlive
// the server; then nothing has an effect any more.
class HttpExchange {
 public:
  virtual ~HttpExchange() = default;
  virtual const HttpRequest& request() const = 0;
  // The body, which is then no longer in request(): what reads it early need not keep it as long
  // as the answer takes. REQUIRES: nobody reads request().body at the same time.
  virtual std::string TakeBody() = 0;
  // The whole answer. Content-Length, Connection, Date and Transfer-Encoding are set here and
  // ignored among `headers`; control characters in them become blanks. HEAD gets no body.
  virtual void Respond(int status, HttpHeaders headers, std::string body) = 0;
  // The head of an answer of unknown length; then Send() and Close(). What comes out of order, or
  // after the answer is complete, is ignored.
  virtual void Start(int status, HttpHeaders headers) = 0;
  virtual void Send(std::string bytes) = 0;
  virtual void Close() = 0;
  // Called at most once, if the client goes away or falls too far behind before Respond() or
  // Close(); at once, by this call, if it already has; otherwise on a socket thread or the one that
  // ends the server. A client that shuts down its sending side has gone away. `callback` must not
  // own this exchange.
  virtual void OnGone(std::function<void()> callback) = 0;
  virtual bool gone() const = 0;
};

// Called on a socket thread for each request, on several at once if there are several; must not
// block for long.
using HttpHandler = std::function<void(std::shared_ptr<HttpExchange>)>;

struct HttpStatus {
  int64_t connections = 0;
  int64_t connections_total = 0;
  int64_t requests_total = 0;
  int64_t disconnects_total = 0;  // before the answer was complete and sent
  int64_t refused_total = 0;      // malformed, too large, too slow, too many
};

class HttpServer {
 public:
  // Binds and listens. Errors name address and port and what to do.
  static Result<std::unique_ptr<HttpServer>> Start(const HttpOptions& options, HttpHandler handler);
  // Closes the listener and every connection, ends the threads. Unanswered exchanges are gone.
  // REQUIRES: not called on a socket thread.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  uint16_t port() const;
  // Stops accepting connections; running exchanges go on, kept-alive ones close after their answer.
  void StopAccepting();
  // Waits until the system has every byte of the answers that are due, those that nobody has made
  // yet among them; false if that takes longer than seconds_max.
  bool WaitUntilSent(double seconds_max);
  HttpStatus status() const;

 private:
  struct Impl;
  explicit HttpServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace minke

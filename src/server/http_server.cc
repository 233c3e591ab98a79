#include "server/http_server.h"

#include <algorithm>
#include <atomic>
#include <exception>
#include <thread>
#include <utility>

#include <boost/asio/ip/v6_only.hpp>
#include <boost/asio/post.hpp>

#include <fmt/core.h>

#include "core/thread_start.h"
#include "server/http_server_connection.h"

namespace minke {

namespace {

namespace net = boost::asio;
using NetError = boost::system::error_code;

constexpr int kThreadsMax = 64;
// After the system had no descriptor or memory for a connection.
constexpr std::chrono::milliseconds kAcceptPause{100};

Status CheckOptions(const HttpOptions& options) {
  if (options.threads < 1 || options.threads > kThreadsMax) {
    return Fail(fmt::format("The HTTP server needs 1 to {} threads, not {}.", kThreadsMax,
                            options.threads));
  }
  const bool counts = options.connections_max > 0 && options.header_bytes_max > 0 &&
                      options.headers_max > 0 && options.body_bytes_max >= 0 &&
                      options.bodies_bytes_max >= 0 && options.bytes_per_second_min > 0 &&
                      options.unsent_bytes_max > 0;
  const bool times = options.header_seconds_max > 0 && options.body_seconds_max > 0 &&
                     options.idle_seconds_max > 0 && options.write_seconds_max > 0;
  if (!counts || !times) return Fail("Every limit of the HTTP server must be above zero.");
  return {};
}

// What went wrong with the listener's address, and the way out.
tl::unexpected<Error> CannotListen(const HttpOptions& options, const NetError& error) {
  const bool v6 = options.address.find(':') != std::string::npos;
  std::string hint;
  if (error == net::error::address_in_use) {
    hint = " Another program uses this port: end it, or choose another port.";
  } else if (error == net::error::access_denied) {
    hint = " Ports below 1024 need privileges: choose a higher one.";
  } else {
    hint = " Choose an address of this machine, such as 127.0.0.1.";
  }
  return Fail(ErrorCode::kIo,
              fmt::format("Cannot listen on {}{}{}:{}: {}.{}", v6 ? "[" : "", options.address,
                          v6 ? "]" : "", options.port, error.message(), hint));
}

// Counts a handler for as long as Asio keeps it.
class PendingAccept {
 public:
  explicit PendingAccept(int& count) : count_(&count) { ++*count_; }
  PendingAccept(PendingAccept&& other) noexcept : count_(std::exchange(other.count_, nullptr)) {}
  PendingAccept& operator=(PendingAccept&&) = delete;
  PendingAccept(const PendingAccept&) = delete;
  PendingAccept& operator=(const PendingAccept&) = delete;
  ~PendingAccept() {
    if (count_ != nullptr) --*count_;
  }

 private:
  int* count_;
};

}  // namespace

struct HttpServer::Impl {
  Impl(const HttpOptions& options, HttpHandler handler) : shared(options, std::move(handler)) {
    for (int i = 0; i < options.threads; ++i) loops.push_back(std::make_unique<HttpLoop>());
    acceptor.emplace(loops.front()->io);
    accept_pause.emplace(loops.front()->io);
  }
  ~Impl();
  Impl(const Impl&) = delete;
  Impl& operator=(const Impl&) = delete;

  Status Listen();
  Status Run();
  void RunLoop(size_t index);
  void Accept();
  void AcceptLater();
  bool OnAccepted(const NetError& error, HttpLoop& loop, net::ip::tcp::socket socket);
  void CloseListener();

  HttpShared shared;
  // That are pending, pauses before one included; of the first loop's thread. Outlives the
  // handlers.
  int accepts = 0;
  std::vector<std::unique_ptr<HttpLoop>> loops;  // the first one accepts
  std::optional<net::ip::tcp::acceptor> acceptor;
  std::optional<net::steady_timer> accept_pause;
  size_t next_loop = 0;
  uint16_t port = 0;
  std::vector<std::jthread> threads;
};

Status HttpServer::Impl::Listen() {
  const HttpOptions& options = shared.options;
  NetError error;
  const std::string literal = options.address == "localhost" ? "127.0.0.1" : options.address;
  const net::ip::address address = net::ip::make_address(literal, error);
  if (error) {
    return Fail(
        fmt::format("The address '{}' to listen on is not an IPv4 or IPv6 address in "
                    "digits. Write for example 127.0.0.1, ::1 or 0.0.0.0.",
                    options.address));
  }
  const net::ip::tcp::endpoint endpoint(address, options.port);
  // NOLINTNEXTLINE(bugprone-unused-return-value): these report through `error`.
  acceptor->open(endpoint.protocol(), error);
  // A port whose last connections are still being wound up can be taken again at once.
  if (!error) acceptor->set_option(net::socket_base::reuse_address(true), error);
  if (!error && address.is_v6()) acceptor->set_option(net::ip::v6_only(false), error);
  if (!error) acceptor->bind(endpoint, error);
  if (!error) acceptor->listen(net::socket_base::max_listen_connections, error);
  if (!error) port = acceptor->local_endpoint(error).port();
  if (error) return CannotListen(options, error);
  return {};
}

Status HttpServer::Impl::Run() {
  Accept();
  for (size_t i = 0; i < loops.size(); ++i) {
    threads.push_back(
        TRY(StartThread("the HTTP server", [this, i](const std::stop_token&) { RunLoop(i); })));
  }
  return {};
}

void HttpServer::Impl::RunLoop(size_t index) {
  while (true) {
    try {
      // Asio gives a new socket memory before it calls the handler, which then never comes: without
      // this the server would live on and take no connection any more.
      if (index == 0 && accepts == 0) Accept();
      loops[index]->io.run();
      return;
    } catch (const std::exception&) {
      // Memory for one event did not suffice; the others still have to be served.
      if (index == 0 && accepts == 0) std::this_thread::sleep_for(kAcceptPause);
    }
  }
}

void HttpServer::Impl::Accept() {
  if (!acceptor->is_open()) return;
  HttpLoop& loop = *loops[next_loop];
  next_loop = (next_loop + 1) % loops.size();
  acceptor->async_accept(loop.io, [this, &loop, pending = PendingAccept(accepts)](
                                      const NetError& error, net::ip::tcp::socket socket) {
    bool again = false;
    try {
      again = OnAccepted(error, loop, std::move(socket));
    } catch (const std::exception&) {
      // Memory for this connection did not suffice; there will be others.
    }
    return again ? Accept() : AcceptLater();
  });
}

// Without a pause a system that is out of descriptors would keep this thread busy with that.
void HttpServer::Impl::AcceptLater() {
  if (!acceptor->is_open()) return;
  accept_pause->expires_after(kAcceptPause);
  accept_pause->async_wait([this, pending = PendingAccept(accepts)](const NetError&) { Accept(); });
}

// Returns whether the system has what another connection needs.
bool HttpServer::Impl::OnAccepted(const NetError& error, HttpLoop& loop,
                                  net::ip::tcp::socket socket) {
  if (!acceptor->is_open()) return false;
  const bool full = shared.connections >= shared.options.connections_max;
  const bool exhausted = error && error != net::error::connection_aborted;
  std::shared_ptr<HttpConnection> evicted;
  if (full || exhausted) evicted = shared.waiting.Longest();
  if (evicted) evicted->EvictSoon();
  if (error) return !exhausted;
  ++shared.connections_total;
  if (full && !evicted) {
    ++shared.refused_total;
    NetError ignored;
    socket.non_blocking(true, ignored);
    const std::string answer =
        HttpRefusalAnswer(shared.options, {503, "The server has too many connections."}, nullptr);
    socket.write_some(net::buffer(answer), ignored);
  } else {
    auto connection = std::make_shared<HttpConnection>(shared, loop, std::move(socket));
    ++shared.connections;
    try {
      net::post(loop.io, [connection] { connection->Begin(); });
    } catch (const std::exception&) {
      --shared.connections;
      throw;
    }
  }
  return true;
}

void HttpServer::Impl::CloseListener() {
  NetError ignored;
  acceptor->close(ignored);
  accept_pause->cancel();
}

HttpServer::Impl::~Impl() {
  shared.draining = true;
  shared.stopping = true;
  for (const std::unique_ptr<HttpLoop>& loop : loops) loop->io.stop();
  threads.clear();  // joins, and from here on everything belongs to this thread
  for (const std::unique_ptr<HttpLoop>& loop : loops) {
    while (!loop->connections.empty()) {
      const std::shared_ptr<HttpConnection> connection = *loop->connections.begin();
      loop->connections.erase(connection);
      try {
        connection->Close();
      } catch (const std::exception&) {
        // Thrown by somebody's OnGone(), and there is nobody left to tell.
      }
    }
  }
}

Result<std::unique_ptr<HttpServer>> HttpServer::Start(const HttpOptions& options,
                                                      HttpHandler handler) {
  TRY_STATUS(CheckOptions(options));
  try {
    auto impl = std::make_unique<Impl>(options, std::move(handler));
    TRY_STATUS(impl->Listen());
    TRY_STATUS(impl->Run());
    return std::unique_ptr<HttpServer>(new HttpServer(std::move(impl)));
  } catch (const std::exception& error) {
    return Fail(ErrorCode::kIo,
                fmt::format("The HTTP server cannot start on {}:{}: {}. Close other programs or "
                            "raise the limit of descriptors (ulimit -n).",
                            options.address, options.port, error.what()));
  }
}

HttpServer::HttpServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpServer::~HttpServer() = default;

uint16_t HttpServer::port() const {
  return impl_->port;
}

void HttpServer::StopAccepting() {
  impl_->shared.draining = true;
  net::post(impl_->loops.front()->io, [impl = impl_.get()] { impl->CloseListener(); });
}

bool HttpServer::WaitUntilSent(double seconds_max) {
  return impl_->shared.answers.WaitForNone(seconds_max);
}

HttpStatus HttpServer::status() const {
  const HttpShared& shared = impl_->shared;
  return {.connections = shared.connections,
          .connections_total = shared.connections_total,
          .requests_total = shared.requests_total,
          .disconnects_total = shared.disconnects_total,
          .refused_total = shared.refused_total};
}

}  // namespace minke

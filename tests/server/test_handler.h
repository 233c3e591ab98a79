// Handlers of the tests of the HTTP server.
#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include <gtest/gtest.h>

#include "server/http_server.h"
#include "tests/server/raw_client.h"

namespace minke::test {

// Keeps what the server hands out until a test asks for it.
class Inbox {
 public:
  HttpHandler handler() {
    return [this](std::shared_ptr<HttpExchange> exchange) {
      const std::lock_guard<std::mutex> lock(mutex_);
      exchanges_.push_back(std::move(exchange));
      changed_.notify_all();
    };
  }
  // The next exchange; null if none comes.
  std::shared_ptr<HttpExchange> Next() {
    std::unique_lock<std::mutex> lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [this] { return !exchanges_.empty(); })) return nullptr;
    std::shared_ptr<HttpExchange> exchange = std::move(exchanges_.front());
    exchanges_.pop_front();
    return exchange;
  }

 private:
  std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  std::deque<std::shared_ptr<HttpExchange>> exchanges_;
};

// Answers at once with "METHOD PATH?QUERY BODY".
inline void Echo(const std::shared_ptr<HttpExchange>& exchange) {
  const HttpRequest& request = exchange->request();
  exchange->Respond(200, {{"Content-Type", "text/plain"}},
                    request.method + " " + request.path + "?" + request.query + " " + request.body);
}

// One event that one thread reports and another waits for.
class Signal {
 public:
  void Set() {
    const std::lock_guard<std::mutex> lock(mutex_);
    ++count_;
    changed_.notify_all();
  }
  bool Wait(std::chrono::milliseconds patience = kPatience) {
    std::unique_lock<std::mutex> lock(mutex_);
    return changed_.wait_for(lock, patience, [this] { return count_ > 0; });
  }
  int count() const {
    const std::lock_guard<std::mutex> lock(mutex_);
    return count_;
  }

 private:
  mutable std::mutex mutex_;  // guards everything below
  std::condition_variable changed_;
  int count_ = 0;
};

template <typename Condition>
bool WaitUntil(Condition condition) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return true;
}

inline HttpOptions AnyPort() {
  HttpOptions options;
  options.port = 0;
  return options;
}

inline std::unique_ptr<HttpServer> StartServer(const HttpOptions& options, HttpHandler handler) {
  Result<std::unique_ptr<HttpServer>> server = HttpServer::Start(options, std::move(handler));
  EXPECT_TRUE(server.has_value()) << (server ? "" : server.error().message);
  return server ? std::move(*server) : nullptr;
}

}  // namespace minke::test

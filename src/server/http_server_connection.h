// One client's connection, and what all connections of a server share. Asio is used as a reactor:
// it says when a socket can be read or written, and all calls on the socket return at once.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <utility>
#include <vector>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "server/http_server.h"
#include "server/http_server_answer.h"
#include "server/http_server_reader.h"

namespace minke {

class HttpConnection;

// Connections that wait for a client to say something, the longest-waiting first: they have to go
// when there are too many connections. Thread-safe.
class HttpWaitingList {
 public:
  using Place = std::list<std::weak_ptr<HttpConnection>>::iterator;
  Place Join(std::weak_ptr<HttpConnection> connection);
  void Leave(Place place);
  // The one that has waited longest, or null; the next call gives another one.
  std::shared_ptr<HttpConnection> Longest();

 private:
  std::mutex mutex_;  // guards everything below
  std::list<std::weak_ptr<HttpConnection>> connections_;
};

// Counts the connections whose answer is being made or sent. Thread-safe.
class HttpAnswerCount {
 public:
  // One of them, for as long as it exists.
  class Part {
   public:
    explicit Part(HttpAnswerCount& count);
    ~Part();
    Part(const Part&) = delete;
    Part& operator=(const Part&) = delete;

   private:
    HttpAnswerCount& count_;
  };
  // False if there still are some after that time.
  bool WaitForNone(double seconds_max);

 private:
  std::mutex mutex_;  // guards everything below
  std::condition_variable none_;
  int64_t count_ = 0;
};

// What the connections of a server share; outlives them.
struct HttpShared {
  HttpShared(const HttpOptions& options_in, HttpHandler handler_in)
      : options(options_in), handler(std::move(handler_in)) {}

  const HttpOptions options;
  const HttpHandler handler;
  std::atomic<bool> draining{false};  // no connection is kept
  std::atomic<bool> stopping{false};  // the server is going away
  std::atomic<int64_t> connections{0};
  std::atomic<int64_t> connections_total{0};
  std::atomic<int64_t> requests_total{0};
  std::atomic<int64_t> disconnects_total{0};
  std::atomic<int64_t> refused_total{0};
  std::atomic<int64_t> bodies_bytes{0};  // received of bodies that are not yet complete
  HttpWaitingList waiting;
  HttpAnswerCount answers;
};

// One thread and the connections that it serves. Everything but io.post is that thread's.
struct HttpLoop {
  HttpLoop() : io(1), work(boost::asio::make_work_guard(io)), scratch(kScratchBytes) {}

  static constexpr size_t kScratchBytes = size_t{64} << 10;

  boost::asio::io_context io;
  boost::asio::executor_work_guard<boost::asio::io_context::executor_type> work;
  std::vector<char> scratch;  // what a socket gives goes here first, so that idle ones need nothing
  std::unordered_set<std::shared_ptr<HttpConnection>> connections;
};

// The answer of the server itself to what no handler sees; the connection ends after it.
std::string HttpRefusalAnswer(const HttpOptions& options, const HttpRefusal& refusal,
                              const HttpRequest* head);

// Lives on its loop's thread; EvictSoon() may be called from any thread.
class HttpConnection : public std::enable_shared_from_this<HttpConnection> {
 public:
  HttpConnection(HttpShared& shared, HttpLoop& loop, boost::asio::ip::tcp::socket socket);
  ~HttpConnection() = default;
  HttpConnection(const HttpConnection&) = delete;
  HttpConnection& operator=(const HttpConnection&) = delete;

  void Begin();
  // Closes at once. An answer that is not complete is gone.
  void Close();
  // Closes if it still only waits.
  void EvictSoon();

 private:
  using Clock = std::chrono::steady_clock;
  enum class Stage {
    kIdle,    // no byte of a request yet
    kHead,    // some of its header
    kBody,    // some of its body
    kAnswer,  // its answer is made or sent
    kRefuse,  // the answer of the server itself is sent
    kLinger,  // all is sent; waits for the client to close
    kClosed,
  };

  // Runs `body`; a connection whose memory does not suffice is closed, and the others go on.
  template <typename Body>
  void Guarded(Body body);

  void WaitRead();
  void WaitWrite();
  void OnReadable();
  void OnReceived(std::string_view bytes);
  void OnPeerClosed();
  void Feed(std::string_view bytes);
  void FollowRequest();
  void OfferContinue();
  void Dispatch();
  void OnWake();
  void Pump();
  void TakeOutput();
  void OnWritten();
  void FinishAnswer();
  void NextRequest();
  void Refuse(const HttpRefusal& refusal);
  void Linger();
  void OnExpired();

  void JoinWaiting();
  void LeaveWaiting();
  void CountBody(int64_t bytes);  // of the body that is being received
  void SetDeadline(Clock::time_point deadline);
  void SetDeadline(double seconds);  // from now
  void ClearDeadline() { deadline_ = Clock::time_point::max(); }
  void ArmTimer();
  Clock::duration SlowestTime(double seconds, int64_t bytes) const;

  HttpShared& shared_;
  HttpLoop& loop_;
  boost::asio::ip::tcp::socket socket_;
  boost::asio::steady_timer timer_;
  Clock::time_point timer_at_ = Clock::time_point::max();  // max: the timer is not armed
  Clock::time_point deadline_ = Clock::time_point::max();  // max: none
  std::string client_;

  Stage stage_ = Stage::kIdle;
  bool reading_ = false;  // a wait is pending
  bool writing_ = false;
  bool peer_closed_ = false;  // it sends nothing any more
  HttpRequestReader reader_;
  std::string ahead_;  // bytes of requests after the one that is being answered
  int64_t counted_body_bytes_ = 0;
  Clock::time_point body_start_;
  Clock::time_point out_end_latest_ = Clock::time_point::max();
  std::shared_ptr<HttpAnswer> answer_;
  std::optional<HttpAnswerCount::Part> counted_;  // in kAnswer and kRefuse
  bool answer_more_ = false;                      // it has bytes that are not yet in out_
  bool answer_complete_ = false;
  bool answer_keep_alive_ = false;
  std::string out_;  // being sent
  size_t out_sent_ = 0;
  std::optional<HttpWaitingList::Place> waiting_place_;
};

}  // namespace minke

#include "server/http_server_connection.h"

#include <netinet/tcp.h>
#include <sys/socket.h>

#include <algorithm>
#include <exception>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/error.hpp>
#include <boost/asio/post.hpp>

#include <fmt/core.h>

namespace minke {

namespace {

namespace asio = boost::asio;
using AsioError = boost::system::error_code;

// For the client to take what was sent and close; to close earlier on unread bytes would reset the
// connection, and the client might lose the answer.
constexpr double kLingerSeconds = 5;
// Of later requests that are kept while one is answered. Past it they stay in the system's buffer;
// then the client's going is noticed when something is sent to it, not before.
constexpr size_t kAheadBytesMax = size_t{64} << 10;
constexpr size_t kWriteBytesMax = size_t{256} << 10;  // at once, so that others get their turn
constexpr size_t kKeepBytes = size_t{16} << 10;       // memory that an idle connection may keep
constexpr std::string_view kContinue = "HTTP/1.1 100 Continue\r\n\r\n";

// The address in digits; an IPv4 client of an IPv6 listener as IPv4.
std::string ClientName(const asio::ip::tcp::socket& socket) {
  AsioError error;
  const asio::ip::tcp::endpoint peer = socket.remote_endpoint(error);
  if (error) return {};
  const asio::ip::address address = peer.address();
  if (address.is_v6() && address.to_v6().is_v4_mapped()) {
    return asio::ip::make_address_v4(asio::ip::v4_mapped, address.to_v6()).to_string();
  }
  return address.to_string();
}

// A client that vanished without a word, its cable pulled, is noticed by the system: what was sent
// to it stays unacknowledged, or its silence does.
void WatchPeer(asio::ip::tcp::socket& socket, double seconds) {
  AsioError ignored;
  socket.set_option(asio::ip::tcp::no_delay(true), ignored);
  socket.set_option(asio::socket_base::keep_alive(true), ignored);
  const int timeout_ms = static_cast<int>(std::clamp(seconds * 1000, 1.0, 1e9));
  const int idle_seconds = std::max(1, timeout_ms / 1000);
  // Failure costs only the notice.
  setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_USER_TIMEOUT, &timeout_ms,
             sizeof(timeout_ms));
  setsockopt(socket.native_handle(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_seconds,
             sizeof(idle_seconds));
}

std::chrono::steady_clock::duration Seconds(double seconds) {
  constexpr double kSecondsMax = 1e9;  // more would not fit the clock
  return std::chrono::duration_cast<std::chrono::steady_clock::duration>(
      std::chrono::duration<double>(std::clamp(seconds, 0.0, kSecondsMax)));
}

HttpReadLimits ReadLimits(const HttpOptions& options) {
  return {.header_bytes_max = options.header_bytes_max,
          .headers_max = options.headers_max,
          .body_bytes_max = options.body_bytes_max};
}

}  // namespace

HttpWaitingList::Place HttpWaitingList::Join(std::weak_ptr<HttpConnection> connection) {
  const std::lock_guard<std::mutex> lock(mutex_);
  return connections_.insert(connections_.end(), std::move(connection));
}

void HttpWaitingList::Leave(Place place) {
  const std::lock_guard<std::mutex> lock(mutex_);
  connections_.erase(place);
}

std::shared_ptr<HttpConnection> HttpWaitingList::Longest() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (connections_.empty()) return nullptr;
  connections_.splice(connections_.end(), connections_, connections_.begin());
  return connections_.back().lock();
}

HttpAnswerCount::Part::Part(HttpAnswerCount& count) : count_(count) {
  const std::lock_guard<std::mutex> lock(count_.mutex_);
  ++count_.count_;
}

HttpAnswerCount::Part::~Part() {
  const std::lock_guard<std::mutex> lock(count_.mutex_);
  if (--count_.count_ == 0) count_.none_.notify_all();
}

bool HttpAnswerCount::WaitForNone(double seconds_max) {
  std::unique_lock<std::mutex> lock(mutex_);
  return none_.wait_for(lock, Seconds(seconds_max), [this] { return count_ == 0; });
}

std::string HttpRefusalAnswer(const HttpOptions& options, const HttpRefusal& refusal,
                              const HttpRequest* head) {
  const bool json = options.error_answer != nullptr;
  HttpErrorAnswer answer;
  if (json) {
    answer = options.error_answer(refusal.status, head, refusal.message);
  } else {
    answer.body = refusal.message + "\n";
  }
  answer.headers.emplace_back("Content-Type", json ? "application/json" : "text/plain");
  if (refusal.status == 503) answer.headers.emplace_back("Retry-After", "1");
  return HttpAnswerHead(refusal.status, answer.headers,
                        fmt::format("Content-Length: {}\r\n", answer.body.size()),
                        HttpAnswerForm{}) +
         answer.body;
}

HttpConnection::HttpConnection(HttpShared& shared, HttpLoop& loop, asio::ip::tcp::socket socket)
    : shared_(shared),
      loop_(loop),
      socket_(std::move(socket)),
      timer_(loop.io),
      reader_(ReadLimits(shared.options)) {}

template <typename Body>
void HttpConnection::Guarded(Body body) {
  try {
    if (stage_ != Stage::kClosed) body();
  } catch (const std::exception&) {
    Close();
  }
}

void HttpConnection::Begin() {
  Guarded([this] {
    loop_.connections.insert(shared_from_this());
    AsioError error;
    socket_.non_blocking(true, error);
    if (error || shared_.stopping) return Close();
    client_ = ClientName(socket_);
    WatchPeer(socket_, shared_.options.write_seconds_max);
    NextRequest();
  });
}

void HttpConnection::Close() {
  if (stage_ == Stage::kClosed) return;
  const std::shared_ptr<HttpConnection> self = shared_from_this();
  stage_ = Stage::kClosed;
  LeaveWaiting();
  CountBody(0);
  AsioError ignored;
  socket_.close(ignored);
  timer_.cancel();
  loop_.connections.erase(self);
  HttpAnswer::Ending ending;
  if (answer_) ending = answer_->Detach();
  answer_.reset();
  counted_.reset();
  if (ending.missed && !shared_.stopping) ++shared_.disconnects_total;
  --shared_.connections;
  if (ending.on_gone) ending.on_gone();  // last: whoever is told finds all as it is now
}

void HttpConnection::EvictSoon() {
  asio::post(loop_.io, [self = shared_from_this()] {
    if (!self->waiting_place_) return;
    if (self->stage_ == Stage::kHead) ++self->shared_.refused_total;
    self->Close();
  });
}

void HttpConnection::WaitRead() {
  if (reading_ || peer_closed_ || stage_ == Stage::kClosed) return;
  reading_ = true;
  socket_.async_wait(asio::socket_base::wait_read,
                     [self = shared_from_this()](const AsioError& /*error*/) {
                       self->reading_ = false;
                       self->Guarded([&self] { self->OnReadable(); });
                     });
}

void HttpConnection::WaitWrite() {
  if (writing_ || stage_ == Stage::kClosed) return;
  writing_ = true;
  socket_.async_wait(asio::socket_base::wait_write,
                     [self = shared_from_this()](const AsioError& /*error*/) {
                       self->writing_ = false;
                       self->Guarded([&self] { self->Pump(); });
                     });
}

void HttpConnection::OnReadable() {
  AsioError error;
  const size_t bytes = socket_.read_some(asio::buffer(loop_.scratch), error);
  if (error == asio::error::would_block || error == asio::error::interrupted) return WaitRead();
  if (error == asio::error::eof) return OnPeerClosed();
  if (error) return Close();
  OnReceived({loop_.scratch.data(), bytes});
}

void HttpConnection::OnReceived(std::string_view bytes) {
  switch (stage_) {
    case Stage::kIdle:
    case Stage::kHead:
    case Stage::kBody:
      return Feed(bytes);
    case Stage::kAnswer:
      ahead_ += bytes;
      if (ahead_.size() < kAheadBytesMax) WaitRead();
      return;
    case Stage::kRefuse:
    case Stage::kLinger:
      return WaitRead();  // nobody will read it
    case Stage::kClosed:
      return;
  }
}

// The client sends nothing any more. Only what is already on its way to it still makes sense.
void HttpConnection::OnPeerClosed() {
  peer_closed_ = true;
  const bool sends =
      stage_ == Stage::kRefuse || (stage_ == Stage::kAnswer && answer_ && answer_->complete());
  if (!sends) Close();
}

void HttpConnection::Feed(std::string_view bytes) {
  const size_t used = reader_.Read(bytes);
  if (stage_ == Stage::kIdle && reader_.begun()) {
    stage_ = Stage::kHead;
    SetDeadline(shared_.options.header_seconds_max);
  }
  if (reader_.refused()) {
    const HttpRefusal refusal = reader_.refusal();  // the reader begins anew
    return Refuse(refusal);
  }
  if (reader_.done()) {
    ahead_ = bytes.substr(used);
    return Dispatch();
  }
  FollowRequest();
}

// A part of a request has come; sets what the next part must keep to.
void HttpConnection::FollowRequest() {
  if (reader_.head_done()) {
    if (stage_ != Stage::kBody) {
      stage_ = Stage::kBody;
      LeaveWaiting();
      OfferContinue();
      if (stage_ != Stage::kBody) return;
      body_start_ = Clock::now();
    }
    CountBody(reader_.body_bytes());
    if (shared_.bodies_bytes > shared_.options.bodies_bytes_max) {
      return Refuse({503, "The server is receiving too many bytes at once; try again."});
    }
    const double seconds = shared_.options.body_seconds_max;
    SetDeadline(std::min(Clock::now() + Seconds(seconds),
                         body_start_ + SlowestTime(seconds, reader_.body_bytes())));
  }
  WaitRead();
}

// A client that asked before sending its body is told to go on; one that did not wait is not.
void HttpConnection::OfferContinue() {
  if (!reader_.expects_continue() || reader_.body_bytes() > 0) return;
  out_ += kContinue;
  Pump();
}

void HttpConnection::Dispatch() {
  LeaveWaiting();
  CountBody(0);
  ClearDeadline();
  stage_ = Stage::kAnswer;
  counted_.emplace(shared_.answers);
  answer_complete_ = false;
  ++shared_.requests_total;
  const HttpAnswerForm form = {.head_only = reader_.request().method == "HEAD",
                               .http_1_1 = reader_.http_1_1(),
                               .keep_alive = reader_.keep_alive()};
  answer_ = std::make_shared<HttpAnswer>(form, shared_.options.unsent_bytes_max, shared_.draining,
                                         [weak = weak_from_this(), &io = loop_.io] {
                                           asio::post(io, [weak] {
                                             const std::shared_ptr<HttpConnection> self =
                                                 weak.lock();
                                             if (self) self->Guarded([&self] { self->OnWake(); });
                                           });
                                         });
  HttpRequest request = reader_.Take();
  request.client = client_;
  // The pending read is how a client that goes away is noticed.
  if (ahead_.size() < kAheadBytesMax) WaitRead();
  // Outside: a connection without an exchange is closed, because nobody would ever answer.
  std::shared_ptr<HttpExchange> exchange = NewHttpExchange(std::move(request), answer_);
  try {
    shared_.handler(std::move(exchange));
  } catch (const std::exception&) {
    // The exchange went with the handler's stack, and so the client gets its 500.
  }
}

void HttpConnection::OnWake() {
  if (stage_ == Stage::kAnswer) Pump();
}

// Sends what there is to send, as far as the client takes it.
void HttpConnection::Pump() {
  if (stage_ == Stage::kAnswer && !answer_complete_) TakeOutput();
  if (writing_ || stage_ == Stage::kClosed) return;
  if (out_sent_ < out_.size()) {
    AsioError error;
    const size_t count = std::min(out_.size() - out_sent_, kWriteBytesMax);
    const size_t sent = socket_.write_some(asio::buffer(out_.data() + out_sent_, count), error);
    const bool blocked = error == asio::error::would_block || error == asio::error::interrupted;
    if (error && !blocked) return Close();
    out_sent_ += sent;
    if (sent > 0 && answer_) answer_->Written(sent);
    if (out_sent_ < out_.size()) {
      // A body that is being received has a deadline of its own.
      if (stage_ != Stage::kBody && (sent > 0 || deadline_ == Clock::time_point::max())) {
        SetDeadline(
            std::min(Clock::now() + Seconds(shared_.options.write_seconds_max), out_end_latest_));
      }
      return WaitWrite();
    }
  }
  OnWritten();
}

// New bytes are taken only when the old ones are sent: what waits longer is limited by the answer.
void HttpConnection::TakeOutput() {
  const bool has_room = out_sent_ == out_.size();
  HttpAnswer::Output output = answer_->Take(has_room);
  if (output.broken) return Close();
  answer_more_ = output.more;
  answer_complete_ = output.complete;
  answer_keep_alive_ = output.keep_alive;
  if (!has_room) return;
  out_ = std::move(output.bytes);
  out_sent_ = 0;
  out_end_latest_ = Clock::now() + SlowestTime(shared_.options.write_seconds_max,
                                               static_cast<int64_t>(out_.size()));
}

void HttpConnection::OnWritten() {
  out_.clear();
  if (out_.capacity() > kKeepBytes) std::string().swap(out_);
  out_sent_ = 0;
  if (stage_ == Stage::kRefuse) return Linger();
  if (stage_ != Stage::kAnswer) return;
  ClearDeadline();
  if (answer_complete_) return FinishAnswer();
  if (answer_more_) WaitWrite();
}

void HttpConnection::FinishAnswer() {
  answer_->Detach();
  answer_.reset();
  counted_.reset();
  if (!answer_keep_alive_ || peer_closed_) return Linger();
  NextRequest();
}

void HttpConnection::NextRequest() {
  stage_ = Stage::kIdle;
  SetDeadline(shared_.options.idle_seconds_max);
  JoinWaiting();
  if (ahead_.empty()) return WaitRead();
  Feed(std::exchange(ahead_, std::string()));
}

void HttpConnection::Refuse(const HttpRefusal& refusal) {
  ++shared_.refused_total;
  LeaveWaiting();
  CountBody(0);
  out_ += HttpRefusalAnswer(shared_.options, refusal,
                            reader_.head_done() ? &reader_.request() : nullptr);
  reader_ = HttpRequestReader(ReadLimits(shared_.options));
  stage_ = Stage::kRefuse;
  counted_.emplace(shared_.answers);
  out_end_latest_ = Clock::time_point::max();
  SetDeadline(shared_.options.write_seconds_max);
  Pump();
}

void HttpConnection::Linger() {
  if (peer_closed_) return Close();
  stage_ = Stage::kLinger;
  counted_.reset();
  AsioError error;
  socket_.shutdown(asio::socket_base::shutdown_send, error);
  if (error) return Close();
  std::string().swap(ahead_);
  JoinWaiting();
  SetDeadline(kLingerSeconds);
  WaitRead();
}

void HttpConnection::OnExpired() {
  switch (stage_) {
    case Stage::kHead:
      return Refuse({408, fmt::format("The header of the request was not complete within {} s.",
                                      shared_.options.header_seconds_max)});
    case Stage::kBody:
      return Refuse({408, "The body of the request came too slowly."});
    default:
      return Close();
  }
}

void HttpConnection::JoinWaiting() {
  if (!waiting_place_) waiting_place_ = shared_.waiting.Join(weak_from_this());
}

void HttpConnection::LeaveWaiting() {
  if (waiting_place_) shared_.waiting.Leave(*waiting_place_);
  waiting_place_.reset();
}

void HttpConnection::CountBody(int64_t bytes) {
  shared_.bodies_bytes += bytes - counted_body_bytes_;
  counted_body_bytes_ = bytes;
}

// What `bytes` may take that move no faster than they must, after `seconds` of grace.
HttpConnection::Clock::duration HttpConnection::SlowestTime(double seconds, int64_t bytes) const {
  return Seconds(seconds + static_cast<double>(bytes) /
                               static_cast<double>(shared_.options.bytes_per_second_min));
}

void HttpConnection::SetDeadline(double seconds) {
  SetDeadline(Clock::now() + Seconds(seconds));
}

// A deadline that moves back, as nearly all do, leaves the timer alone: it looks again when it goes
// off.
void HttpConnection::SetDeadline(Clock::time_point deadline) {
  deadline_ = deadline;
  if (deadline_ < timer_at_) ArmTimer();
}

void HttpConnection::ArmTimer() {
  timer_at_ = deadline_;
  timer_.expires_at(timer_at_);
  timer_.async_wait([self = shared_from_this()](const AsioError& error) {
    if (error || self->stage_ == Stage::kClosed) return;
    self->timer_at_ = Clock::time_point::max();
    self->Guarded([&self] {
      if (Clock::now() >= self->deadline_) return self->OnExpired();
      if (self->deadline_ != Clock::time_point::max()) self->ArmTimer();
    });
  });
}

}  // namespace minke

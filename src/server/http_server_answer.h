// An answer between the thread that makes it and the socket thread that sends it: a bounded queue
// of bytes that are already framed for the wire. Knows no socket.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "server/http_server.h"

namespace minke {

// What of a request decides how its answer is framed.
struct HttpAnswerForm {
  bool head_only = false;   // HEAD: the header of an answer without its body
  bool http_1_1 = true;     // streams go in chunks; to HTTP/1.0 they go until the connection ends
  bool keep_alive = false;  // as the client wants it
};

// The header of an answer up to the empty line. `framing`: the line that says where the body ends,
// with CR LF, or nothing.
std::string HttpAnswerHead(int status, const HttpHeaders& headers, std::string_view framing,
                           const HttpAnswerForm& form);

// Thread safety: the first half may be called from any thread, the second on the socket thread.
class HttpAnswer {
 public:
  // `wake` tells the connection that Take() has something; it is called with the answer's mutex
  // held and must only post. Both it and `draining` are used until Detach(), not later.
  HttpAnswer(const HttpAnswerForm& form, int64_t unsent_bytes_max,
             const std::atomic<bool>& draining, std::function<void()> wake)
      : form_(form),
        unsent_bytes_max_(unsent_bytes_max),
        draining_(draining),
        wake_(std::move(wake)) {}

  // Those of HttpExchange.
  void Respond(int status, const HttpHeaders& headers, std::string_view body);
  void Start(int status, const HttpHeaders& headers);
  void Send(std::string_view bytes);
  void Close();
  void OnGone(std::function<void()> callback);
  bool gone() const;
  // Nobody will go on with the answer.
  void Abandon();

  struct Output {
    std::string bytes;
    bool more = false;        // bytes were left here
    bool complete = false;    // nothing follows
    bool keep_alive = false;  // of a complete answer
    bool broken = false;      // cut the connection: abandoned half-way, or too far behind
  };
  // has_room: what was taken before is sent; otherwise the bytes stay here and are counted here.
  Output Take(bool has_room);
  void Written(size_t bytes);
  bool complete() const;
  struct Ending {
    bool missed = false;            // the client lacks a part of the answer, and not by our fault
    std::function<void()> on_gone;  // to be called, unless it is empty: the maker is still at it
  };
  // The connection is closed, and the answer takes nothing any more.
  Ending Detach();

 private:
  enum class Stage { kWaiting, kStreaming, kComplete, kAbandoned };

  // REQUIRES: mutex_ is held.
  void WakeLocked();
  void AppendLocked(std::string_view bytes);

  const HttpAnswerForm form_;
  const int64_t unsent_bytes_max_;
  const std::atomic<bool>& draining_;

  mutable std::mutex mutex_;  // guards everything below
  std::function<void()> wake_;
  Stage stage_ = Stage::kWaiting;
  bool chunked_ = false;
  bool has_body_ = true;
  bool keep_alive_ = false;
  bool gone_ = false;
  bool attached_ = true;
  bool woken_ = false;
  std::string bytes_;   // not yet taken
  int64_t unsent_ = 0;  // bytes_ and what was taken and is not yet written
  std::function<void()> on_gone_;
};

// `answer` and what it answers, as the handler sees them.
std::shared_ptr<HttpExchange> NewHttpExchange(HttpRequest request,
                                              std::shared_ptr<HttpAnswer> answer);

}  // namespace minke

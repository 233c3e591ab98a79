#include "server/http_server_answer.h"

#include <algorithm>
#include <array>
#include <ctime>
#include <exception>
#include <utility>

#include <fmt/core.h>

namespace minke {

namespace {

struct ReasonRow {
  int status;
  std::string_view reason;
};
constexpr std::array<ReasonRow, 32> kReasons = {{
    {100, "Continue"},
    {200, "OK"},
    {201, "Created"},
    {202, "Accepted"},
    {204, "No Content"},
    {301, "Moved Permanently"},
    {302, "Found"},
    {303, "See Other"},
    {304, "Not Modified"},
    {307, "Temporary Redirect"},
    {308, "Permanent Redirect"},
    {400, "Bad Request"},
    {401, "Unauthorized"},
    {402, "Payment Required"},
    {403, "Forbidden"},
    {404, "Not Found"},
    {405, "Method Not Allowed"},
    {406, "Not Acceptable"},
    {408, "Request Timeout"},
    {409, "Conflict"},
    {413, "Content Too Large"},
    {415, "Unsupported Media Type"},
    {417, "Expectation Failed"},
    {421, "Misdirected Request"},
    {422, "Unprocessable Content"},
    {429, "Too Many Requests"},
    {431, "Request Header Fields Too Large"},
    {500, "Internal Server Error"},
    {501, "Not Implemented"},
    {503, "Service Unavailable"},
    {504, "Gateway Timeout"},
    {505, "HTTP Version Not Supported"},
}};

std::string_view Reason(int status) {
  for (const ReasonRow& row : kReasons) {
    if (row.status == status) return row.reason;
  }
  return "Status";
}

// As HTTP wants it whatever the locale: "Sun, 06 Nov 1994 08:49:37 GMT".
std::string HttpDate(std::time_t now) {
  constexpr std::array<std::string_view, 7> kDays = {"Sun", "Mon", "Tue", "Wed",
                                                     "Thu", "Fri", "Sat"};
  constexpr std::array<std::string_view, 12> kMonths = {"Jan", "Feb", "Mar", "Apr", "May", "Jun",
                                                        "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"};
  std::tm utc = {};
  gmtime_r(&now, &utc);
  return fmt::format("{}, {:02} {} {} {:02}:{:02}:{:02} GMT",
                     kDays[static_cast<size_t>(utc.tm_wday)], utc.tm_mday,
                     kMonths[static_cast<size_t>(utc.tm_mon)], utc.tm_year + 1900, utc.tm_hour,
                     utc.tm_min, utc.tm_sec);
}

// Names that say where a body ends or what becomes of the connection are ours to say.
bool IsOurs(std::string_view name) {
  constexpr std::array<std::string_view, 4> kOurs = {"content-length", "transfer-encoding",
                                                     "connection", "date"};
  return std::any_of(kOurs.begin(), kOurs.end(), [name](std::string_view ours) {
    return std::equal(name.begin(), name.end(), ours.begin(), ours.end(), [](char a, char b) {
      return (a >= 'A' && a <= 'Z' ? static_cast<char>(a - 'A' + 'a') : a) == b;
    });
  });
}

// A value may hold what a client once sent; a line end in it would begin a header of the client's.
void AppendClean(std::string& head, std::string_view text) {
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    head.push_back(byte < 0x20 || byte == 0x7F ? ' ' : c);
  }
}

bool StatusHasBody(int status) {
  return status >= 200 && status != 204 && status != 304;
}

class Exchange : public HttpExchange {
 public:
  Exchange(HttpRequest request, std::shared_ptr<HttpAnswer> answer)
      : request_(std::move(request)), answer_(std::move(answer)) {}
  ~Exchange() override { answer_->Abandon(); }
  Exchange(const Exchange&) = delete;
  Exchange& operator=(const Exchange&) = delete;

  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override { return std::exchange(request_.body, std::string()); }
  void Respond(int status, HttpHeaders headers, std::string body) override {
    answer_->Respond(status, headers, body);
  }
  void Start(int status, HttpHeaders headers) override { answer_->Start(status, headers); }
  void Send(std::string bytes) override { answer_->Send(bytes); }
  void Close() override { answer_->Close(); }
  void OnGone(std::function<void()> callback) override { answer_->OnGone(std::move(callback)); }
  bool gone() const override { return answer_->gone(); }

 private:
  HttpRequest request_;
  std::shared_ptr<HttpAnswer> answer_;
};

}  // namespace

std::string HttpAnswerHead(int status, const HttpHeaders& headers, std::string_view framing,
                           const HttpAnswerForm& form) {
  std::string head = fmt::format("HTTP/1.1 {} {}\r\nDate: {}\r\n", status, Reason(status),
                                 HttpDate(std::time(nullptr)));
  for (const auto& header : headers) {
    if (header.first.empty() || IsOurs(header.first)) continue;
    AppendClean(head, header.first);
    head += ": ";
    AppendClean(head, header.second);
    head += "\r\n";
  }
  head += framing;
  if (!form.keep_alive) {
    head += "Connection: close\r\n";
  } else if (!form.http_1_1) {
    head += "Connection: keep-alive\r\n";
  }
  head += "\r\n";
  return head;
}

void HttpAnswer::WakeLocked() {
  if (!attached_ || woken_) return;
  wake_();
  woken_ = true;
}

void HttpAnswer::AppendLocked(std::string_view bytes) {
  bytes_ += bytes;
  unsent_ += static_cast<int64_t>(bytes.size());
}

void HttpAnswer::Respond(int status, const HttpHeaders& headers, std::string_view body) {
  std::function<void()> dropped;  // destroyed after the lock: it may own what calls back here
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stage_ != Stage::kWaiting) return;
  if (attached_ && !gone_) {
    HttpAnswerForm form = form_;
    form.keep_alive = keep_alive_ = form_.keep_alive && !draining_;
    const bool has_body = StatusHasBody(status);
    std::string answer = HttpAnswerHead(
        status, headers, has_body ? fmt::format("Content-Length: {}\r\n", body.size()) : "", form);
    if (has_body && !form.head_only) answer += body;
    WakeLocked();
    // From here on nothing needs memory: an answer that it did not suffice for is not complete, and
    // another one can be given.
    unsent_ += static_cast<int64_t>(answer.size());
    bytes_ = std::move(answer);
  }
  stage_ = Stage::kComplete;
  dropped.swap(on_gone_);
}

void HttpAnswer::Start(int status, const HttpHeaders& headers) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stage_ != Stage::kWaiting) return;
  stage_ = Stage::kStreaming;
  if (!attached_ || gone_) return;
  const bool has_body = StatusHasBody(status);
  chunked_ = has_body && form_.http_1_1;
  has_body_ = has_body && !form_.head_only;
  HttpAnswerForm form = form_;
  // Without chunks only the end of the connection says where the body ends.
  form.keep_alive = keep_alive_ = form_.keep_alive && !draining_ && (chunked_ || !has_body);
  AppendLocked(
      HttpAnswerHead(status, headers, chunked_ ? "Transfer-Encoding: chunked\r\n" : "", form));
  WakeLocked();
}

void HttpAnswer::Send(std::string_view bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A chunk of no bytes would say that the body ends.
  if (stage_ != Stage::kStreaming || !attached_ || gone_ || !has_body_ || bytes.empty()) return;
  if (unsent_ + static_cast<int64_t>(bytes.size()) > unsent_bytes_max_) {
    gone_ = true;
    std::string().swap(bytes_);
    return WakeLocked();
  }
  if (chunked_) AppendLocked(fmt::format("{:x}\r\n", bytes.size()));
  AppendLocked(bytes);
  if (chunked_) AppendLocked("\r\n");
  WakeLocked();
}

void HttpAnswer::Close() {
  std::function<void()> dropped;  // as in Respond()
  const std::lock_guard<std::mutex> lock(mutex_);
  if (stage_ != Stage::kStreaming || gone_) return;
  stage_ = Stage::kComplete;
  dropped.swap(on_gone_);
  if (!attached_) return;
  if (chunked_ && has_body_) AppendLocked("0\r\n\r\n");
  WakeLocked();
}

void HttpAnswer::OnGone(std::function<void()> callback) {
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (!gone_) {
      if (stage_ == Stage::kWaiting || stage_ == Stage::kStreaming) on_gone_.swap(callback);
      return;
    }
  }
  callback();
}

bool HttpAnswer::gone() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return gone_;
}

void HttpAnswer::Abandon() {
  bool answer = false;
  std::function<void()> dropped;  // as in Respond()
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    answer = stage_ == Stage::kWaiting;
    if (stage_ == Stage::kStreaming) {
      stage_ = Stage::kAbandoned;
      dropped.swap(on_gone_);
      WakeLocked();
    }
  }
  if (!answer) return;
  try {
    Respond(500, {{"Content-Type", "text/plain"}}, "The server gave no answer to this request.\n");
  } catch (const std::exception&) {
    // For no answer either does memory suffice: the connection is cut.
    const std::lock_guard<std::mutex> lock(mutex_);
    stage_ = Stage::kAbandoned;
    dropped.swap(on_gone_);
    WakeLocked();
  }
}

HttpAnswer::Output HttpAnswer::Take(bool has_room) {
  const std::lock_guard<std::mutex> lock(mutex_);
  woken_ = false;
  Output output;
  if (has_room) output.bytes.swap(bytes_);
  output.more = !bytes_.empty();
  output.complete = stage_ == Stage::kComplete && !output.more;
  output.keep_alive = keep_alive_;
  output.broken = stage_ == Stage::kAbandoned || gone_;
  return output;
}

void HttpAnswer::Written(size_t bytes) {
  const std::lock_guard<std::mutex> lock(mutex_);
  unsent_ -= static_cast<int64_t>(bytes);
}

bool HttpAnswer::complete() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return stage_ == Stage::kComplete;
}

HttpAnswer::Ending HttpAnswer::Detach() {
  const std::lock_guard<std::mutex> lock(mutex_);
  attached_ = false;
  std::string().swap(bytes_);
  const bool running = stage_ == Stage::kWaiting || stage_ == Stage::kStreaming;
  if (running) gone_ = true;
  Ending ending;
  ending.missed = running || (stage_ == Stage::kComplete && unsent_ > 0);
  ending.on_gone.swap(on_gone_);
  return ending;
}

std::shared_ptr<HttpExchange> NewHttpExchange(HttpRequest request,
                                              std::shared_ptr<HttpAnswer> answer) {
  return std::make_shared<Exchange>(std::move(request), std::move(answer));
}

}  // namespace minke

#include "server/http_server_reader.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/beast/http/basic_parser.hpp>
#include <boost/beast/http/error.hpp>

#include <fmt/core.h>

namespace minke {

namespace {

namespace http = boost::beast::http;
using BoostError = boost::beast::error_code;
using BoostView = boost::beast::string_view;

constexpr int kLeadingBytesMax = 4;       // two empty lines, which old clients send after a body
constexpr int kChunkSizeDigitsMax = 15;   // so that a size fits int64_t
constexpr int64_t kExtraBytesMax = 4096;  // of chunk extensions, which nobody sends
constexpr int64_t kReserveAlwaysBytes = 64 << 10;
constexpr int64_t kReserveShare = 4;  // a body's memory is reserved when a quarter of it has come

bool IsBlank(char c) {
  return c == ' ' || c == '\t';
}

char LowerCase(char c) {
  return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
}

bool EqualsLowerCase(std::string_view text, std::string_view lower_case) {
  return std::equal(text.begin(), text.end(), lower_case.begin(), lower_case.end(),
                    [](char a, char b) { return LowerCase(a) == b; });
}

// -1 for what is no hexadecimal digit.
int HexDigit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  const char lower = LowerCase(c);
  return lower >= 'a' && lower <= 'f' ? lower - 'a' + 10 : -1;
}

// The bytes behind %41 and their like; nothing if a percent sign is not followed by two digits or
// the result holds a control character (a NUL would end a C string early, a line end would forge
// a line of a log).
std::optional<std::string> DecodePercent(std::string_view text) {
  std::string decoded;
  for (size_t i = 0; i < text.size(); ++i) {
    char c = text[i];
    if (c == '%') {
      if (i + 2 >= text.size()) return std::nullopt;
      const int high = HexDigit(text[i + 1]);
      const int low = HexDigit(text[i + 2]);
      if (high < 0 || low < 0) return std::nullopt;
      c = static_cast<char>(high * 16 + low);
      i += 2;
    }
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) return std::nullopt;
    decoded.push_back(c);
  }
  return decoded;
}

// Beast checks the grammar of the head; what it would do with a body is not used, because its
// chunk parser has assertions that a client can reach.
class HeadParser : public http::basic_parser<true> {
 public:
  HeadParser(HttpRequest& request, int64_t headers_max)
      : request_(request), headers_max_(headers_max) {
    header_limit(std::numeric_limits<std::uint32_t>::max());  // the reader has its own
    body_limit(boost::none);
  }

  std::string_view target() const { return target_; }
  int version() const { return version_; }  // 10 or 11

 private:
  void on_request_impl(http::verb /*method*/, BoostView method, BoostView target, int version,
                       BoostError& /*error*/) override {
    request_.method.assign(method.data(), method.size());
    target_.assign(target.data(), target.size());
    version_ = version;
  }
  void on_response_impl(int /*code*/, BoostView /*reason*/, int /*version*/,
                        BoostError& /*error*/) override {}
  void on_field_impl(http::field /*known*/, BoostView name, BoostView value,
                     BoostError& error) override {
    if (static_cast<int64_t>(request_.headers.size()) >= headers_max_) {
      error = http::error::header_limit;
      return;
    }
    std::string lower_case(name.data(), name.size());
    std::transform(lower_case.begin(), lower_case.end(), lower_case.begin(), LowerCase);
    request_.headers.emplace_back(std::move(lower_case), std::string(value.data(), value.size()));
  }
  void on_header_impl(BoostError& /*error*/) override {}
  void on_body_init_impl(const boost::optional<std::uint64_t>& /*length*/,
                         BoostError& /*error*/) override {}
  std::size_t on_body_impl(BoostView body, BoostError& /*error*/) override { return body.size(); }
  void on_chunk_header_impl(std::uint64_t /*size*/, BoostView /*extensions*/,
                            BoostError& /*error*/) override {}
  std::size_t on_chunk_body_impl(std::uint64_t /*remain*/, BoostView body,
                                 BoostError& /*error*/) override {
    return body.size();
  }
  void on_finish_impl(BoostError& /*error*/) override {}

  HttpRequest& request_;
  std::string target_;
  int version_ = 0;
  int64_t headers_max_;
};

// Whether the request line ends in a well-formed version, such as HTTP/2.0.
bool EndsInVersion(std::string_view head) {
  const std::string_view line = head.substr(0, head.find('\r'));
  if (line.size() < 8) return false;
  const std::string_view version = line.substr(line.size() - 8);
  const auto is_digit = [](char c) { return c >= '0' && c <= '9'; };
  return version.substr(0, 5) == "HTTP/" && is_digit(version[5]) && version[6] == '.' &&
         is_digit(version[7]);
}

}  // namespace

std::string_view HttpRequest::Header(std::string_view name) const {
  for (const auto& header : headers) {
    if (header.first == name) return header.second;
  }
  return {};
}

size_t HttpRequestReader::Read(std::string_view bytes) {
  size_t used = 0;
  while (used < bytes.size() && !done() && !refused()) {
    if (stage_ == Stage::kHead) {
      used += ReadHead(bytes.substr(used));
    } else if (stage_ == Stage::kBody || stage_ == Stage::kChunkData) {
      used += ReadData(bytes.substr(used));
    } else {
      ReadChunkByte(bytes[used++]);
    }
  }
  return used;
}

HttpRequest HttpRequestReader::Take() {
  CHECK(done());
  HttpRequest request = std::move(request_);
  *this = HttpRequestReader(limits_);
  return request;
}

void HttpRequestReader::Refuse(int status, std::string message) {
  stage_ = Stage::kRefused;
  refusal_ = {status, std::move(message)};
  std::string().swap(request_.body);
}

size_t HttpRequestReader::ReadHead(std::string_view bytes) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const char c = bytes[i];
    if (head_.empty() && (c == '\r' || c == '\n')) {
      if (++leading_bytes_ <= kLeadingBytesMax) continue;
      Refuse(400, "The request begins with more empty lines than one.");
      return i + 1;
    }
    const char last = head_.empty() ? '\0' : head_.back();
    if (c == '\0') {
      Refuse(400, "The header of the request holds a NUL byte; this port speaks plain HTTP/1.1.");
    } else if ((last == '\r') != (c == '\n')) {
      Refuse(400, "A line of the header does not end in CR LF.");
    } else if (last == '\n' && IsBlank(c)) {
      Refuse(400, "A line of the header begins with a blank; folded headers are not accepted.");
    } else if (static_cast<int64_t>(head_.size()) >= limits_.header_bytes_max) {
      Refuse(431, fmt::format("The header of the request is longer than {} bytes.",
                              limits_.header_bytes_max));
    }
    if (refused()) return i + 1;
    head_.push_back(c);
    if (c == '\n' && head_.size() >= 4 && head_.compare(head_.size() - 4, 4, "\r\n\r\n") == 0) {
      EndHead();
      return i + 1;
    }
  }
  return bytes.size();
}

void HttpRequestReader::EndHead() {
  HeadParser parser(request_, limits_.headers_max);
  BoostError error;
  parser.put(boost::asio::const_buffer(head_.data(), head_.size()), error);
  if (error == http::error::bad_version && EndsInVersion(head_)) {
    return Refuse(505, "This server speaks HTTP/1.1 and HTTP/1.0.");
  }
  if (error == http::error::header_limit) {
    return Refuse(431, fmt::format("The request has more than {} headers.", limits_.headers_max));
  }
  if (error || !parser.is_header_done()) {
    return Refuse(400, fmt::format("The header of the request is malformed ({}).",
                                   error ? error.message() : "incomplete"));
  }
  std::string().swap(head_);
  head_done_ = true;
  http_1_1_ = parser.version() == 11;
  keep_alive_ = parser.keep_alive();
  SplitTarget(parser.target());
  if (!refused()) CheckFraming();
  if (!refused()) CheckExpect();
}

void HttpRequestReader::SplitTarget(std::string_view target) {
  // A client of a proxy sends the whole address; the part before the path is the Host header's.
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!EqualsLowerCase(target.substr(0, scheme.size()), scheme)) continue;
    target.remove_prefix(scheme.size());
    target.remove_prefix(std::min(target.find_first_of("/?"), target.size()));
    if (target.empty() || target.front() == '?') {
      request_.path = "/";
      request_.query = target.substr(std::min<size_t>(target.size(), 1));
      return;
    }
    break;
  }
  if (target.empty() || target.front() != '/' || target.find('#') != std::string_view::npos) {
    return Refuse(400, "The target of the request is not a path that starts with '/'.");
  }
  const size_t mark = target.find('?');
  if (mark != std::string_view::npos) request_.query = target.substr(mark + 1);
  std::optional<std::string> path = DecodePercent(target.substr(0, mark));
  if (!path) {
    return Refuse(400, "The path of the request holds a broken %-sequence or a control character.");
  }
  request_.path = std::move(*path);
}

// Where two programs disagree about the end of a body, one of them takes the rest for a request of
// its own; so each way to say two things about it is refused (RFC 9112 6.3 and 11.2).
void HttpRequestReader::CheckFraming() {
  int lengths = 0;
  int encodings = 0;
  int hosts = 0;
  std::string_view length;
  std::string_view encoding;
  for (const auto& header : request_.headers) {
    if (header.first == "content-length") {
      ++lengths;
      length = header.second;
    } else if (header.first == "transfer-encoding") {
      ++encodings;
      encoding = header.second;
    } else if (header.first == "host") {
      ++hosts;
    }
  }
  if (lengths > 1 || encodings > 1 || hosts > 1) {
    return Refuse(400,
                  "Content-Length, Transfer-Encoding or Host is in the header more than once.");
  }
  if (encodings > 0) {
    if (lengths > 0) {
      return Refuse(400, "The request has both Content-Length and Transfer-Encoding.");
    }
    if (!http_1_1_) return Refuse(400, "HTTP/1.0 has no Transfer-Encoding.");
    if (!EqualsLowerCase(encoding, "chunked")) {
      return Refuse(501, "The only Transfer-Encoding that this server knows is 'chunked'.");
    }
    stage_ = Stage::kChunkSize;
    return;
  }
  if (lengths == 0) {
    stage_ = Stage::kDone;
    return;
  }
  if (length.empty() || length.find_first_not_of("0123456789") != std::string_view::npos) {
    return Refuse(400, "Content-Length is not a number.");
  }
  for (const char digit : length) {
    data_bytes_left_ = data_bytes_left_ * 10 + (digit - '0');
    if (data_bytes_left_ > limits_.body_bytes_max) {
      return Refuse(413, fmt::format("The body of the request is larger than {} bytes.",
                                     limits_.body_bytes_max));
    }
  }
  if (data_bytes_left_ <= kReserveAlwaysBytes) {
    request_.body.reserve(static_cast<size_t>(data_bytes_left_));
  }
  stage_ = data_bytes_left_ > 0 ? Stage::kBody : Stage::kDone;
}

void HttpRequestReader::CheckExpect() {
  const std::string_view expect = request_.Header("expect");
  if (expect.empty() || !http_1_1_) return;
  if (!EqualsLowerCase(expect, "100-continue")) {
    return Refuse(417, "The only expectation that this server knows is '100-continue'.");
  }
  expects_continue_ = !done();
}

size_t HttpRequestReader::ReadData(std::string_view bytes) {
  const size_t count =
      std::min(bytes.size(), static_cast<size_t>(std::min<int64_t>(
                                 data_bytes_left_, std::numeric_limits<int32_t>::max())));
  std::string& body = request_.body;
  // A length is only a promise: memory follows what has come, so that promises cost nothing.
  const size_t whole = body.size() + static_cast<size_t>(data_bytes_left_);
  if (stage_ == Stage::kBody && body.capacity() < whole &&
      body.size() >= whole / static_cast<size_t>(kReserveShare)) {
    body.reserve(whole);
  }
  body.append(bytes.substr(0, count));
  data_bytes_left_ -= static_cast<int64_t>(count);
  if (data_bytes_left_ == 0) {
    stage_ = stage_ == Stage::kBody ? Stage::kDone : Stage::kChunkDataCr;
  }
  return count;
}

void HttpRequestReader::ReadChunkByte(char byte) {
  switch (stage_) {
    case Stage::kChunkSize:
    case Stage::kChunkExtra:
      return ReadChunkSizeByte(byte);
    case Stage::kChunkSizeLf:
      return byte == '\n' ? EndChunkSize() : Refuse(400, "A chunk's size does not end in CR LF.");
    case Stage::kChunkDataCr:
    case Stage::kChunkDataLf: {
      const bool first = stage_ == Stage::kChunkDataCr;
      if (byte != (first ? '\r' : '\n')) {
        return Refuse(400, "A chunk of the body is longer than its size says.");
      }
      stage_ = first ? Stage::kChunkDataLf : Stage::kChunkSize;
      return;
    }
    default:
      return ReadTrailerByte(byte);
  }
}

void HttpRequestReader::ReadChunkSizeByte(char byte) {
  if (stage_ == Stage::kChunkSize) {
    if (const int digit = HexDigit(byte); digit >= 0) {
      if (++size_digits_ > kChunkSizeDigitsMax) return Refuse(400, "A chunk's size is too long.");
      data_bytes_left_ = data_bytes_left_ * 16 + digit;
      return;
    }
    if (size_digits_ == 0) return Refuse(400, "A chunk of the body has no size.");
  }
  if (byte == '\r') {
    stage_ = Stage::kChunkSizeLf;
  } else if (stage_ == Stage::kChunkSize && byte != ';' && !IsBlank(byte)) {
    Refuse(400, "A chunk's size is not a hexadecimal number.");
  } else if (byte == '\n' || byte == '\0' || ++extra_bytes_ > kExtraBytesMax) {
    Refuse(400, "The extensions of the body's chunks are malformed or too long.");
  } else {
    stage_ = Stage::kChunkExtra;
  }
}

void HttpRequestReader::EndChunkSize() {
  size_digits_ = 0;
  if (data_bytes_left_ == 0) {
    stage_ = Stage::kTrailerStart;
  } else if (data_bytes_left_ > limits_.body_bytes_max - body_bytes()) {
    Refuse(413,
           fmt::format("The body of the request is larger than {} bytes.", limits_.body_bytes_max));
  } else {
    stage_ = Stage::kChunkData;
  }
}

// Trailers are skipped: merged into the header they could say what the header did not.
void HttpRequestReader::ReadTrailerByte(char byte) {
  if (++trailer_bytes_ > limits_.header_bytes_max) {
    return Refuse(431, fmt::format("The trailers of the request are longer than {} bytes.",
                                   limits_.header_bytes_max));
  }
  const bool ends_line = stage_ == Stage::kTrailerLf || stage_ == Stage::kLastLf;
  if (byte == '\0' || ends_line != (byte == '\n')) {
    return Refuse(400, "The trailers of the request are malformed.");
  }
  if (ends_line) {
    stage_ = stage_ == Stage::kLastLf ? Stage::kDone : Stage::kTrailerStart;
  } else if (byte == '\r') {
    stage_ = stage_ == Stage::kTrailerStart ? Stage::kLastLf : Stage::kTrailerLf;
  } else {
    stage_ = Stage::kTrailer;
  }
}

}  // namespace minke

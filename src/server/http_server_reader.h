// The bytes of a connection as requests: request line, headers, body by length or in chunks
// (RFC 9112). Knows no socket and no clock. Stricter than the RFC where leniency lets two programs
// on the way see different requests in the same bytes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "server/http_server.h"

namespace minke {

// Why a request is not served, as the status and the text of its answer.
struct HttpRefusal {
  int status = 400;
  std::string message;
};

struct HttpReadLimits {
  int64_t header_bytes_max = 0;  // trailers have the same
  int64_t headers_max = 0;
  int64_t body_bytes_max = 0;
};

// Reads one request after the other. Not thread-safe.
class HttpRequestReader {
 public:
  explicit HttpRequestReader(const HttpReadLimits& limits) : limits_(limits) {}

  // Takes what belongs to the current request from the front of `bytes`; the rest belongs to the
  // next. Returns how many bytes it took. Takes nothing once the request is complete or refused.
  size_t Read(std::string_view bytes);

  bool begun() const { return stage_ != Stage::kHead || !head_.empty(); }
  bool head_done() const { return head_done_; }
  bool done() const { return stage_ == Stage::kDone; }
  bool refused() const { return stage_ == Stage::kRefused; }
  const HttpRefusal& refusal() const { return refusal_; }  // REQUIRES: refused()

  // REQUIRES: head_done().
  const HttpRequest& request() const { return request_; }
  bool keep_alive() const { return keep_alive_; }  // the client wants the connection kept
  bool http_1_1() const { return http_1_1_; }      // otherwise 1.0, which knows no chunks
  bool expects_continue() const { return expects_continue_; }
  int64_t body_bytes() const { return static_cast<int64_t>(request_.body.size()); }

  // The request, and the reader is ready for the next. REQUIRES: done().
  HttpRequest Take();

 private:
  enum class Stage {
    kHead,
    kBody,         // of known length
    kChunkSize,    // hexadecimal digits
    kChunkExtra,   // an extension, which is skipped
    kChunkSizeLf,  // the end of the line of the size
    kChunkData,
    kChunkDataCr,
    kChunkDataLf,
    kTrailerStart,  // the first byte of a trailer's line
    kTrailer,
    kTrailerLf,
    kLastLf,
    kDone,
    kRefused,
  };

  size_t ReadHead(std::string_view bytes);
  size_t ReadData(std::string_view bytes);
  void ReadChunkByte(char byte);
  void ReadChunkSizeByte(char byte);
  void EndChunkSize();
  void ReadTrailerByte(char byte);
  void EndHead();
  void CheckFraming();
  void CheckExpect();
  void SplitTarget(std::string_view target);
  void Refuse(int status, std::string message);

  HttpReadLimits limits_;
  Stage stage_ = Stage::kHead;
  bool head_done_ = false;
  int leading_bytes_ = 0;  // empty lines before the request
  std::string head_;
  HttpRequest request_;
  HttpRefusal refusal_;
  bool keep_alive_ = false;
  bool http_1_1_ = false;
  bool expects_continue_ = false;
  int64_t data_bytes_left_ = 0;  // of the body or of the chunk
  int size_digits_ = 0;          // of the chunk's size so far
  int64_t extra_bytes_ = 0;      // extensions of all chunks
  int64_t trailer_bytes_ = 0;
};

}  // namespace minke

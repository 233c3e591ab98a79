// A socket of the tests' own, without any HTTP library: it sends exactly the bytes it is told to,
// in as many pieces, and sees exactly what comes back.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>

namespace minke::test {

// Long enough for a sanitizer on a busy machine; no test waits that long when all is well.
inline constexpr std::chrono::seconds kPatience{20};

// Whether this process may open that many files, if need be after asking for them.
bool AllowOpenFiles(uint64_t wanted);

struct RawAnswer {
  bool complete = false;  // up to the end of its body
  int status = 0;
  std::map<std::string, std::string> headers;  // names in lower case
  std::string body;                            // without the framing of chunks
};

class RawClient {
 public:
  // receive_bytes: of the socket's buffer; 0: the system's choice.
  explicit RawClient(uint16_t port, const std::string& address = "127.0.0.1",
                     int receive_bytes = 0);
  ~RawClient();
  RawClient(const RawClient&) = delete;
  RawClient& operator=(const RawClient&) = delete;
  RawClient(RawClient&& other) noexcept;

  bool connected() const { return descriptor_ >= 0; }
  // False if the connection is broken.
  bool Send(std::string_view bytes);
  // What comes next, at most so long; empty at the end, on an error and when nothing comes.
  std::string ReadSome(std::chrono::milliseconds patience = kPatience);
  // Reads on until `text` has come; returns all that has come since the last answer.
  std::string ReadUntil(std::string_view text);
  // Everything up to the end of the connection.
  std::string ReadToEnd();
  // Whether the server has closed, now or within the time.
  bool WaitForEnd(std::chrono::milliseconds patience = kPatience);
  // head_only: an answer to HEAD.
  RawAnswer ReadAnswer(bool head_only = false);
  RawAnswer Ask(std::string_view request);

  void ShutdownSend();
  void Close();
  void Reset();  // closes with RST

 private:
  bool Fill();  // reads into buffer_; false at the end

  int descriptor_ = -1;
  bool ended_ = false;
  std::string buffer_;
};

// "GET PATH HTTP/1.1" and the least of headers.
std::string GetRequest(std::string_view path, std::string_view more_headers = "");
std::string PostRequest(std::string_view path, std::string_view body);

}  // namespace minke::test

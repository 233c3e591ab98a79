#include "tests/server/raw_client.h"

#include <arpa/inet.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace minke::test {

namespace {

std::string LowerCaseOf(std::string_view text) {
  std::string lower(text);
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

}  // namespace

bool AllowOpenFiles(uint64_t wanted) {
  rlimit limit = {};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return false;
  if (limit.rlim_cur >= wanted) return true;
  if (limit.rlim_max < wanted) return false;
  limit.rlim_cur = wanted;
  return setrlimit(RLIMIT_NOFILE, &limit) == 0;
}

RawClient::RawClient(uint16_t port, const std::string& address, int receive_bytes) {
  const bool v6 = address.find(':') != std::string::npos;
  descriptor_ = socket(v6 ? AF_INET6 : AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (descriptor_ < 0) return;
  if (receive_bytes > 0) {
    setsockopt(descriptor_, SOL_SOCKET, SO_RCVBUF, &receive_bytes, sizeof(receive_bytes));
  }
  const int on = 1;
  setsockopt(descriptor_, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  int status = -1;
  if (v6) {
    sockaddr_in6 peer = {};
    peer.sin6_family = AF_INET6;
    peer.sin6_port = htons(port);
    inet_pton(AF_INET6, address.c_str(), &peer.sin6_addr);
    status = connect(descriptor_, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer));
  } else {
    sockaddr_in peer = {};
    peer.sin_family = AF_INET;
    peer.sin_port = htons(port);
    inet_pton(AF_INET, address.c_str(), &peer.sin_addr);
    status = connect(descriptor_, reinterpret_cast<const sockaddr*>(&peer), sizeof(peer));
  }
  if (status != 0) Close();
}

RawClient::~RawClient() {
  Close();
}

RawClient::RawClient(RawClient&& other) noexcept
    : descriptor_(std::exchange(other.descriptor_, -1)),
      ended_(other.ended_),
      buffer_(std::move(other.buffer_)) {}

bool RawClient::Send(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = send(descriptor_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent <= 0) return false;
    bytes.remove_prefix(static_cast<size_t>(sent));
  }
  return true;
}

std::string RawClient::ReadSome(std::chrono::milliseconds patience) {
  if (!buffer_.empty()) return std::exchange(buffer_, std::string());
  pollfd waited = {descriptor_, POLLIN, 0};
  if (ended_ || poll(&waited, 1, static_cast<int>(patience.count())) <= 0) return {};
  std::array<char, 65536> bytes;
  const ssize_t got = recv(descriptor_, bytes.data(), bytes.size(), 0);
  if (got <= 0) {
    ended_ = true;
    return {};
  }
  return {bytes.data(), static_cast<size_t>(got)};
}

bool RawClient::Fill() {
  std::string kept = std::exchange(buffer_, std::string());
  const std::string more = ReadSome();
  buffer_ = std::move(kept) + more;
  return !more.empty();
}

std::string RawClient::ReadUntil(std::string_view text) {
  while (buffer_.find(text) == std::string::npos && Fill()) continue;
  return std::exchange(buffer_, std::string());
}

std::string RawClient::ReadToEnd() {
  while (Fill()) continue;
  return std::exchange(buffer_, std::string());
}

bool RawClient::WaitForEnd(std::chrono::milliseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  while (!ended_ && std::chrono::steady_clock::now() < end) {
    ReadSome(std::chrono::duration_cast<std::chrono::milliseconds>(
        end - std::chrono::steady_clock::now()));
  }
  return ended_;
}

RawAnswer RawClient::ReadAnswer(bool head_only) {
  RawAnswer answer;
  size_t end = buffer_.find("\r\n\r\n");
  while (end == std::string::npos) {
    if (!Fill()) return answer;
    end = buffer_.find("\r\n\r\n");
  }
  std::string_view head = std::string_view(buffer_).substr(0, end + 2);
  answer.status = std::atoi(std::string(head.substr(head.find(' ') + 1, 3)).c_str());
  head.remove_prefix(head.find("\r\n") + 2);
  while (!head.empty()) {
    const std::string_view line = head.substr(0, head.find("\r\n"));
    head.remove_prefix(line.size() + 2);
    const size_t colon = line.find(": ");
    if (colon == std::string_view::npos) return answer;
    answer.headers[LowerCaseOf(line.substr(0, colon))] = line.substr(colon + 2);
  }
  buffer_.erase(0, end + 4);
  if (head_only || answer.status / 100 == 1 || answer.status == 204) {
    answer.complete = true;
  } else if (answer.headers.count("content-length") != 0) {
    const size_t length = std::strtoul(answer.headers["content-length"].c_str(), nullptr, 10);
    while (buffer_.size() < length && Fill()) continue;
    answer.body = buffer_.substr(0, length);
    answer.complete = answer.body.size() == length;
    buffer_.erase(0, length);
  } else if (answer.headers.count("transfer-encoding") != 0) {
    while (true) {
      size_t line = buffer_.find("\r\n");
      while (line == std::string::npos) {
        if (!Fill()) return answer;
        line = buffer_.find("\r\n");
      }
      const size_t size = std::strtoul(buffer_.c_str(), nullptr, 16);
      while (buffer_.size() < line + 2 + size + 2) {
        if (!Fill()) return answer;
      }
      answer.body += buffer_.substr(line + 2, size);
      buffer_.erase(0, line + 2 + size + 2);
      if (size > 0) continue;
      answer.complete = true;
      break;
    }
  } else {
    answer.body = ReadToEnd();
    answer.complete = ended_;
  }
  return answer;
}

RawAnswer RawClient::Ask(std::string_view request) {
  Send(request);
  return ReadAnswer();
}

void RawClient::ShutdownSend() {
  shutdown(descriptor_, SHUT_WR);
}

void RawClient::Close() {
  if (descriptor_ >= 0) close(descriptor_);
  descriptor_ = -1;
  ended_ = true;
}

void RawClient::Reset() {
  const linger at_once = {1, 0};
  setsockopt(descriptor_, SOL_SOCKET, SO_LINGER, &at_once, sizeof(at_once));
  Close();
}

std::string GetRequest(std::string_view path, std::string_view more_headers) {
  return "GET " + std::string(path) + " HTTP/1.1\r\nHost: test\r\n" + std::string(more_headers) +
         "\r\n";
}

std::string PostRequest(std::string_view path, std::string_view body) {
  return "POST " + std::string(path) +
         " HTTP/1.1\r\nHost: test\r\nContent-Length: " + std::to_string(body.size()) + "\r\n\r\n" +
         std::string(body);
}

}  // namespace minke::test

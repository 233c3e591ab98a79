// The program as users start it, as a process of its own.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/temp_directory.h"

namespace minke::testing {

// `minke serve` on a free port, with a cache on disk.
class ServeProcess {
 public:
  // more: flags
  explicit ServeProcess(const TempDirectory& directory, const std::vector<std::string>& more = {}) {
    std::vector<std::string> words = {std::string(MINKE_BINARY_DIR) + "/minke",
                                      "serve",
                                      "--model",
                                      std::string(MINKE_SOURCE_DIR) + "/models/mini",
                                      "--port",
                                      "0",
                                      "--threads",
                                      "1",
                                      "--ledger",
                                      "none",
                                      "--kv-disk",
                                      directory.Path("kv")};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> arguments;
    for (const std::string& word : words) arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);
    std::array<int, 2> pipe = {};
    EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
    process_ = ::fork();
    if (process_ == 0) {
      ::dup2(pipe[1], STDOUT_FILENO);
      ::setenv("XDG_STATE_HOME", directory.path().c_str(), 1);
      ::setenv("XDG_CACHE_HOME", directory.path().c_str(), 1);
      ::execv(arguments[0], arguments.data());
      ::_exit(127);
    }
    ::close(pipe[1]);
    output_ = pipe[0];
    ReadPort();
  }
  ~ServeProcess() {
    if (process_ > 0) End(SIGKILL);
    ::close(output_);
  }
  ServeProcess(const ServeProcess&) = delete;
  ServeProcess& operator=(const ServeProcess&) = delete;

  uint16_t port() const { return port_; }
  void Send(int signal) const { ::kill(process_, signal); }
  // Its status, as of waitpid().
  int End(int signal) {
    Send(signal);
    return Wait();
  }
  int Wait() {
    int status = 0;
    ::waitpid(process_, &status, 0);
    process_ = -1;
    return status;
  }

 private:
  // The first line says where it serves.
  void ReadPort() {
    const std::string mark = "Serving at http://127.0.0.1:";
    std::string text;
    std::array<char, 4096> buffer = {};
    while (text.find('\n') == std::string::npos) {
      const ssize_t count = ::read(output_, buffer.data(), buffer.size());
      if (count <= 0) break;
      text.append(buffer.data(), static_cast<size_t>(count));
    }
    const size_t at = text.find(mark);
    ASSERT_NE(at, std::string::npos) << text;
    port_ = static_cast<uint16_t>(std::stoi(text.substr(at + mark.size())));
  }

  pid_t process_ = -1;
  int output_ = -1;
  uint16_t port_ = 0;
};

}  // namespace minke::testing

// Runs a program for a while and kills it, for the tests of what a crash leaves behind.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <string>
#include <thread>
#include <vector>

namespace minke::testing {

// command: the program's path and its arguments. Once it has said so many lines it has work_ms
// more. Returns what it said until it was killed, whole lines only.
inline std::string RunAndKill(const std::vector<std::string>& command, int work_ms,
                              int lines_min = 1) {
  std::array<int, 2> pipe = {};
  EXPECT_EQ(::pipe2(pipe.data(), O_CLOEXEC), 0);
  std::vector<char*> arguments;
  for (const std::string& word : command) arguments.push_back(const_cast<char*>(word.c_str()));
  arguments.push_back(nullptr);
  const pid_t process = ::fork();
  if (process == 0) {
    ::dup2(pipe[1], STDOUT_FILENO);
    ::execv(arguments[0], arguments.data());
    ::_exit(127);
  }
  ::close(pipe[1]);
  std::string text;
  std::array<char, 4096> buffer = {};
  while (std::count(text.begin(), text.end(), '\n') < lines_min) {
    const ssize_t count = ::read(pipe[0], buffer.data(), buffer.size());
    if (count <= 0) break;  // it is gone
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(work_ms));
  ::kill(process, SIGKILL);
  while (true) {
    const ssize_t count = ::read(pipe[0], buffer.data(), buffer.size());
    if (count <= 0) break;
    text.append(buffer.data(), static_cast<size_t>(count));
  }
  ::close(pipe[0]);
  int status = 0;
  ::waitpid(process, &status, 0);
  EXPECT_TRUE(WIFSIGNALED(status)) << "the worker ended by itself with status " << status;
  text.resize(text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1);
  return text;
}

}  // namespace minke::testing

#include "tests/apps/process.h"

#include <fcntl.h>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include <gtest/gtest.h>

namespace minke::testing {
namespace {

using Clock = std::chrono::steady_clock;

std::string Program() {
  return std::string(MINKE_BINARY_DIR) + "/minke";
}

int ExitCode(int status) {
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

// The exit code of a child; kills it when time is up.
int WaitLimited(pid_t pid) {
  const Clock::time_point end = Clock::now() + std::chrono::seconds(kProcessSecondsMax);
  int status = 0;
  while (waitpid(pid, &status, WNOHANG) == 0) {
    if (Clock::now() > end) {
      ADD_FAILURE() << "the program ran longer than " << kProcessSecondsMax << " s";
      kill(pid, SIGKILL);
      waitpid(pid, &status, 0);
      break;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  return ExitCode(status);
}

std::vector<char*> Pointers(const std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (const std::string& text : strings) pointers.push_back(const_cast<char*>(text.c_str()));
  pointers.push_back(nullptr);
  return pointers;
}

std::vector<std::string> Command(const std::vector<std::string>& arguments) {
  std::vector<std::string> command = {Program()};
  command.insert(command.end(), arguments.begin(), arguments.end());
  return command;
}

std::vector<std::string> Environment(const std::vector<std::string>& extra) {
  std::vector<std::string> variables = extra;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    if (!std::string_view(*variable).starts_with("MINKE_MODEL=")) variables.push_back(*variable);
  }
  return variables;
}

}  // namespace

Finished RunMinke(const std::vector<std::string>& arguments, std::string_view input,
                  const std::vector<std::string>& environment) {
  const TemporaryFolder folder;
  const std::string in = folder.Write("in", input);
  const std::string out = folder.Path("out");
  const std::string err = folder.Path("err");
  posix_spawn_file_actions_t files;
  posix_spawn_file_actions_init(&files);
  posix_spawn_file_actions_addopen(&files, STDIN_FILENO, in.c_str(), O_RDONLY, 0);
  posix_spawn_file_actions_addopen(&files, STDOUT_FILENO, out.c_str(), O_WRONLY | O_CREAT, 0600);
  posix_spawn_file_actions_addopen(&files, STDERR_FILENO, err.c_str(), O_WRONLY | O_CREAT, 0600);
  const std::vector<std::string> command = Command(arguments);
  const std::vector<std::string> variables = Environment(environment);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, command[0].c_str(), &files, nullptr,
                                 Pointers(command).data(), Pointers(variables).data());
  posix_spawn_file_actions_destroy(&files);
  Finished finished;
  if (failed != 0) {
    ADD_FAILURE() << command[0] << " could not be started";
    return finished;
  }
  finished.exit_code = WaitLimited(pid);
  finished.out = TemporaryFolder::Read(out);
  finished.err = TemporaryFolder::Read(err);
  return finished;
}

TemporaryFolder::TemporaryFolder() {
  std::string name = (std::filesystem::temp_directory_path() / "minke-test-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr) ADD_FAILURE() << "no temporary folder";
  path_ = name;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string TemporaryFolder::Write(const std::string& name, std::string_view text) const {
  std::ofstream(Path(name), std::ios::binary) << text;
  return Path(name);
}

std::string TemporaryFolder::Read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TerminalProcess::TerminalProcess(const std::vector<std::string>& arguments) {
  const std::vector<std::string> command = Command(arguments);
  const std::vector<std::string> variables = Environment({});
  const std::vector<char*> command_pointers = Pointers(command);
  const std::vector<char*> variable_pointers = Pointers(variables);
  pid_ = forkpty(&terminal_, nullptr, nullptr, nullptr);
  if (pid_ == 0) {
    execve(command_pointers[0], command_pointers.data(), variable_pointers.data());
    _exit(127);
  }
  if (pid_ < 0) ADD_FAILURE() << "no pseudo-terminal";
}

TerminalProcess::~TerminalProcess() {
  if (terminal_ >= 0) close(terminal_);
  if (pid_ <= 0) return;
  kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
}

void TerminalProcess::Type(std::string_view keys) {
  const ssize_t written = write(terminal_, keys.data(), keys.size());
  EXPECT_EQ(written, static_cast<ssize_t>(keys.size()));
}

bool TerminalProcess::ReadSome() {
  pollfd file{terminal_, POLLIN, 0};
  if (poll(&file, 1, kProcessSecondsMax * 1000) <= 0) return false;
  char block[4096];
  const ssize_t count = read(terminal_, block, sizeof(block));
  if (count <= 0) return false;  // EIO: the program has ended
  unread_.append(block, static_cast<size_t>(count));
  return true;
}

bool TerminalProcess::WaitFor(std::string_view text) {
  size_t found = unread_.find(text);
  while (found == std::string::npos) {
    if (!ReadSome()) return false;
    found = unread_.find(text);
  }
  seen_ += unread_.substr(0, found + text.size());
  unread_.erase(0, found + text.size());
  return true;
}

void TerminalProcess::Send(int signal) const {
  ::kill(pid_, signal);
}

int TerminalProcess::Wait() {
  while (ReadSome()) {
  }
  seen_ += unread_;
  const int code = WaitLimited(pid_);
  pid_ = -1;
  return code;
}

}  // namespace minke::testing

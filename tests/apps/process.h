// Runs the built program as a user would: in a process of its own, with files or a terminal.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

namespace minke::testing {

// The model that the program runs in these tests.
inline const std::string kMiniModel = std::string(MINKE_SOURCE_DIR) + "/models/mini";

struct Finished {
  int exit_code = -1;  // 128 + signal if it was killed
  std::string out;
  std::string err;
};

// `minke ARGS...` with `input` on standard input. Killed after kProcessSecondsMax. The variable
// MINKE_MODEL is unset unless `environment` ("NAME=VALUE") sets it.
inline constexpr int kProcessSecondsMax = 120;
Finished RunMinke(const std::vector<std::string>& arguments, std::string_view input = {},
                  const std::vector<std::string>& environment = {});

// A folder of the running test; removed with the object.
class TemporaryFolder {
 public:
  TemporaryFolder();
  ~TemporaryFolder();
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  std::string Path(const std::string& name) const { return path_ + "/" + name; }
  // Writes a file and returns its path.
  std::string Write(const std::string& name, std::string_view text) const;
  static std::string Read(const std::string& path);

 private:
  std::string path_;
};

// `minke ARGS...` on a pseudo-terminal.
class TerminalProcess {
 public:
  explicit TerminalProcess(const std::vector<std::string>& arguments);
  ~TerminalProcess();  // kills it if it still runs
  TerminalProcess(const TerminalProcess&) = delete;
  TerminalProcess& operator=(const TerminalProcess&) = delete;

  void Type(std::string_view keys);
  // Reads until what came since the last call contains `text`; false after kProcessSecondsMax or
  // at the end. seen() is everything up to and with the text.
  bool WaitFor(std::string_view text);
  const std::string& seen() const { return seen_; }
  // Waits for the end; as Finished::exit_code.
  int Wait();
  void Send(int signal) const;

 private:
  bool ReadSome();
  pid_t pid_ = -1;
  int terminal_ = -1;
  std::string unread_;
  std::string seen_;
};

}  // namespace minke::testing

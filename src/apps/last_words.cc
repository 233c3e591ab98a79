#include "apps/last_words.h"

#include <cxxabi.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <exception>
#include <memory>
#include <span>
#include <string_view>

#include "apps/commands.h"

namespace minke {
namespace {

// Everything below does with system calls and the stack: it runs in a signal handler, or there is
// no memory. No locks.

// Text of bounded length; what is beyond it is cut.
class Text {
 public:
  void Add(char character) {
    if (length_ < bytes_.size()) bytes_[length_++] = character;
  }
  void Add(std::string_view text) {
    for (const char character : text) Add(character);
  }
  void Clear() { length_ = 0; }
  std::string_view view() const { return {bytes_.data(), length_}; }

 private:
  std::array<char, PATH_MAX + 512> bytes_;
  size_t length_ = 0;
};

uintptr_t HexDigit(char digit) {
  return static_cast<uintptr_t>(digit <= '9' ? digit - '0' : digit - 'a' + 10);
}

// Lines of /proc/self/maps, a character at a time:
//   7f0000000000-7f0000691000 r--s 00000000 08:01 1234     /models/nano/model.safetensors
class MapsParser {
 public:
  explicit MapsParser(uintptr_t address) : address_(address) {}
  // True at the end of the line that holds the address; path() is then that of its file, or empty.
  bool Take(char character) {
    if (character == '\n') {
      if (begin_ <= address_ && address_ < end_) return true;
      begin_ = end_ = 0;
      field_ = Field::kBegin;
      path_.Clear();
    } else if (field_ == Field::kBegin) {
      if (character != '-') begin_ = begin_ * 16 + HexDigit(character);
      if (character == '-') field_ = Field::kEnd;
    } else if (field_ == Field::kEnd) {
      if (character != ' ') end_ = end_ * 16 + HexDigit(character);
      if (character == ' ') field_ = Field::kRest;
    } else {
      if (character == '/') field_ = Field::kPath;
      // What could mean something to a terminal is not shown.
      const bool plain = static_cast<unsigned char>(character) >= ' ' && character != '\x7f';
      if (field_ == Field::kPath) path_.Add(plain ? character : '?');
    }
    return false;
  }
  std::string_view path() const { return path_.view(); }

 private:
  enum class Field { kBegin, kEnd, kRest, kPath };
  uintptr_t address_;
  uintptr_t begin_ = 0;
  uintptr_t end_ = 0;
  Field field_ = Field::kBegin;
  Text path_;
};

// The first of several threads speaks; the others wait for the end.
void TakeTheWord() {
  static std::atomic<pid_t> speaker = 0;
  pid_t before = 0;
  if (speaker.compare_exchange_strong(before, gettid())) return;
  if (before == gettid()) std::abort();  // nor can it say so
  while (true) pause();
}

// Feeds the parser until it has found the address.
bool FindMapping(MapsParser& parser) {
  const int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (maps < 0) return false;
  std::array<char, 4096> buffer;
  bool found = false;
  while (!found) {
    const ssize_t count = read(maps, buffer.data(), buffer.size());
    if (count <= 0) break;
    for (const char character : std::span(buffer).first(static_cast<size_t>(count))) {
      found = parser.Take(character);
      if (found) break;
    }
  }
  close(maps);
  return found;
}

// In one call, so that lines of other threads do not come between.
void Say(std::string_view line) {
  const ssize_t written = write(STDERR_FILENO, line.data(), line.size());
  static_cast<void>(written);  // there is nobody left to tell
}

void WriteMessage(std::string_view path) {
  Text message;
  message.Add("minke: error: The file ");
  message.Add(path);
  message.Add(
      " became shorter, or could not be read, while it was in use (bus error). Restore it and "
      "start again.");
  if (path.find(".safetensors") != std::string_view::npos) {
    message.Add(
        " With --weights-memory copied all weights but the Engram tables are read once, at the "
        "start.");
  }
  message.Add('\n');
  Say(message.view());
}

void HandleBusError(int /*signal*/, siginfo_t* info, void* /*context*/) {
  TakeTheWord();
  MapsParser parser(reinterpret_cast<uintptr_t>(info->si_addr));
  if (info->si_code == BUS_ADRERR && FindMapping(parser) && !parser.path().empty()) {
    WriteMessage(parser.path());
    // Not the signal's own end: the message says all, and a dump of the memory, which the mapped
    // weights are part of, would say no more.
    _exit(kExitFailure);
  }
  // Broken memory or a mistake in the program: that deserves a dump.
  signal(SIGBUS, SIG_DFL);
  raise(SIGBUS);  // comes when this function returns
}

// An exception that nobody caught, which is that memory ran out, or a mistake in the program.
[[noreturn]] void HandleTermination() {
  TakeTheWord();
  try {
    // Not std::rethrow_exception(), which needs memory.
    if (abi::__cxa_current_exception_type() != nullptr) throw;
  } catch (const std::bad_alloc&) {
    Say("minke: error: The system gives no more memory, so the program ends. Give it more (ulimit "
        "-v, or the container's limit), or let it need less: a smaller --kv-ram or "
        "--prefill-chunk, fewer requests at a time.\n");
    _exit(kExitFailure);
  } catch (const std::exception& error) {
    Text message;
    message.Add("minke: a mistake in the program: ");
    message.Add(error.what());
    message.Add('\n');
    Say(message.view());
  } catch (...) {
    Say("minke: a mistake in the program: something was thrown\n");
  }
  std::abort();  // with a dump
}

}  // namespace

void ExplainSuddenEnds() {
  std::set_terminate(HandleTermination);
  struct sigaction before = {};
  if (sigaction(SIGBUS, nullptr, &before) != 0 || before.sa_handler != SIG_DFL) return;
  struct sigaction action = {};
  action.sa_sigaction = HandleBusError;
  action.sa_flags = SA_SIGINFO;
  sigaction(SIGBUS, &action, nullptr);  // where it is refused, the signal only stays unexplained
}

}  // namespace minke

// minke chat: a conversation in the terminal, or one question per line from a pipe.
#include <iostream>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "apps/cache_report.h"
#include "apps/chat_input.h"
#include "apps/commands.h"
#include "apps/common.h"
#include "apps/conversation.h"
#include "apps/interrupts.h"
#include "apps/prompt_input.h"
#include "apps/terminal.h"
#include "text/utf8.h"

namespace minke {
namespace {

constexpr const char* kHelp =
    "  /reset   forget the conversation and start a new one\n"
    "  /stats   tokens, speed and memory of this conversation\n"
    "  /help    this list\n"
    "  /exit    leave (also Ctrl-D, or Ctrl-C twice)\n"
    "  Ctrl-C   stop the answer; what was written of it stays in the conversation\n"
    "  A backslash at the end of a line continues the question on the next.\n";

constexpr size_t kQuestionBytesShown = 60;

// In words: what the last question was, its beginning if it is long.
std::string LastQuestion(const JsonArray& messages) {
  for (auto message = messages.rbegin(); message != messages.rend(); ++message) {
    const Json* role = message->Find("role");
    const Json* content = message->Find("content");
    const bool asked = role != nullptr && role->is_string() && role->as_string() == "user" &&
                       content != nullptr && content->is_string();
    if (!asked) continue;
    const std::string& question = content->as_string();
    if (question.size() <= kQuestionBytesShown) {
      return fmt::format("whose last question was \"{}\"", question);
    }
    const std::string_view begin = std::string_view(question).substr(0, kQuestionBytesShown);
    return fmt::format("whose last question began \"{}\"", begin.substr(0, ValidUtf8Prefix(begin)));
  }
  return "in which nothing was asked";
}

class Chat {
 public:
  Chat(const Engine& engine, Interrupts& interrupts, const ChatFlags& flags)
      : engine_(engine),
        interrupts_(interrupts),
        input_(interrupts),
        conversation_(engine, flags.system, MakeChatOptions(flags.thinking, flags.effort)),
        tenant_(flags.cache.tenant),
        saved_path_(DiskDirectory(flags.cache).empty()
                        ? std::string()
                        : ConversationPath(flags.cache.kv_disk, flags.cache.tenant)),
        max_tokens_(flags.max_tokens),
        stats_(flags.stats),
        seed_(flags.seed),
        sampling_(flags.sampling) {
    sampling_.seed = ChooseSeed(seed_);
  }

  Status Run();
  // The text that the first question of every conversation is about.
  void SetDocument(std::string document) { document_ = std::move(document); }
  // Goes on with the conversation that an earlier process left.
  Status Resume();

 private:
  void Greet() const;
  // False to leave.
  bool RunCommand(const std::string& command);
  void Ask(const std::string& question);
  void PrintTurn(const GenerationResult& result) const;
  void PrintStats() const;
  Status Stopped() const;
  // Keeps the conversation for a later --resume, where there is a disk tier.
  void Save();

  const Engine& engine_;
  Interrupts& interrupts_;
  ChatInput input_;
  Conversation conversation_;
  std::string tenant_;
  std::string saved_path_;  // empty without a disk tier
  bool disk_noted_ = false;
  std::string document_;  // empty: none
  int64_t max_tokens_;
  bool stats_;
  std::optional<uint64_t> seed_;
  SamplingOptions sampling_;
  GenerationResult last_;
  bool failed_ = false;
};

void Chat::Greet() const {
  if (!input_.interactive()) return;
  std::cout << fmt::format(
      "{}\nContext: {} tokens, {:g} cache bytes per token. /help lists the commands.\n\n",
      engine_.info().description, engine_.info().context_tokens_max,
      engine_.info().kv_bytes_per_token);
}

Status Chat::Resume() {
  if (saved_path_.empty()) {
    return Fail("--resume needs the directory that a conversation was kept in: --kv-disk DIR.");
  }
  TRY_STATUS(conversation_.Load(saved_path_));
  const JsonArray& messages = conversation_.messages();
  if (messages.size() < 2) return {};
  if (!input_.interactive()) {
    // Standard output is for the answers.
    PrintNote(fmt::format("going on with a conversation of {} messages and {} tokens, {}.",
                          messages.size(), conversation_.token_count(), LastQuestion(messages)));
    return {};
  }
  std::cout << fmt::format("(resumed: {} messages, {} tokens; the last ones were)\n",
                           messages.size(), conversation_.token_count());
  for (size_t i = messages.size() - 2; i < messages.size(); ++i) {
    const Json* role = messages[i].Find("role");
    const Json* content = messages[i].Find("content");
    if (role == nullptr || content == nullptr || !content->is_string()) continue;
    std::cout << (role->is_string() && role->as_string() == "user" ? "> " : "")
              << EscapeForTerminal(content->as_string()) << '\n';
  }
  std::cout << '\n' << std::flush;
  return {};
}

void Chat::Save() {
  if (saved_path_.empty()) return;
  const CacheStatus status = engine_.cache_status();
  std::string warning = status.disk_warning;
  if (warning.empty()) {
    const Status saved = conversation_.Save(saved_path_);
    if (!saved) warning = saved.error().message;
  }
  if (!warning.empty() && !std::exchange(disk_noted_, true)) PrintNote(warning);
}

Status Chat::Stopped() const {
  return Fail(ErrorCode::kCancelled, fmt::format("Stopped by {}.", interrupts_.Name()));
}

Status Chat::Run() {
  Greet();
  bool leaving = false;
  while (true) {
    interrupts_.Take();  // a Ctrl-C that came after the answer had ended
    if (interrupts_.terminated()) return Stopped();
    const ChatInput::Line line = TRY(input_.Read());
    if (line.kind == ChatInput::Kind::kEnd) {
      if (input_.interactive()) std::cout << '\n';
      break;
    }
    if (line.kind == ChatInput::Kind::kInterrupt) {
      if (!input_.interactive() || interrupts_.terminated()) return Stopped();
      std::cout << '\n';
      if (leaving) break;
      leaving = true;
      std::cout << "(Ctrl-C again, Ctrl-D or /exit leaves)\n" << std::flush;
      continue;
    }
    leaving = false;
    if (line.text.find_first_not_of(" \t\r\n") == std::string::npos) continue;
    if (line.text.front() == '/') {
      if (!RunCommand(line.text)) break;
    } else {
      Ask(LossyUtf8(line.text));
    }
  }
  if (failed_ && !input_.interactive()) return Fail("Not every question could be answered.");
  return {};
}

bool Chat::RunCommand(const std::string& command) {
  if (command == "/exit" || command == "/quit") return false;
  if (command == "/reset") {
    conversation_.Reset();
    last_ = {};
    // The same question again is to get another answer, unless a seed was asked for.
    sampling_.seed = ChooseSeed(seed_);
    std::cout << "(a new conversation)\n" << std::flush;
  } else if (command == "/stats") {
    PrintStats();
  } else if (command == "/help") {
    std::cout << kHelp << std::flush;
  } else {
    std::cout << "There is no command " << EscapeForTerminal(command) << ". These exist:\n"
              << kHelp << std::flush;
  }
  return true;
}

void Chat::Ask(const std::string& question) {
  std::atomic<bool> cancel = false;
  StatusLine status;
  AnswerPrinter printer;
  GenerationOptions options;
  options.sampling = sampling_;
  options.max_tokens = max_tokens_;
  options.tenant = tenant_;
  options.cancel = &cancel;
  options.prefill_progress = [&](int64_t done, int64_t total) { status.ShowPrefill(done, total); };
  options.on_token = [&](const TokenEvent& event) {
    status.Clear();
    printer.Print(event);
  };
  const Result<std::unique_ptr<InterruptWatch>> watch =
      InterruptWatch::Start(interrupts_, cancel, /*second_exits=*/!input_.interactive());
  if (!watch) {
    failed_ = true;
    PrintError(watch.error());
    return;
  }
  const bool about_document = !document_.empty() && conversation_.messages().empty();
  Result<GenerationResult> result =
      conversation_.Ask(about_document ? AskAbout(document_, question) : question, options);
  status.Clear();
  printer.Finish();
  if (!result) {
    failed_ = true;
    PrintError(result.error());
    if (result.error().code == ErrorCode::kLimit) {
      PrintNote("the question was not added to the conversation; /reset starts a new one.");
    }
    return;
  }
  last_ = std::move(result).value();
  PrintTurn(last_);
  if (stats_) PrintAnswerStats(engine_, last_, conversation_.session());
  Save();
}

void Chat::PrintTurn(const GenerationResult& result) const {
  const bool colour = UseColour(STDOUT_FILENO);
  std::string remark;
  if (result.finish_reason == FinishReason::kCancelled) remark = "stopped; ";
  if (result.context_full) {
    remark = fmt::format("the context of {} tokens is full, /reset starts a new conversation; ",
                         engine_.info().context_tokens_max);
  } else if (result.finish_reason == FinishReason::kLength) {
    remark = "cut at --max-tokens; ";
  }
  if (!input_.interactive()) {
    if (result.context_full) PrintNote(remark.substr(0, remark.size() - 2) + ".");
    std::cout << '\n' << std::flush;
    return;
  }
  const auto drawn = static_cast<double>(result.ids.size());
  const double rate = result.decode_seconds > 0 ? (drawn - 1) / result.decode_seconds : 0;
  std::cout
      << fmt::format(
             "{}({}{} tokens, {:.1f} tokens/s; {} of {} prompt tokens cached; {} of {} tokens "
             "of context){}\n\n",
             colour ? "\x1b[2m" : "", remark, result.ids.size(), rate, result.cache.cached_tokens,
             result.prompt_tokens, conversation_.token_count(), engine_.info().context_tokens_max,
             colour ? "\x1b[0m" : "")
      << std::flush;
}

void Chat::PrintStats() const {
  const SessionMemory memory = conversation_.session().memory();
  const EngineInfo& info = engine_.info();
  std::cout << fmt::format(
      "  context    {} of {} tokens\n"
      "  cache      {:g} bytes per token: {} bytes in use, {} held\n"
      "  windows    {} bytes, whatever the length; all constant state {} bytes\n",
      conversation_.token_count(), info.context_tokens_max, info.kv_bytes_per_token,
      memory.used_bytes, memory.capacity_bytes, info.window_state_bytes, memory.constant_bytes);
  if (last_.prompt_tokens > 0) {
    const int64_t read = last_.prompt_tokens - last_.cache.cached_tokens;
    const auto drawn = static_cast<double>(last_.ids.size());
    std::cout << fmt::format(
        "  last turn  {} tokens read in {:.2f} s ({} were in the cache), {} written in {:.2f} s "
        "({:.1f} tokens/s)\n  cached     {}\n",
        read, last_.prefill_seconds, last_.cache.cached_tokens, last_.ids.size(),
        last_.decode_seconds, last_.decode_seconds > 0 ? (drawn - 1) / last_.decode_seconds : 0.0,
        CacheUseLine(last_.cache));
  }
  std::cout
      << fmt::format(
             "  model      {}\n  sampling   temperature {:g}, top-p {:g}, seed {}; {} threads, {} "
             "kernels\n",
             info.description, sampling_.temperature, sampling_.top_p, sampling_.seed, info.threads,
             info.kernels)
      << std::flush;
}

Status RunConversation(const ChatFlags& flags) {
  std::string document;
  if (!flags.document.empty()) document = TRY(ReadDocument(flags.document));
  Interrupts interrupts = TRY(Interrupts::Create());
  const std::unique_ptr<Engine> engine = TRY(OpenEngine(flags.model, flags.cache));
  if (interrupts.Take()) {
    return Fail(ErrorCode::kCancelled,
                fmt::format("Stopped by {} while loading.", interrupts.Name()));
  }
  Chat chat(*engine, interrupts, flags);
  chat.SetDocument(std::move(document));
  if (flags.resume) TRY_STATUS(chat.Resume());
  return chat.Run();
}

}  // namespace

int RunChat(const ChatFlags& flags) {
  const Status status = RunConversation(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

#include "apps/conversation.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include <fmt/format.h>

#include "core/file.h"
#include "prefix_cache/block_key.h"
#include "text/control_tokens.h"

namespace minke {
namespace {

constexpr int64_t kSavedFormat = 1;  // of a saved conversation

Json Message(const char* role, const std::string& content) {
  Json message;
  message.Set("role", role);
  message.Set("content", content);
  return message;
}

}  // namespace

std::string ConversationPath(const std::string& directory, const std::string& tenant) {
  // The names of tenants are not on the disk.
  const std::string name =
      tenant.empty() ? "conversation.json"
                     : "conversation-" + KeyText(TenantKey(tenant)).substr(0, 16) + ".json";
  return JoinPath(directory, name);
}

Status EraseConversation(const std::string& directory, const std::string& tenant) {
  const std::string path = ConversationPath(directory, tenant);
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return {};
  const std::string zeros(static_cast<size_t>(status.st_size), '\0');
  const int file = ::open(path.c_str(), O_WRONLY | O_NOFOLLOW | O_CLOEXEC);
  bool done = file >= 0;
  done = done && ::write(file, zeros.data(), zeros.size()) == static_cast<ssize_t>(zeros.size());
  done = done && ::fsync(file) == 0;
  if (file >= 0) ::close(file);
  done = ::unlink(path.c_str()) == 0 && done;
  if (done) return {};
  return Fail(ErrorCode::kIo, fmt::format("{} could not be erased: {}; remove it by hand.", path,
                                          std::strerror(errno)));
}

Conversation::Conversation(const Engine& engine, std::string system, ChatOptions options)
    : engine_(engine), system_(std::move(system)), options_(std::move(options)) {
  Reset();
}

void Conversation::Reset() {
  session_ = engine_.NewSession();
  messages_.clear();
  ids_.clear();
}

Result<GenerationResult> Conversation::Ask(const std::string& question,
                                           const GenerationOptions& options) {
  JsonArray messages = messages_;
  if (messages.empty() && !system_.empty()) messages.push_back(Message("system", system_));
  messages.push_back(Message("user", question));
  ChatOptions chat_options = options_;
  chat_options.context_messages = static_cast<int64_t>(messages_.size());
  const ChatPrompt turn = TRY(engine_.EncodeChat(DumpJson(Json(messages), JsonStyle::kCompact),
                                                 "the conversation", chat_options));
  std::vector<int32_t> prompt = ids_;
  prompt.insert(prompt.end(), turn.ids.begin(), turn.ids.end());
  GenerationResult result = TRY(engine_.Generate(*session_, prompt, options));

  ids_ = std::move(prompt);
  CloseAnswer(turn.thinking, result);
  Json answer = Message("assistant", result.answer);
  if (turn.thinking) answer.Set("reasoning_content", result.reasoning);
  messages_ = std::move(messages);
  messages_.push_back(std::move(answer));
  return result;
}

void Conversation::CloseAnswer(bool thinking, const GenerationResult& result) {
  ids_.insert(ids_.end(), result.ids.begin(), result.ids.end());
  const std::optional<int32_t> think_end = engine_.ControlToken(kThinkEndToken);
  const bool closed = think_end.has_value() && std::find(result.ids.begin(), result.ids.end(),
                                                         *think_end) != result.ids.end();
  if (thinking && !closed && think_end.has_value()) {
    // An end-of-sequence token inside the thinking would have ended both.
    if (!result.ids.empty() && ids_.back() == engine_.eos_token()) ids_.pop_back();
    ids_.push_back(*think_end);
  }
  if (result.ids.empty() || ids_.back() != engine_.eos_token()) ids_.push_back(engine_.eos_token());
}

Status Conversation::Save(const std::string& path) const {
  Json saved;
  saved.Set("format", kSavedFormat);
  saved.Set("model", engine_.info().description);
  saved.Set("system", system_);
  saved.Set("messages", messages_);
  JsonArray ids;
  for (const int32_t id : ids_) ids.push_back(Json(int64_t{id}));
  saved.Set("ids", std::move(ids));
  const std::string text = DumpJson(saved, JsonStyle::kCompact) + "\n";
  return WriteFile(path, std::as_bytes(std::span(text)), FileAccess::kOwnerOnly);
}

Status Conversation::ParseSaved(const Json& saved, const std::string& path) {
  if (TRY(JsonInt(saved, "format", path)) != kSavedFormat) {
    return Fail(fmt::format("{} was written by another version; start without --resume.", path));
  }
  if (TRY(JsonString(saved, "model", path)) != engine_.info().description) {
    return Fail(fmt::format(
        "The conversation in {} was with another model; name that one, or start without --resume.",
        path));
  }
  std::string system = TRY(JsonString(saved, "system", path));
  const JsonArray* messages = TRY(JsonList(saved, "messages", path));
  std::vector<int32_t> ids;
  for (const Json& id : *TRY(JsonList(saved, "ids", path))) {
    const bool known =
        id.is_integer() && id.as_int() >= 0 && id.as_int() < engine_.info().vocab_size;
    if (!known) {
      return Fail(
          fmt::format("Entry {} of ids in {} is no token of this model; start without "
                      "--resume.",
                      ids.size(), path));
    }
    ids.push_back(static_cast<int32_t>(id.as_int()));
  }
  Reset();
  system_ = std::move(system);
  messages_ = *messages;
  ids_ = std::move(ids);
  return {};
}

Status Conversation::Load(const std::string& path) {
  if (!FileExists(path)) {
    return Fail(ErrorCode::kNotFound,
                fmt::format("There is no conversation to go on with: {} does not exist. Start one "
                            "without --resume.",
                            path));
  }
  struct stat status = {};
  if (::lstat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode) ||
      status.st_uid != ::geteuid()) {
    return Fail(
        fmt::format("{} is not a file of this user; remove it, or start without --resume.", path));
  }
  const std::string text = TRY(ReadFile(path, kConversationBytesMax));
  return ParseSaved(TRY(ParseJson(text, path)), path);
}

}  // namespace minke

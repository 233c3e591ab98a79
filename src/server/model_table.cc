#include "server/model_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <unordered_set>
#include <utility>

#include "server/utc_day.h"

namespace minke {

namespace {

constexpr std::string_view kLongContextMark = "[1m]";

bool IsPattern(std::string_view alias) {
  return !alias.empty() && alias.back() == '*';
}

// "2026-09-10T04:00:00Z"
std::string Rfc3339(int64_t unix_seconds) {
  constexpr int64_t kMinute = 60;
  constexpr int64_t kHour = 60 * kMinute;
  const int64_t day = UtcDay(unix_seconds);
  const int64_t rest = unix_seconds - day * kDaySeconds;
  return fmt::format("{}T{:02}:{:02}:{:02}Z", UtcDayText(day), rest / kHour, rest % kHour / kMinute,
                     rest % kMinute);
}

Status CheckModelName(const std::string& name, std::string_view place, bool may_be_pattern,
                      std::unordered_set<std::string>* earlier) {
  const size_t star = name.find('*');
  const bool star_is_fine =
      star == std::string::npos || (may_be_pattern && star + 1 == name.size());
  if (name.empty() || name.size() > kModelNameBytesMax || !star_is_fine) {
    return Fail(
        fmt::format("{} must be a name of 1 to {} bytes{}, but it is {}.", place,
                    kModelNameBytesMax, may_be_pattern ? ", '*' only at its end" : " without '*'",
                    name.size() > kModelNameBytesMax ? fmt::format("{} bytes long", name.size())
                                                     : fmt::format("\"{}\"", name)));
  }
  if (earlier->insert(name).second) return {};
  return Fail(
      fmt::format("{}, \"{}\", is a name that the table has already; leave one out.", place, name));
}

Status ReadModelEntry(const Json& value, const std::string& place,
                      std::unordered_set<std::string>* names, ModelEntry* entry) {
  if (!value.is_object()) {
    return Fail(
        fmt::format("{} must be an object, but it is of type {}.", place, value.TypeName()));
  }
  for (const JsonMember& member : value.as_object()) {
    constexpr std::string_view kMembers[] = {"id", "display_name", "owned_by", "listed", "aliases"};
    if (std::find(std::begin(kMembers), std::end(kMembers), member.first) != std::end(kMembers)) {
      continue;
    }
    return Fail(
        fmt::format("{} has the unknown member \"{}\"; known are id, display_name, "
                    "owned_by, listed and aliases.",
                    place, member.first));
  }
  entry->id = TRY(JsonString(value, "id", place));
  entry->display_name = entry->id;
  TRY_STATUS(CheckModelName(entry->id, place + ".id", /*may_be_pattern=*/false, names));
  if (value.Find("display_name") != nullptr) {
    entry->display_name = TRY(JsonString(value, "display_name", place));
  }
  if (value.Find("owned_by") != nullptr) {
    entry->owned_by = TRY(JsonString(value, "owned_by", place));
  }
  if (value.Find("listed") != nullptr) entry->listed = TRY(JsonBool(value, "listed", place));
  if (value.Find("aliases") == nullptr) return {};
  const JsonArray* aliases = TRY(JsonList(value, "aliases", place));
  if (aliases->size() > kModelAliasesMax) {
    return Fail(ErrorCode::kLimit,
                fmt::format("{}.aliases has {} entries; at most {} are accepted.", place,
                            aliases->size(), kModelAliasesMax));
  }
  for (size_t i = 0; i < aliases->size(); ++i) {
    const std::string alias_place = fmt::format("{}.aliases[{}]", place, i);
    const Json& alias = (*aliases)[i];
    if (!alias.is_string()) {
      return Fail(
          fmt::format("{} must be a string, but it is of type {}.", alias_place, alias.TypeName()));
    }
    TRY_STATUS(CheckModelName(alias.as_string(), alias_place, /*may_be_pattern=*/true, names));
    entry->aliases.push_back(alias.as_string());
  }
  return {};
}

// Codex puts this in the place of its own opening instructions once it has read a model's entry, so
// it may not be empty (found with Codex 0.171).
constexpr std::string_view kCodexInstructions =
    "You are a coding agent. You work together with a user in a terminal, in the folder of their "
    "project, by means of the tools that you are given.\n"
    "\n"
    "Finish the task before you end your turn: look at the files that matter, make the change, "
    "check "
    "it, and only then report. Ask the user when what they want cannot be found out and a wrong "
    "guess "
    "would cost work.\n"
    "\n"
    "- Read before you write. Search with rg or grep, and read the surroundings of what you "
    "change.\n"
    "- Files named AGENTS.md hold instructions for the folder they stand in and all below it. What "
    "the user says in the conversation goes before them.\n"
    "- Fix the cause, not the symptom. Change as little as the task needs, in the style of the "
    "code "
    "around it, and leave unrelated faults alone, but mention them.\n"
    "- Other people's uncommitted changes are not yours: never revert them, and never run commands "
    "that destroy work, such as git reset --hard, without being asked to.\n"
    "- Run the tests, the build or the linter of the project after a change, first what is closest "
    "to "
    "it. Say honestly what you could not run and what fails.\n"
    "- If a command is refused by the sandbox and you need it, ask for approval with a short "
    "reason.\n"
    "- Commit or create branches only when asked to.\n"
    "\n"
    "Before a group of tool calls say in a sentence what you are about to do. Your last message "
    "says "
    "what was done and where, with paths as file:line, briefly and without repeating the files' "
    "contents.\n";

// The members without which Codex takes no entry, found by leaving out each in turn, and those by
// which it sizes its history (serving.md 4.1).
Json CodexModel(const ModelEntry& entry, const ModelFacts& facts, int priority) {
  JsonArray levels;
  constexpr std::pair<const char*, const char*> kLevels[] = {
      {"low", "Effort 50 of 100"}, {"high", "Effort 75 of 100"}, {"max", "Effort 100 of 100"}};
  for (const auto& [effort, description] : kLevels) {
    levels.push_back(Json(JsonObject{{"effort", effort}, {"description", description}}));
  }
  // How much of a tool's output Codex sends back.
  constexpr int kToolOutputTokensMax = 10'000;
  return Json(JsonObject{
      {"slug", entry.id},
      {"display_name", entry.display_name},
      {"description", "Served by Minke"},
      {"default_reasoning_level", "high"},
      {"supported_reasoning_levels", Json(std::move(levels))},
      {"shell_type", "shell_command"},
      {"visibility", entry.listed ? "list" : "hide"},
      {"supported_in_api", true},
      {"priority", priority},
      {"base_instructions", std::string(kCodexInstructions)},
      {"context_window", facts.context_tokens_max},
      {"truncation_policy", Json(JsonObject{{"mode", "tokens"}, {"limit", kToolOutputTokensMax}})},
      {"input_modalities", Json(JsonArray{Json("text")})},
      {"support_verbosity", false},
      {"supports_reasoning_summaries", false},
      {"supports_parallel_tool_calls", true},
      {"experimental_supported_tools", Json(JsonArray())},
  });
}

// One member set that serves both families, and what a person wants to know of the model.
Json ListedModel(const ModelEntry& entry, const ModelFacts& facts) {
  const int64_t output_max = std::min(kApiMaxTokensMax, facts.context_tokens_max);
  Json thinking(JsonObject{{"default", facts.thinking_by_default ? "enabled" : "disabled"},
                           {"default_reasoning_effort", "high"}});
  return Json(JsonObject{
      {"id", entry.id},
      {"object", "model"},
      {"created", facts.created},
      {"owned_by", entry.owned_by},
      {"type", "model"},
      {"display_name", entry.display_name},
      {"created_at", Rfc3339(facts.created)},
      {"context_length", facts.context_tokens_max},
      {"max_output_tokens", output_max},
      {"default_max_tokens", std::min(kApiMaxTokensDefault, output_max)},
      {"default_max_tokens_thinking", std::min(kApiMaxTokensThinkingDefault, output_max)},
      {"thinking", std::move(thinking)},
      {"input_modalities", Json(JsonArray{Json("text")})},
  });
}

}  // namespace

ModelTable ModelTable::Default() {
  ModelTable table;
  ModelEntry flash;
  flash.id = "deepseek-flash";
  flash.display_name = "DeepSeek-V4.1-Flash";
  flash.aliases = {"deepseek-v4.1-flash",
                   "deepseek-v4-flash",
                   "deepseek-v4-flash-vision-exp",
                   "deepseek-v4-pro",
                   "DeepSeek-V4.1-Flash",
                   "DeepSeek-V4.1-Flash-1017",
                   "deepseek-ai/DeepSeek-V4.1-Flash",
                   "deepseek-ai/DeepSeek-V4.1-Flash-1017",
                   "claude-*"};
  table.entries_ = {std::move(flash)};
  return table;
}

Result<ModelTable> ModelTable::Parse(const Json& value, std::string_view what) {
  ModelTable table;
  const JsonArray* models = TRY(JsonList(value, "models", what));
  if (models->empty() || models->size() > kModelEntriesMax) {
    return Fail(fmt::format("{}: models must have 1 to {} entries, but it has {}.", what,
                            kModelEntriesMax, models->size()));
  }
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < models->size(); ++i) {
    ModelEntry entry;
    TRY_STATUS(
        ReadModelEntry((*models)[i], fmt::format("{}: models[{}]", what, i), &names, &entry));
    table.entries_.push_back(std::move(entry));
  }
  for (const JsonMember& member : value.as_object()) {
    if (member.first == "models" || member.first == "unknown_names") continue;
    return Fail(fmt::format("{} has the unknown member \"{}\"; known are models and unknown_names.",
                            what, member.first));
  }
  if (value.Find("unknown_names") == nullptr) return table;
  const std::string unknown = TRY(JsonString(value, "unknown_names", what));
  if (unknown != "refuse" && unknown != "serve") {
    return Fail(fmt::format("{}: unknown_names must be \"refuse\" or \"serve\", but it is \"{}\".",
                            what, unknown));
  }
  table.serves_unknown_names_ = unknown == "serve";
  return table;
}

Json ModelTable::ToJson() const {
  JsonArray models;
  for (const ModelEntry& entry : entries_) {
    JsonArray aliases;
    for (const std::string& alias : entry.aliases) aliases.push_back(Json(alias));
    models.push_back(Json(JsonObject{{"id", entry.id},
                                     {"display_name", entry.display_name},
                                     {"owned_by", entry.owned_by},
                                     {"listed", entry.listed},
                                     {"aliases", Json(std::move(aliases))}}));
  }
  return Json(JsonObject{{"models", Json(std::move(models))},
                         {"unknown_names", serves_unknown_names_ ? "serve" : "refuse"}});
}

ApiResult<const ModelEntry*> ModelTable::Resolve(std::string_view name) const {
  std::string_view wanted = name;
  if (wanted.size() > kLongContextMark.size() &&
      wanted.substr(wanted.size() - kLongContextMark.size()) == kLongContextMark) {
    wanted.remove_suffix(kLongContextMark.size());
  }
  const ModelEntry* best = nullptr;
  size_t best_bytes = 0;  // of the matching beginning
  for (const ModelEntry& entry : entries_) {
    if (entry.id == wanted) return &entry;
    for (const std::string& alias : entry.aliases) {
      if (alias == wanted) return &entry;
      if (!IsPattern(alias)) continue;
      const std::string_view beginning = std::string_view(alias).substr(0, alias.size() - 1);
      if (wanted.substr(0, beginning.size()) != beginning) continue;
      if (best != nullptr && beginning.size() <= best_bytes) continue;
      best = &entry;
      best_bytes = beginning.size();
    }
  }
  if (best != nullptr) return best;
  if (serves_unknown_names_) return &entries_[0];
  std::string listed;
  for (const ModelEntry& entry : entries_) {
    if (!entry.listed) continue;
    if (!listed.empty()) listed += ", ";
    listed += entry.id;
  }
  ApiError error;
  error.param = "model";
  const std::string passed = name.empty()                        ? "no name"
                             : name.size() <= kModelNameBytesMax ? std::string(name)
                                                                 : "a longer name";
  error.message =
      fmt::format("The supported API model names are {}, but you passed {}", listed, passed);
  return tl::unexpected(std::move(error));
}

Json ModelTable::ListBody(const ModelFacts& facts) const {
  JsonArray data;
  JsonArray codex;
  for (const ModelEntry& entry : entries_) {
    if (entry.listed) data.push_back(ListedModel(entry, facts));
    codex.push_back(CodexModel(entry, facts, static_cast<int>(codex.size())));
  }
  const Json first = data.empty() ? Json() : *data.front().Find("id");
  const Json last = data.empty() ? Json() : *data.back().Find("id");
  return Json(JsonObject{{"object", "list"},
                         {"data", Json(std::move(data))},
                         {"has_more", false},
                         {"first_id", first},
                         {"last_id", last},
                         {"models", Json(std::move(codex))}});
}

ApiResult<Json> ModelTable::EntryBody(std::string_view name, const ModelFacts& facts) const {
  ApiResult<const ModelEntry*> entry = Resolve(name);
  if (entry) return ListedModel(**entry, facts);
  // A request with that name is a bad one; the name's own page is just not there.
  ApiError error = std::move(entry.error());
  error.status = 404;
  error.code = "model_not_found";
  return tl::unexpected(std::move(error));
}

}  // namespace minke

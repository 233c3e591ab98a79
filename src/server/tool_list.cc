#include "server/tool_list.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "server/agent_fields.h"
#include "text/request_fields.h"

namespace minke {

namespace {

ApiStatus CheckNamePart(const std::string& place, std::string_view name, size_t bytes_max) {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-';
  };
  if (!name.empty() && name.size() <= bytes_max && std::all_of(name.begin(), name.end(), allowed)) {
    return {};
  }
  return RefuseBody(
      place,
      fmt::format("{} must be 1 to {} letters, digits, _ and -, but it is {}.", place, bytes_max,
                  name.empty() ? "missing or empty" : RequestFields::Quote(name)));
}

}  // namespace

std::string QualifiedToolName(std::string_view tool_namespace, std::string_view name) {
  return tool_namespace.empty() ? std::string(name) : fmt::format("{}::{}", tool_namespace, name);
}

ApiStatus ToolList::Add(const DeclaredTool& tool) {
  const std::string place = tool.path + ".name";
  TRY_STATUS(CheckNamePart(place, tool.name, kDeclaredNameBytesMax));
  if (!tool.tool_namespace.empty()) {
    TRY_STATUS(CheckNamePart("namespace of " + tool.path, tool.tool_namespace,
                             kDeclaredNamespaceBytesMax));
  }
  const std::string name = QualifiedToolName(tool.tool_namespace, tool.name);
  if (!known_.insert(name).second) {
    return RefuseBody(place, fmt::format("Tool names must be unique: {} is {} again.", place,
                                         RequestFields::Quote(name)));
  }
  if (shown_.size() >= kApiToolsMax) {
    return RefuseBody("tools",
                      fmt::format("tools has more than {} tools; declare fewer.", kApiToolsMax));
  }
  const Json* type = tool.parameters == nullptr ? nullptr : BodyMember(*tool.parameters, "type");
  if (type != nullptr && (!type->is_string() || type->as_string() != "object")) {
    return RefuseBody(
        tool.path,
        fmt::format("The parameters of {} must be a JSON Schema of type "
                    "\"object\", but its type is {}.",
                    tool.path, RequestFields::Quote(DumpJson(*type, JsonStyle::kCompact))));
  }
  std::string description = tool.description;
  if (!tool.namespace_description.empty()) {
    description = description.empty()
                      ? tool.namespace_description
                      : fmt::format("{}\n{}", tool.namespace_description, description);
  }
  shown_.push_back(Json(JsonObject{
      {"name", name},
      {"description", std::move(description)},
      {"parameters", tool.parameters == nullptr ? Json(JsonObject()) : *tool.parameters}}));
  names_.push_back(name);
  return {};
}

void ToolList::Keep(const std::unordered_set<std::string>& qualified_names) {
  size_t kept = 0;
  for (size_t i = 0; i < names_.size(); ++i) {
    if (!qualified_names.contains(names_[i])) {
      known_.erase(names_[i]);
      continue;
    }
    if (kept != i) {
      names_[kept] = std::move(names_[i]);
      shown_[kept] = std::move(shown_[i]);
    }
    ++kept;
  }
  names_.resize(kept);
  shown_.resize(kept);
}

ApiStatus ToolList::MoveInto(ApiRequest* request) {
  const ToolChoice& choice = request->chat.options.tool_choice;
  using Kind = ToolChoice::Kind;
  if (choice.kind == Kind::kRequired || choice.kind == Kind::kNamed) {
    if (request->thinking()) {
      return RefuseBody("tool_choice", "Thinking mode does not support this tool_choice");
    }
    if (choice.kind == Kind::kNamed && !Has(choice.name)) {
      return RefuseBody(
          "tool_choice",
          fmt::format("tool_choice names the tool {}, which is not declared in tools.",
                      RequestFields::Quote(choice.name)));
    }
    if (empty()) {
      return RefuseBody("tool_choice", "tool_choice asks for a call, but there are no tools.");
    }
    if (choice.kind == Kind::kNamed) Keep({choice.name});
  }
  if (choice.kind == Kind::kNone || empty()) return {};
  request->tools = true;
  request->tool_names = std::move(names_);
  std::vector<Json>& shown = FirstSystemMessage(&request->chat).tools;
  std::move(shown_.begin(), shown_.end(), std::back_inserter(shown));
  return {};
}

}  // namespace minke

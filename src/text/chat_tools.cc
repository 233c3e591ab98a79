#include "text/chat_tools.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_set>
#include <utility>

namespace minke {

namespace {

constexpr std::string_view kNamespaceMark = "::";

}  // namespace

Status ToolReader::ReadNamespace(const Json& holder, const Json& function, const std::string& path,
                                 std::string* name, std::string* description) const {
  const Json* value = Present(holder, "namespace");
  if (value == nullptr) value = Present(function, "namespace");
  if (value == nullptr) return {};
  if (value->is_string()) {
    *name = value->as_string();
  } else if (value->is_object()) {
    TRY_STATUS(ReadText(*value, path + ".namespace", "name", name));
    TRY_STATUS(ReadText(*value, path + ".namespace", "description", description));
  } else {
    return Refuse(path + ".namespace", "a string or an object with a \"name\"", *value);
  }
  return {};
}

Status ToolReader::QualifyName(const std::string& path, std::string_view tool_namespace,
                               std::string* name) const {
  const size_t mark = name->find(kNamespaceMark);
  const bool nested =
      (mark != std::string::npos && name->find(kNamespaceMark, mark + 1) != std::string::npos) ||
      tool_namespace.find(kNamespaceMark) != std::string_view::npos;
  if (nested) return RefuseText(path, "in at most one namespace", "in a nested one");
  if (mark != std::string::npos) {
    if (mark == 0 || mark + kNamespaceMark.size() == name->size()) {
      return RefuseText(path + ".name", "NAMESPACE::NAME", Quote(*name));
    }
    if (tool_namespace.empty() || tool_namespace == std::string_view(*name).substr(0, mark)) {
      return {};
    }
    return RefuseText(path, fmt::format("in the namespace of its name, {}", Quote(*name)),
                      fmt::format("in {}", Quote(tool_namespace)));
  }
  if (!tool_namespace.empty()) *name = fmt::format("{}::{}", tool_namespace, *name);
  return {};
}

Result<const Json*> ToolReader::ReadFunction(const Json& holder, const std::string& path,
                                             std::string* name) const {
  if (!holder.is_object()) return Refuse(path, "an object", holder);
  std::string type = "function";
  TRY_STATUS(ReadText(holder, path, "type", &type));
  if (type != "function") return RefuseText(path + ".type", "\"function\"", Quote(type));
  const Json* function = Present(holder, "function");
  if (function == nullptr) return RefuseText(path + ".function", "an object", "missing");
  if (!function->is_object()) return Refuse(path + ".function", "an object", *function);
  TRY_STATUS(ReadText(*function, path + ".function", "name", name));
  if (name->empty()) return RefuseText(path + ".function.name", "a name", "missing or empty");
  return function;
}

Status ToolReader::CheckToolName(const std::string& path, const std::string& name,
                                 std::unordered_set<std::string>* earlier) const {
  const auto allowed = [](char c) {
    return (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' ||
           c == '-' || c == ':';
  };
  if (name.size() > kToolNameBytesMax || !std::all_of(name.begin(), name.end(), allowed)) {
    return RefuseText(path + ".function.name",
                      fmt::format("at most {} letters, digits, _ and -", kToolNameBytesMax),
                      Quote(name));
  }
  if (earlier->insert(name).second) return {};
  return RefuseText(path + ".function.name", "unlike those of the other tools", Quote(name));
}

Status ToolReader::ReadTools(const Json& list, const std::string& path,
                             std::vector<Json>* tools) const {
  if (!list.is_array()) return Refuse(path, "a list of tools", list);
  std::unordered_set<std::string> names;
  for (size_t i = 0; i < list.as_array().size(); ++i) {
    const Json& tool = list.as_array()[i];
    const std::string place = fmt::format("{}[{}]", path, i);
    std::string name;
    const Json* function = TRY(ReadFunction(tool, place, &name));
    std::string tool_namespace;
    std::string about_namespace;
    TRY_STATUS(ReadNamespace(tool, *function, place, &tool_namespace, &about_namespace));
    TRY_STATUS(QualifyName(place, tool_namespace, &name));
    if (rules_ == RequestRules::kServer) TRY_STATUS(CheckToolName(place, name, &names));
    std::string description;
    TRY_STATUS(ReadText(*function, place + ".function", "description", &description));
    JsonObject members = function->as_object();
    const auto is_namespace = [](const JsonMember& member) { return member.first == "namespace"; };
    members.erase(std::remove_if(members.begin(), members.end(), is_namespace), members.end());
    Json shown(std::move(members));
    shown.Set("name", name);
    if (!about_namespace.empty()) {
      shown.Set("description", description.empty()
                                   ? about_namespace
                                   : fmt::format("{}\n{}", about_namespace, description));
    }
    tools->push_back(std::move(shown));
  }
  return {};
}

Status ToolReader::ReadToolCalls(const Json& list, const std::string& path,
                                 ChatMessage* out) const {
  if (out->role != Role::kAssistant) return RefuseText(path, "in an assistant message", "not");
  if (!list.is_array()) return Refuse(path, "a list of tool calls", list);
  for (size_t i = 0; i < list.as_array().size(); ++i) {
    const Json& item = list.as_array()[i];
    const std::string place = fmt::format("{}[{}]", path, i);
    ToolCall call;
    const Json* function = TRY(ReadFunction(item, place, &call.name));
    std::string tool_namespace;
    std::string ignored;
    TRY_STATUS(ReadNamespace(item, *function, place, &tool_namespace, &ignored));
    TRY_STATUS(QualifyName(place, tool_namespace, &call.name));
    TRY_STATUS(ReadText(item, place, "id", &call.id));
    const Json* arguments = Present(*function, "arguments");
    call.arguments = arguments == nullptr ? Json(JsonObject()) : *arguments;
    out->tool_calls.push_back(std::move(call));
  }
  return {};
}

}  // namespace minke

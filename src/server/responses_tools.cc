#include "server/responses_tools.h"

#include <fmt/format.h>

#include <string>
#include <unordered_set>
#include <utility>

#include "server/agent_fields.h"
#include "server/tool_list.h"
#include "text/request_fields.h"

namespace minke {

namespace {

constexpr BodyTypeRule kToolListRules[] = {
    {"tools", kBodyList},
    {"tools[]", kBodyObject},
    {"tools[].type", kBodyText},
    {"tool_choice", kBodyText | kBodyObject},
    {"tool_choice.type", kBodyText},
    {"tool_choice.name", kBodyText},
    {"tool_choice.namespace", kBodyText},
    {"tool_choice.mode", kBodyText},
    {"tool_choice.tools", kBodyList},
    {"tool_choice.tools[]", kBodyObject},
    {"tool_choice.tools[].name", kBodyText},
    {"tool_choice.tools[].namespace", kBodyText},
};
// Of the types that are shown; what others hold is not looked at.
constexpr BodyTypeRule kShownToolRules[] = {
    {"name", kBodyText},     {"description", kBodyText},   {"parameters", kBodyObject},
    {"format", kBodyObject}, {"format.syntax", kBodyText}, {"format.definition", kBodyText},
    {"tools", kBodyList},    {"tools[]", kBodyObject},     {"tools[].type", kBodyText},
};

std::string NameIn(const Json& object) {
  return QualifiedToolName(BodyText(object, "namespace"), BodyText(object, "name"));
}

// What a custom tool's input looks like, said where the model reads it.
Json CustomParameters(const Json& tool) {
  std::string about = "The input of the tool as plain text.";
  const Json* format = BodyMember(tool, "format");
  const std::string grammar = format == nullptr ? std::string() : BodyText(*format, "definition");
  if (!grammar.empty()) {
    about = fmt::format("The input of the tool as plain text, in this {} grammar:\n{}",
                        BodyText(*format, "syntax"), grammar);
  }
  const Json input(JsonObject{{"type", "string"}, {"description", about}});
  return Json(JsonObject{{"type", "object"},
                         {"properties", Json(JsonObject{{"input", input}})},
                         {"required", Json(JsonArray{"input"})}});
}

struct ToolNamespace {
  std::string name;
  std::string description;
};

class ToolsReader {
 public:
  explicit ToolsReader(ApiRequest* request) : request_(request) {}

  ApiStatus Read(const Json& body) {
    if (const Json* tools = BodyMember(body, "tools")) {
      for (size_t i = 0; i < tools->as_array().size(); ++i) {
        TRY_STATUS(ReadTool(tools->as_array()[i], fmt::format("tools[{}]", i), nullptr));
      }
    }
    if (const Json* choice = BodyMember(body, "tool_choice")) TRY_STATUS(ReadChoice(*choice));
    TRY_STATUS(list_.MoveInto(request_));
    const std::unordered_set<std::string> left(request_->tool_names.begin(),
                                               request_->tool_names.end());
    for (std::string& name : custom_tools_) {
      if (left.contains(name)) request_->custom_tools.push_back(std::move(name));
    }
    return {};
  }

 private:
  // `within`: the namespace that holds the tool, or nullptr.
  ApiStatus ReadTool(const Json& tool, const std::string& path, const ToolNamespace* within) {
    const std::string type = BodyText(tool, "type");
    if (type.empty()) return RefuseMissing(path + ".type");
    if (type != "function" && type != "custom" && type != "namespace") return {};
    TRY_STATUS(CheckEntryTypes(tool, path, kShownToolRules));
    if (type == "namespace") return ReadNamespace(tool, path, within);
    DeclaredTool declared;
    declared.path = path;
    if (within != nullptr) {
      declared.tool_namespace = within->name;
      declared.namespace_description = within->description;
    }
    declared.name = BodyText(tool, "name");
    declared.description = BodyText(tool, "description");
    declared.parameters = BodyMember(tool, "parameters");
    if (type == "function") return list_.Add(declared);
    const Json parameters = CustomParameters(tool);
    declared.parameters = &parameters;
    TRY_STATUS(list_.Add(declared));
    custom_tools_.push_back(QualifiedToolName(declared.tool_namespace, declared.name));
    return {};
  }

  ApiStatus ReadNamespace(const Json& tool, const std::string& path, const ToolNamespace* within) {
    if (within != nullptr) {
      return RefuseBody(path, fmt::format("{} is a namespace within a namespace; tools stand in at "
                                          "most one.",
                                          path));
    }
    const ToolNamespace self = {BodyText(tool, "name"), BodyText(tool, "description")};
    if (self.name.empty()) return RefuseMissing(path + ".name");
    const Json* tools = BodyMember(tool, "tools");
    if (tools == nullptr) return {};
    for (size_t i = 0; i < tools->as_array().size(); ++i) {
      TRY_STATUS(ReadTool(tools->as_array()[i], fmt::format("{}.tools[{}]", path, i), &self));
    }
    return {};
  }

  ApiStatus ReadMode(const std::string& mode, const std::string& place) {
    using Kind = ToolChoice::Kind;
    Kind& kind = request_->chat.options.tool_choice.kind;
    if (mode == "auto") {
      kind = Kind::kAuto;
    } else if (mode == "none") {
      kind = Kind::kNone;
    } else if (mode == "required") {
      kind = Kind::kRequired;
    } else {
      return RefuseBody(place,
                        fmt::format("{} must be none, auto, required or an object, but it is "
                                    "{}.",
                                    place, RequestFields::Quote(mode)));
    }
    return {};
  }

  ApiStatus ReadChoice(const Json& value) {
    if (value.is_string()) return ReadMode(value.as_string(), "tool_choice");
    const std::string type = BodyText(value, "type");
    if (type == "function" || type == "custom") {
      ToolChoice& choice = request_->chat.options.tool_choice;
      choice.kind = ToolChoice::Kind::kNamed;
      choice.name = NameIn(value);
      return {};
    }
    // Of a tool that was left out: there is nothing to choose.
    if (type != "allowed_tools") return {};
    const Json* tools = BodyMember(value, "tools");
    std::unordered_set<std::string> allowed;
    if (tools != nullptr) {
      for (const Json& tool : tools->as_array()) allowed.insert(NameIn(tool));
    }
    list_.Keep(allowed);
    const std::string mode = BodyText(value, "mode");
    return ReadMode(mode.empty() ? "auto" : mode, "tool_choice.mode");
  }

  ApiRequest* request_;
  ToolList list_;
  std::vector<std::string> custom_tools_;
};

}  // namespace

ApiStatus ReadResponsesTools(const Json& body, ApiRequest* request) {
  TRY_STATUS(CheckBodyTypes(body, kToolListRules));
  return ToolsReader(request).Read(body);
}

}  // namespace minke

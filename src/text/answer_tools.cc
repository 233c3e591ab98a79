#include "text/answer_tools.h"

#include <algorithm>
#include <utility>

namespace minke {

namespace {

constexpr std::string_view kNamespaceSeparator = "::";

// Names that the API and its clients allow, and what namespaces add. A placeholder of the format's
// own description (`$TOOL_NAME`) is none.
bool IsToolNameByte(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '-' || c == '.' || c == '/' || c == ':';
}

std::vector<AnswerParameter> ParametersOf(const Json& function) {
  std::vector<AnswerParameter> parameters;
  const Json* schema = function.Find("parameters");
  const Json* properties = schema == nullptr ? nullptr : schema->Find("properties");
  if (properties == nullptr || !properties->is_object()) return parameters;
  std::unordered_set<std::string> required;
  const Json* list = schema->Find("required");
  if (list != nullptr && list->is_array()) {
    for (const Json& name : list->as_array()) {
      if (name.is_string()) required.insert(name.as_string());
    }
  }
  for (const JsonMember& property : properties->as_object()) {
    const Json* type = property.second.Find("type");
    parameters.push_back({property.first,
                          type != nullptr && type->is_string() && type->as_string() == "string",
                          required.count(property.first) > 0});
  }
  return parameters;
}

}  // namespace

void DeclareTools(const std::vector<Json>& functions, AnswerParserOptions* options) {
  options->tool_names.clear();
  options->tool_parameters.clear();
  for (const Json& function : functions) {
    const Json* name = function.Find("name");
    if (name == nullptr || !name->is_string()) continue;
    options->tool_names.push_back(name->as_string());
    options->tool_parameters.push_back(ParametersOf(function));
  }
  options->tools = !functions.empty();
}

DeclaredTools::DeclaredTools(std::vector<std::string> names,
                             std::vector<std::vector<AnswerParameter>> parameters)
    : names_(std::move(names)), parameters_(std::move(parameters)) {
  parameters_.resize(names_.size());
  for (size_t i = 0; i < names_.size(); ++i) {
    by_name_.emplace(names_[i], i);
    const auto [place, fresh] = by_plain_name_.emplace(Split(names_[i]).name, i);
    if (!fresh) place->second.reset();
  }
}

DeclaredTools::Called DeclaredTools::Split(std::string_view name) {
  const size_t mark = name.find(kNamespaceSeparator);
  if (mark == std::string_view::npos) return {"", std::string(name), std::nullopt};
  return {std::string(name.substr(0, mark)),
          std::string(name.substr(mark + kNamespaceSeparator.size())), std::nullopt};
}

std::optional<DeclaredTools::Called> DeclaredTools::Resolve(std::string_view name) const {
  while (!name.empty() && (name.front() == ' ' || name.front() == '\n')) name.remove_prefix(1);
  while (!name.empty() && (name.back() == ' ' || name.back() == '\n')) name.remove_suffix(1);
  if (name.empty() || name.size() > kCalledNameBytesMax) return std::nullopt;
  const auto exact = by_name_.find(std::string(name));
  std::optional<size_t> tool;
  if (exact != by_name_.end()) {
    tool = exact->second;
  } else if (const auto plain = by_plain_name_.find(std::string(name));
             plain != by_plain_name_.end()) {
    tool = plain->second;
  }
  Called called = Split(tool.has_value() ? std::string_view(names_[*tool]) : name);
  called.tool = tool;
  if (tool.has_value()) return called;
  const bool has_namespace = name.find(kNamespaceSeparator) != std::string_view::npos;
  const bool whole = !called.name.empty() && (!has_namespace || !called.tool_namespace.empty()) &&
                     called.name.find(kNamespaceSeparator) == std::string::npos;
  if (!whole || !std::all_of(name.begin(), name.end(), IsToolNameByte)) return std::nullopt;
  return called;
}

bool DeclaredTools::IsDeclared(std::string_view name) const {
  return by_name_.count(std::string(name)) > 0;
}

bool DeclaredTools::CanBecomeDeclared(std::string_view beginning) const {
  return std::any_of(names_.begin(), names_.end(), [beginning](const std::string& name) {
    return std::string_view(name).starts_with(beginning);
  });
}

std::optional<size_t> DeclaredTools::ToolOfParameters(
    const std::unordered_set<std::string>& names) const {
  if (names.empty()) return std::nullopt;
  std::vector<size_t> with_all;
  std::vector<size_t> complete;
  for (size_t i = 0; i < names_.size(); ++i) {
    size_t known = 0;
    bool has_required = true;
    for (const AnswerParameter& parameter : parameters_[i]) {
      const bool given = names.count(parameter.name) > 0;
      known += given ? 1 : 0;
      has_required = has_required && (given || !parameter.is_required);
    }
    if (known != names.size()) continue;
    with_all.push_back(i);
    if (has_required) complete.push_back(i);
  }
  if (with_all.size() == 1) return with_all[0];
  if (complete.size() == 1) return complete[0];
  return std::nullopt;
}

const AnswerParameter* DeclaredTools::Parameter(std::optional<size_t> tool,
                                                std::string_view name) const {
  if (!tool.has_value()) return nullptr;
  for (const AnswerParameter& parameter : parameters_[*tool]) {
    if (parameter.name == name) return &parameter;
  }
  return nullptr;
}

}  // namespace minke

// The tools that an answer may call, as AnswerParser needs to know them.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "text/answer_parser.h"

namespace minke {

class DeclaredTools {
 public:
  DeclaredTools() = default;
  DeclaredTools(std::vector<std::string> names,
                std::vector<std::vector<AnswerParameter>> parameters);

  struct Called {
    std::string tool_namespace;
    std::string name;
    std::optional<size_t> tool;  // which of the declared ones
  };
  // The tool that a model means by `name`: a declared one, one whose namespace it left out, or an
  // unknown one with a name that a tool could have. Nullopt if no tool can have that name.
  std::optional<Called> Resolve(std::string_view name) const;
  bool IsDeclared(std::string_view name) const;
  // Whether more bytes can make `beginning` the name of a declared tool.
  bool CanBecomeDeclared(std::string_view beginning) const;

  // The one declared tool that has all these parameters; among several, the one whose required
  // parameters are all there. Nullopt if that is none or more than one.
  std::optional<size_t> ToolOfParameters(const std::unordered_set<std::string>& names) const;

  // Null where the tool is not declared or says nothing of such a parameter.
  const AnswerParameter* Parameter(std::optional<size_t> tool, std::string_view name) const;
  const std::string& name(size_t tool) const { return names_[tool]; }

 private:
  static Called Split(std::string_view name);

  std::vector<std::string> names_;
  std::vector<std::vector<AnswerParameter>> parameters_;  // as many as names_
  std::unordered_map<std::string, size_t> by_name_;
  // By the name without its namespace; nullopt where several tools share it.
  std::unordered_map<std::string, std::optional<size_t>> by_plain_name_;
};

}  // namespace minke

// Tool declarations and tool calls of a request, with their namespaces.
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "text/chat_encoding.h"
#include "text/request_fields.h"

namespace minke {

inline constexpr size_t kToolNameBytesMax = 128;

class ToolReader : private RequestFields {
 public:
  ToolReader(std::string_view what, RequestRules rules) : RequestFields(what), rules_(rules) {}

  // A list of {"type": "function", "function": {...}}: appends the function objects as they are
  // shown to the model, that is as given but for the namespace, which moves into the name.
  Status ReadTools(const Json& list, const std::string& path, std::vector<Json>* tools) const;
  Status ReadToolCalls(const Json& list, const std::string& path, ChatMessage* message) const;
  // The function object of a tool, a call or a tool choice, and its name as written.
  Result<const Json*> ReadFunction(const Json& holder, const std::string& path,
                                   std::string* name) const;

 private:
  // The namespace of a tool or call: a name, or {"name", "description"}; in it or in its function.
  Status ReadNamespace(const Json& holder, const Json& function, const std::string& path,
                       std::string* name, std::string* description) const;
  // Makes *name "name" or "namespace::name": at most one namespace, said in one way.
  Status QualifyName(const std::string& path, std::string_view tool_namespace,
                     std::string* name) const;
  // The hosted service's limits on the names of declared tools.
  Status CheckToolName(const std::string& path, const std::string& name,
                       std::unordered_set<std::string>* earlier) const;

  RequestRules rules_;
};

}  // namespace minke

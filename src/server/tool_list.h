// Tools that the agents' APIs declare, as they are shown to the model (serving.md 2.4).
#pragma once

#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "core/json.h"
#include "server/api.h"

namespace minke {

// Bytes of the parts of a name. Both and what stands between them fit into what the answer's parser
// takes (answer_parser.h).
inline constexpr size_t kDeclaredNameBytesMax = 128;
inline constexpr size_t kDeclaredNamespaceBytesMax = 126;

struct DeclaredTool {
  std::string path;            // its place in the body, for errors
  std::string tool_namespace;  // or empty
  std::string namespace_description;
  std::string name;
  std::string description;
  const Json* parameters = nullptr;  // a JSON Schema of an object; nullptr: nothing is said
};

// "namespace::name", or the name alone.
std::string QualifiedToolName(std::string_view tool_namespace, std::string_view name);

class ToolList {
 public:
  // Errors: a name that is empty, too long, of other characters or not the only one; parameters
  // that are no object's schema; one more than kApiToolsMax.
  ApiStatus Add(const DeclaredTool& tool);
  bool Has(const std::string& qualified_name) const { return known_.contains(qualified_name); }
  bool empty() const { return shown_.empty(); }
  // Forgets all others.
  void Keep(const std::unordered_set<std::string>& qualified_names);
  // Applies the request's tool_choice to the tools and hands what is left to the request: to its
  // system message and to what its answer is read by. Errors: a choice that asks for a call in
  // thinking mode, without tools, or by an unknown name.
  ApiStatus MoveInto(ApiRequest* request);

 private:
  std::vector<Json> shown_;         // {"name", "description", "parameters"}
  std::vector<std::string> names_;  // qualified, of shown_
  std::unordered_set<std::string> known_;
};

}  // namespace minke

// The names by which clients may call the model, and what answers carry (serving.md 1.1). One
// server has one model; the table decides which names mean it. docs/formats/model_table.md
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "server/api.h"

namespace minke {

inline constexpr size_t kModelEntriesMax = 64;
inline constexpr size_t kModelAliasesMax = 256;    // of one entry
inline constexpr size_t kModelNameBytesMax = 128;  // bytes of a name

struct ModelEntry {
  std::string id;  // what answers carry
  std::string display_name;
  std::string owned_by = "deepseek";
  bool listed = true;  // in GET /models and in the error for unknown names
  // Further names. A '*' at the end stands for anything.
  std::vector<std::string> aliases;

  bool operator==(const ModelEntry&) const = default;
};

// What of the running server is told beside the names.
struct ModelFacts {
  int64_t created = 0;             // seconds since 1970
  int64_t context_tokens_max = 0;  // prompt and answer together
  bool thinking_by_default = true;
};

class ModelTable {
 public:
  // The shipped table: deepseek-flash with every name that DeepSeek's own service and other hosts
  // use for it, and those of Anthropic's models; unknown names are refused.
  static ModelTable Default();
  // {"models": [{"id", "display_name", "owned_by", "listed", "aliases"}], "unknown_names":
  // "refuse" or "serve"}. Errors name `what` and the member.
  static Result<ModelTable> Parse(const Json& value, std::string_view what);
  Json ToJson() const;

  // The entry of a name: its id or alias, otherwise the entry with the longest matching beginning.
  // Unknown and missing names are a 400, or the first entry if unknown names are served. Claude
  // Code's "[1m]" at the end of a name means nothing here.
  ApiResult<const ModelEntry*> Resolve(std::string_view name) const;

  // GET /models: the list of OpenAI's form, each entry with the members of Anthropic's, and the
  // array `models` that Codex reads.
  Json ListBody(const ModelFacts& facts) const;
  // GET /models/NAME. Errors: a 404 where Resolve() knows no such name.
  ApiResult<Json> EntryBody(std::string_view name, const ModelFacts& facts) const;

  const std::vector<ModelEntry>& entries() const { return entries_; }
  bool serves_unknown_names() const { return serves_unknown_names_; }

 private:
  std::vector<ModelEntry> entries_;  // never empty
  bool serves_unknown_names_ = false;
};

}  // namespace minke

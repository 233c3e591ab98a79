// minke inspect: what a model is made of and what it costs, from its config alone or with its
// checkpoint, of which only headers are read.
#include <iostream>
#include <optional>
#include <utility>

#include "apps/commands.h"
#include "apps/common.h"
#include "checkpoint/safetensors.h"
#include "core/file.h"
#include "model/config.h"
#include "planner/inspect.h"

namespace minke {
namespace {

Status Inspect(const InspectFlags& flags) {
  std::optional<Checkpoint> checkpoint;
  std::string config_path = flags.config;
  if (config_path.empty()) {
    const std::string dir = TRY(FindModelDir(flags.model_dir));
    config_path = JoinPath(dir, "config.json");
    checkpoint = TRY(Checkpoint::Open(dir));
  }
  const ModelConfig config = TRY(LoadConfig(config_path));
  const InspectReport report =
      TRY(InspectReport::Make(config, checkpoint.has_value() ? &*checkpoint : nullptr));
  if (flags.json) {
    std::cout << DumpJson(report.ToJson(), JsonStyle::kPretty) << '\n';
  } else {
    std::cout << report.ToText();
  }
  return {};
}

}  // namespace

int RunInspect(const InspectFlags& flags) {
  const Status status = Inspect(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke

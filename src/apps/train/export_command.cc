// minke-train export: a run's weights as a model that minke loads.
#include <iostream>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "apps/train/commands.h"
#include "core/file.h"
#include "core/json.h"
#include "train/export.h"
#include "train/model_folder.h"
#include "train/run_folder.h"
#include "train/trainer.h"

namespace minke::train {
namespace {

Status Export(const ExportFlags& flags) {
  const ModelFolder folder = TRY(OpenModelFolder(JoinPath(flags.run, kModelConfigFile), flags.run));
  const std::string state_name = flags.state.empty() ? kStateFileName : flags.state;
  StateFile state;
  const std::unique_ptr<Model> model =
      TRY(OpenState(folder, JoinPath(flags.run, state_name), &state));
  Json origin(JsonObject{{"training_config", state.identity.training_config},
                         {"corpus", state.identity.corpus},
                         {"seed", state.identity.seed},
                         {"replicas", state.identity.replicas},
                         {"steps", state.position.step},
                         {"tokens", state.position.tokens}});
  const RunOrigin run = TRY(ReadRunOrigin(flags.run));
  if (!run.begun_from.is_null()) origin.Set(kBegunFrom, run.begun_from);
  TRY_STATUS(ExportModel(*model, flags.run, origin, flags.out));
  std::cout << fmt::format("{}: step {}, {} tokens. minke inspect --model {} shows it.\n",
                           flags.out, state.position.step, state.position.tokens, flags.out);
  return {};
}

}  // namespace

int RunExport(const ExportFlags& flags) {
  const Status status = Export(flags);
  return status ? kExitSuccess : PrintError(status.error());
}

}  // namespace minke::train

// The process that the kill test kills: trains the rig's run in a folder, continuing what is there.
#include <unistd.h>

#include <fstream>
#include <string>

#include "core/file.h"
#include "tests/train/loop_rig.h"
#include "train/blas_check.h"

int main(int argc, char** argv) {
  if (argc != 2) return 2;
  const std::string folder = argv[1];
  minke::train::UseOneThreadPerCaller();
  const auto rig = minke::testing::MakeRig(folder, 2);
  if (minke::FileExists(rig->trainer->StatePath())) {
    if (!rig->trainer->Resume(rig->trainer->StatePath(), false)) return 3;
  } else {
    std::ofstream(minke::JoinPath(folder, minke::train::kLogFileName), std::ios::trunc).close();
  }
  minke::train::RunCallbacks callbacks;
  callbacks.on_step = [](const minke::train::StepReport&) { usleep(2000); };
  return rig->trainer->Run(callbacks) ? 0 : 4;
}

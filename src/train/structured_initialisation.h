// First values of the parameters (docs/nano.md, initialisation).
#pragma once

#include <cstdint>
#include <vector>

#include "core/result.h"
#include "model/config.h"
#include "train/model.h"

namespace minke::train {

// Random values of the sizes that suit every kind of parameter; norms 1, sinks and biases 0; mixes
// of the hyper-connections near the identity. The same values for the same seed.
void InitialisePlainly(const ModelConfig& config, uint64_t seed,
                       std::vector<Parameter>& parameters);

// Puts a look-up circuit on top of it: a constant channel in the embedding; heads of layer 0 that
// attend 1, 2, 3 ... tokens back; an output of layer 0 that is the same for all of its heads; and
// in layers with compressed rows, queries of half of the heads that match hidden states of their
// own kind. Marks what holds this structure. Refused where layer 0 is no sliding-window layer or
// the window is no longer than the heads' offsets.
Status AddStructure(const ModelConfig& config, std::vector<Parameter>& parameters);

}  // namespace minke::train

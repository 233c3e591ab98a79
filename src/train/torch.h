// libtorch, without its own CHECK family, whose names are those of core/result.h. Part of the
// precompiled header, so in every file of the trainer it comes before the latter.
#pragma once

#include <torch/torch.h>

#undef CHECK
#undef DCHECK

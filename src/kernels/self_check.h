// Whether a table of kernels gives the bits of the reference on this processor. Only files of this
// folder and its tests include this.
#pragma once

#include "kernels/kernels.h"

namespace minke {

// Runs the SIMD entries of `table` and their twins on small inputs with awkward shapes, in well
// under 200 milliseconds. Returns the name of the first entry whose bits differ, or null.
const char* FirstDifference(const Kernels& table);

}  // namespace minke

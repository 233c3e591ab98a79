// Plots of minke bench: ratios to the bound as lines, in SVG.
#pragma once

#include <string>

#include "bench/decode_bench.h"
#include "bench/kernel_bench.h"
#include "core/result.h"

namespace minke {

// Ratio to the bound over the rows of a product: a line per format, the median of its shapes.
std::string KernelPlot(const KernelBenchReport& report);
// Ratio to the bound over the tokens of context of one sequence.
std::string ContextPlot(const DecodeBenchReport& report);
Status WriteBenchPlot(const std::string& path, const std::string& svg);

}  // namespace minke

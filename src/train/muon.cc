#include "train/muon.h"

#include <algorithm>
#include <cmath>

namespace minke::train {

torch::Tensor Orthogonalized(const torch::Tensor& matrices) {
  // The quintic of docs/nano.md: steep at zero, so that five steps are enough.
  constexpr double kLinear = 3.4445;
  constexpr double kCubic = -4.7750;
  constexpr double kQuintic = 2.0315;
  constexpr double kNormMin = 1e-7;
  const bool tall = matrices.size(1) > matrices.size(2);  // products of the short side are cheaper
  torch::Tensor x = tall ? matrices.transpose(1, 2).contiguous() : matrices;
  x = x / (x.flatten(1).norm(2, 1).view({-1, 1, 1}) + kNormMin);
  for (int step = 0; step < kNewtonSchulzSteps; ++step) {
    const torch::Tensor a = torch::bmm(x, x.transpose(1, 2));
    const torch::Tensor b = torch::baddbmm(a, a, a, kCubic, kQuintic);
    x = torch::baddbmm(x, b, x, kLinear, 1);
  }
  return tall ? x.transpose(1, 2) : x;
}

double MuonScale(int64_t out, int64_t in) {
  return std::sqrt(std::max(1.0, static_cast<double>(out) / static_cast<double>(in)));
}

}  // namespace minke::train

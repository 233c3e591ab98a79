#include "train/blas_check.h"

#include <dlfcn.h>
#include <time.h>
#include <torch/torch.h>

#include <algorithm>

#include <fmt/format.h>

namespace minke::train {
namespace {

double ThreadSeconds() {
  timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  constexpr double kSecondsPerNanosecond = 1e-9;
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * kSecondsPerNanosecond;
}

std::string BlasLibrary() {
  void* const product = dlsym(RTLD_DEFAULT, "sgemm_");
  Dl_info info = {};
  if (product == nullptr || dladdr(product, &info) == 0 || info.dli_fname == nullptr) return "?";
  return info.dli_fname;
}

}  // namespace

BlasSpeed MeasureBlas() {
  constexpr int kTries = 5;  // the first one loads code and memory; others may be interrupted
  constexpr double kOperations = 2.0 * kBlasCheckSize * kBlasCheckSize * kBlasCheckSize;
  const torch::NoGradGuard no_grad;
  const torch::Tensor a = torch::full({kBlasCheckSize, kBlasCheckSize}, 0.5F);
  const torch::Tensor b = torch::full({kBlasCheckSize, kBlasCheckSize}, 0.25F);
  torch::Tensor product = torch::empty_like(a);
  double best_seconds = 1e9;
  for (int i = 0; i < kTries; ++i) {
    const double start = ThreadSeconds();
    torch::mm_out(product, a, b);
    best_seconds = std::min(best_seconds, ThreadSeconds() - start);
  }
  return {kOperations / best_seconds * 1e-9, BlasLibrary()};
}

Status CheckBlasSpeed(const BlasSpeed& speed) {
  if (speed.gflops >= kBlasSpeedMin) return {};
  return Fail(fmt::format(
      "Matrix products run at {:.1f} GFLOP/s in one thread, below the {:.0f} that training needs; "
      "they come from {}. Install OpenBLAS (package libopenblas0-pthread), and choose it with "
      "update-alternatives where several are installed; --allow-slow-blas trains regardless.",
      speed.gflops, kBlasSpeedMin, speed.library));
}

void UseOneThreadPerCaller() {
  at::set_num_threads(1);
  // Asked for by name, because which BLAS is loaded is decided when the program starts.
  using SetThreads = void (*)(int);
  void* const set_threads = dlsym(RTLD_DEFAULT, "openblas_set_num_threads");
  if (set_threads != nullptr) reinterpret_cast<SetThreads>(set_threads)(1);
}

}  // namespace minke::train

// The BLAS that libtorch found at run time: with the reference library training takes forty times
// as long, and nothing else would say so.
#pragma once

#include <string>

#include "core/result.h"

namespace minke::train {

inline constexpr double kBlasSpeedMin = 20;  // 1e9 floating-point operations a second, one thread
inline constexpr int64_t kBlasCheckSize = 512;  // rows and columns of the timed product

struct BlasSpeed {
  double gflops = 0;    // of one thread's processor time
  std::string library;  // the file that sgemm comes from; "?" where the system does not say
};
BlasSpeed MeasureBlas();

// An error that names the speed, the library and the package below kBlasSpeedMin.
Status CheckBlasSpeed(const BlasSpeed& speed);

// Products run in the thread that asks for them, here and in BLAS. Replicas use all processors.
void UseOneThreadPerCaller();

}  // namespace minke::train

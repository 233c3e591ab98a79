// Row-major matrix products for the fused functions: OpenBLAS, on the calling thread. Whoever
// starts a program sets OpenBLAS to one thread.
#pragma once

#include <cstdint>

namespace minke::train {

// A matrix inside a larger one: `stride` floats from row to row.
struct ConstMatrix {
  const float* data = nullptr;
  int64_t stride = 0;
};
struct Matrix {
  float* data = nullptr;
  int64_t stride = 0;
};

// c = a b^T + beta c. a: [m, k]; b: [n, k]; c: [m, n].
void GemmNt(int64_t m, int64_t n, int64_t k, ConstMatrix a, ConstMatrix b, float beta, Matrix c);
// c = a b + beta c. a: [m, k]; b: [k, n]; c: [m, n].
void GemmNn(int64_t m, int64_t n, int64_t k, ConstMatrix a, ConstMatrix b, float beta, Matrix c);
// c = a^T b + beta c. a: [k, m]; b: [k, n]; c: [m, n].
void GemmTn(int64_t m, int64_t n, int64_t k, ConstMatrix a, ConstMatrix b, float beta, Matrix c);

}  // namespace minke::train

#include "train/gemm.h"

#include <cblas.h>

namespace minke::train {

namespace {

void Gemm(CBLAS_TRANSPOSE transpose_a, CBLAS_TRANSPOSE transpose_b, int64_t m, int64_t n, int64_t k,
          ConstMatrix a, ConstMatrix b, float beta, Matrix c) {
  if (m == 0 || n == 0) return;
  cblas_sgemm(CblasRowMajor, transpose_a, transpose_b, static_cast<blasint>(m),
              static_cast<blasint>(n), static_cast<blasint>(k), 1.0f, a.data,
              static_cast<blasint>(a.stride), b.data, static_cast<blasint>(b.stride), beta, c.data,
              static_cast<blasint>(c.stride));
}

}  // namespace

void GemmNt(int64_t m, int64_t n, int64_t k, ConstMatrix a, ConstMatrix b, float beta, Matrix c) {
  Gemm(CblasNoTrans, CblasTrans, m, n, k, a, b, beta, c);
}

void GemmNn(int64_t m, int64_t n, int64_t k, ConstMatrix a, ConstMatrix b, float beta, Matrix c) {
  Gemm(CblasNoTrans, CblasNoTrans, m, n, k, a, b, beta, c);
}

void GemmTn(int64_t m, int64_t n, int64_t k, ConstMatrix a, ConstMatrix b, float beta, Matrix c) {
  Gemm(CblasTrans, CblasNoTrans, m, n, k, a, b, beta, c);
}

}  // namespace minke::train

// minke bench kernels: the products of the engine on the shapes of the released model, against the
// machine's ceilings in the same run.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "bench/machine.h"
#include "core/json.h"
#include "core/result.h"
#include "kernels/kernels.h"

namespace minke {

inline constexpr int64_t kBenchRowsMax = 4096;             // rows of activations
inline constexpr int64_t kBenchDimensionMax = 1 << 20;     // rows or columns of a matrix
inline constexpr int64_t kBenchMemoryMin = 64 << 20;       // bytes of weights
inline constexpr int64_t kBenchMemoryDefault = 3LL << 29;  // 1.5 GiB: beyond every cache
// Cases of more multiply-adds than this take seconds a sample and are left out by default.
inline constexpr int64_t kBenchWorkMax = 20'000'000'000;

struct MatrixShape {
  int64_t rows = 0;  // outputs
  int64_t cols = 0;  // inputs
};
// "2304x5120": outputs by inputs, both multiples of 32. Errors say what is wrong.
Result<MatrixShape> ParseMatrixShape(const std::string& text);

// "fp4", "fp8", "bf16".
const char* BenchFormatName(WeightFormat format);
// The matrices of that format in a layer of the released model and its head (architecture.md 2.2).
std::vector<MatrixShape> ReleasedShapes(WeightFormat format);

struct KernelBenchOptions {
  std::vector<WeightFormat> formats;
  std::vector<MatrixShape> shapes;  // empty: ReleasedShapes() of each format
  std::vector<int64_t> rows;        // rows of activations
  int64_t rounds = kRoundsMin;
  int64_t memory_bytes = kBenchMemoryDefault;  // of weights; matrices are walked in turn
  int threads = 1;
  uint64_t seed = 1;
  std::function<void(int64_t done, int64_t total)> progress;  // may be empty
};

// One product. The bound is the time in which the weights can be read or the multiply-adds done,
// whichever takes longer.
struct KernelBenchCase {
  WeightFormat format = WeightFormat::kBf16;
  MatrixShape shape;
  int64_t rows = 1;
  int64_t copies = 0;  // matrices that are walked in turn
  Samples products_per_second;

  int64_t weight_bytes() const;
  int64_t multiply_adds() const { return rows * shape.rows * shape.cols; }
};

struct KernelBenchReport {
  std::string kernels;  // "AVX2"
  std::vector<KernelBenchCase> cases;
  Json machine;
  std::string machine_text;
  double bytes_per_second = 0;
  double multiply_adds_per_second = 0;
  double foreign_cpu_share = 0;

  bool IsReadBound(const KernelBenchCase& one) const;
  // The bound's time over the measured one: 1 is the machine's limit.
  double Ratio(const KernelBenchCase& one) const;
  Json ToJson() const;
  std::string ToText() const;
};

// Errors: memory, shapes that do not fit into memory_bytes.
Result<KernelBenchReport> MeasureKernels(const Kernels& kernels, const KernelBenchOptions& options);

}  // namespace minke

#include "bench/kernel_bench.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "bench/measured_memory.h"
#include "bench/random_weights.h"

namespace minke {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int64_t kGroup = 32;             // columns of a scale
constexpr double kSampleSeconds = 0.1;     // at least, of one case in a round
constexpr double kWeightDeviation = 0.02;  // about fan_in^-0.5 (architecture.md, appendix D)

int64_t CodeBytes(WeightFormat format, MatrixShape shape) {
  const int64_t values = shape.rows * shape.cols;
  return format == WeightFormat::kFp4Group32  ? values / 2
         : format == WeightFormat::kFp8Tile32 ? values
                                              : values * 2;
}

int64_t ScaleBytes(WeightFormat format, MatrixShape shape) {
  const int64_t groups = shape.rows * (shape.cols / kGroup);
  return format == WeightFormat::kFp4Group32  ? groups
         : format == WeightFormat::kFp8Tile32 ? groups / kGroup
                                              : 0;
}

int64_t Aligned(int64_t bytes) {
  constexpr auto kAlignment = static_cast<int64_t>(kAlignmentBytes);
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

// Weights of one format, in huge pages: codes first, scales behind them. Matrices of any shape are
// laid over the same bytes.
class WeightMemory {
 public:
  static Result<WeightMemory> Make(WeightFormat format, int64_t bytes, uint64_t seed) {
    WeightMemory memory;
    memory.format_ = format;
    memory.memory_ = TRY(MapMeasuredMemory(static_cast<size_t>(bytes), PageSize::kHuge));
    const std::span<std::byte> all = memory.memory_.bytes();
    const std::span<uint8_t> raw(reinterpret_cast<uint8_t*>(all.data()), all.size());
    // FP4 has one byte of scales for 16 of codes, and FP8 fewer.
    const auto code_bytes = static_cast<size_t>(
        ScaleBytes(format, {kGroup, kGroup}) == 0 ? bytes : bytes / 17 / 64 * 64 * 16);
    memory.codes_ = raw.first(code_bytes);
    memory.scales_ = raw.subspan(code_bytes);
    Random random({seed, static_cast<uint64_t>(format)});
    if (format == WeightFormat::kBf16) {
      FillBf16(Bf16Normal(0, kWeightDeviation), random,
               {reinterpret_cast<uint16_t*>(raw.data()), raw.size() / 2});
      return memory;
    }
    const QuantizedNormal normal = format == WeightFormat::kFp4Group32
                                       ? Fp4Normal(kWeightDeviation)
                                       : Fp8Normal(kWeightDeviation);
    FillCodes(normal.codes, random, memory.codes_);
    FillScales(normal.scale, random, memory.scales_);
    return memory;
  }

  int64_t Copies(MatrixShape shape) const {
    int64_t copies = static_cast<int64_t>(codes_.size()) / Aligned(CodeBytes(format_, shape));
    const int64_t scale_bytes = ScaleBytes(format_, shape);
    if (scale_bytes > 0) {
      copies = std::min(copies, static_cast<int64_t>(scales_.size()) / Aligned(scale_bytes));
    }
    return copies;
  }
  Weight Copy(MatrixShape shape, int64_t index) const {
    Weight weight;
    weight.format = format_;
    weight.data = reinterpret_cast<const std::byte*>(codes_.data()) +
                  index * Aligned(CodeBytes(format_, shape));
    if (ScaleBytes(format_, shape) > 0) {
      weight.scales = scales_.data() + index * Aligned(ScaleBytes(format_, shape));
    }
    weight.rows = shape.rows;
    weight.cols = shape.cols;
    return weight;
  }

 private:
  WeightFormat format_ = WeightFormat::kBf16;
  PageMemory memory_;
  std::span<uint8_t> codes_;
  std::span<uint8_t> scales_;
};

// Activations as the model has them in front of a product: normal numbers, quantized (0.3).
Matrix<float> Activations(const Kernels& kernels, int64_t rows, int64_t cols, bool quantize,
                          ThreadPool& pool) {
  Matrix<float> x(rows, cols);
  const std::vector<uint16_t> table = Bf16Normal(0, 1);
  Random random({static_cast<uint64_t>(rows), static_cast<uint64_t>(cols)});
  for (int64_t i = 0; i < rows * cols; ++i) {
    x.data()[i] = DecodeBf16(table[static_cast<size_t>(random.Below(1 << 16))]);
  }
  if (quantize) kernels.quantize_q8(x.view(), x.view(), pool);
  return x;
}

// A case with what it works on.
struct RunningCase {
  KernelBenchCase* result;
  Matrix<float> x;
  Matrix<float> y;
  int64_t next = 0;
};

void TakeSample(const Kernels& kernels, const WeightMemory& memory, RunningCase& running,
                ThreadPool& pool) {
  KernelBenchCase& result = *running.result;
  int64_t products = 0;
  double seconds = 0;
  const Clock::time_point start = Clock::now();
  do {
    kernels.matmul(running.x.view(), memory.Copy(result.shape, running.next), running.y.view(),
                   pool);
    running.next = (running.next + 1) % result.copies;
    ++products;
    seconds = std::chrono::duration<double>(Clock::now() - start).count();
  } while (seconds < kSampleSeconds);
  result.products_per_second.Add(static_cast<double>(products) / seconds);
}

std::vector<KernelBenchCase> CasesOf(const KernelBenchOptions& options) {
  std::vector<KernelBenchCase> cases;
  for (const WeightFormat format : options.formats) {
    for (const MatrixShape shape :
         options.shapes.empty() ? ReleasedShapes(format) : options.shapes) {
      for (const int64_t rows : options.rows) {
        KernelBenchCase one{format, shape, rows, 0, {}};
        if (options.shapes.empty() && one.multiply_adds() > kBenchWorkMax) continue;
        cases.push_back(std::move(one));
      }
    }
  }
  return cases;
}

Status MeasureFormat(const Kernels& kernels, const KernelBenchOptions& options,
                     std::span<KernelBenchCase> cases, Ceilings& ceilings, ThreadPool& pool,
                     const std::function<void()>& sampled) {
  const WeightFormat format = cases.front().format;
  const WeightMemory memory = TRY(WeightMemory::Make(format, options.memory_bytes, options.seed));
  std::vector<RunningCase> running;
  for (KernelBenchCase& one : cases) {
    one.copies = memory.Copies(one.shape);
    if (one.copies == 0) {
      return Fail(ErrorCode::kLimit,
                  fmt::format("A matrix of {} x {} in {} has {} bytes, but the weights have room "
                              "for {} in all; raise --memory.",
                              one.shape.rows, one.shape.cols, BenchFormatName(format),
                              one.weight_bytes(), options.memory_bytes));
    }
    running.push_back(
        {&one, Activations(kernels, one.rows, one.shape.cols, format != WeightFormat::kBf16, pool),
         Matrix<float>(one.rows, one.shape.rows), 0});
  }
  for (int64_t round = 0; round < options.rounds; ++round) {
    ceilings.Measure();
    for (RunningCase& one : running) {
      TakeSample(kernels, memory, one, pool);
      sampled();
    }
  }
  return {};
}

}  // namespace

Result<MatrixShape> ParseMatrixShape(const std::string& text) {
  MatrixShape shape;
  const size_t cross = text.find('x');
  const auto read = [&text](size_t begin, size_t end, int64_t* value) {
    const char* last = text.data() + end;
    const auto [stop, error] = std::from_chars(text.data() + begin, last, *value);
    return error == std::errc() && stop == last;
  };
  const bool whole = cross != std::string::npos && read(0, cross, &shape.rows) &&
                     read(cross + 1, text.size(), &shape.cols);
  const auto fits = [](int64_t value) {
    return value >= kGroup && value <= kBenchDimensionMax && value % kGroup == 0;
  };
  if (whole && fits(shape.rows) && fits(shape.cols)) return shape;
  return Fail(
      fmt::format("A shape is OUTPUTSxINPUTS, such as 2304x5120, both multiples of {} up "
                  "to {}; \"{}\" is not that.",
                  kGroup, kBenchDimensionMax, text.substr(0, 40)));
}

const char* BenchFormatName(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFp4Group32:
      return "fp4";
    case WeightFormat::kFp8Tile32:
      return "fp8";
    case WeightFormat::kBf16:
      return "bf16";
    case WeightFormat::kF32:
      return "f32";
  }
  return "";
}

std::vector<MatrixShape> ReleasedShapes(WeightFormat format) {
  switch (format) {
    case WeightFormat::kFp4Group32:  // w1 and w3, w2
      return {{2304, 5120}, {5120, 2304}};
    case WeightFormat::kFp8Tile32:
      // wq_a, wq_b, wkv, a group of wo_a, wo_b, the shared expert, the indexer's wq_b.
      return {{1280, 5120}, {32768, 1280}, {512, 5120},  {1024, 4096},
              {5120, 8192}, {2304, 5120},  {5120, 2304}, {4096, 1280}};
    case WeightFormat::kBf16:  // the head, the gate, the compressor
      return {{129280, 5120}, {384, 5120}, {512, 5120}};
    case WeightFormat::kF32:
      return {};
  }
  return {};
}

int64_t KernelBenchCase::weight_bytes() const {
  return CodeBytes(format, shape) + ScaleBytes(format, shape);
}

bool KernelBenchReport::IsReadBound(const KernelBenchCase& one) const {
  return static_cast<double>(one.weight_bytes()) / bytes_per_second >=
         static_cast<double>(one.multiply_adds()) / multiply_adds_per_second;
}

double KernelBenchReport::Ratio(const KernelBenchCase& one) const {
  const double bound_seconds =
      std::max(static_cast<double>(one.weight_bytes()) / bytes_per_second,
               static_cast<double>(one.multiply_adds()) / multiply_adds_per_second);
  return bound_seconds * one.products_per_second.Median();
}

Json KernelBenchReport::ToJson() const {
  JsonArray list;
  for (const KernelBenchCase& one : cases) {
    const double rate = one.products_per_second.Median();
    Json json;
    json.Set("format", BenchFormatName(one.format));
    json.Set("outputs", one.shape.rows);
    json.Set("inputs", one.shape.cols);
    json.Set("rows", one.rows);
    json.Set("seconds", 1 / rate);
    json.Set("weight_bytes_per_second", rate * static_cast<double>(one.weight_bytes()));
    json.Set("multiply_adds_per_second", rate * static_cast<double>(one.multiply_adds()));
    json.Set("bound", IsReadBound(one) ? "read" : "multiply_adds");
    json.Set("ratio", Ratio(one));
    json.Set("products_per_second", SamplesJson(one.products_per_second));
    json.Set("matrices", one.copies);
    list.push_back(std::move(json));
  }
  Json json;
  json.Set("kernels", kernels);
  json.Set("machine", machine);
  json.Set("cases", std::move(list));
  return json;
}

std::string KernelBenchReport::ToText() const {
  std::string text = machine_text;
  text += fmt::format("kernels: {}\n{:<6}  {:>13}  {:>5}  {:>11}  {:>11}  {:>11}  {:<13}  {:>6}\n",
                      kernels, "format", "matrix", "rows", "time", "weights", "mult-adds", "bound",
                      "ratio");
  for (const KernelBenchCase& one : cases) {
    const double rate = one.products_per_second.Median();
    text += fmt::format("{:<6}  {:>13}  {:>5}  {:>8.3f} ms  {:>11}  {:>11}  {:<13}  {:>4.0f} %\n",
                        BenchFormatName(one.format),
                        fmt::format("{}x{}", one.shape.rows, one.shape.cols), one.rows, 1000 / rate,
                        RateText(rate * static_cast<double>(one.weight_bytes()), "B/s"),
                        RateText(rate * static_cast<double>(one.multiply_adds()), "/s"),
                        IsReadBound(one) ? "read" : "multiply-adds", 100 * Ratio(one));
  }
  return text;
}

Result<KernelBenchReport> MeasureKernels(const Kernels& kernels,
                                         const KernelBenchOptions& options) {
  KernelBenchReport report;
  report.kernels = &kernels == &FastKernels() ? FastTargetName() : kernels.name;
  report.cases = CasesOf(options);
  if (report.cases.empty()) {
    return Fail(
        fmt::format("No case is left: the released shapes with these --rows all have more "
                    "than {} multiply-adds; name a --shape.",
                    kBenchWorkMax));
  }
  ThreadPool pool(options.threads);
  Ceilings ceilings = TRY(Ceilings::Create(WorkingSetBytes(kBandwidthBytes), pool));
  const auto total = static_cast<int64_t>(report.cases.size()) * options.rounds;
  int64_t done = 0;
  const auto sampled = [&] {
    ++done;
    if (options.progress) options.progress(done, total);
  };
  const std::span<KernelBenchCase> cases(report.cases);
  for (size_t begin = 0; begin < cases.size();) {
    size_t end = begin;
    while (end < cases.size() && cases[end].format == cases[begin].format) ++end;
    TRY_STATUS(MeasureFormat(kernels, options, cases.subspan(begin, end - begin), ceilings, pool,
                             sampled));
    begin = end;
  }
  report.machine = ceilings.ToJson();
  report.machine_text = ceilings.ToText();
  report.bytes_per_second = ceilings.bytes_per_second();
  report.multiply_adds_per_second = ceilings.multiply_adds_per_second();
  report.foreign_cpu_share = ceilings.foreign_cpu_share();
  return report;
}

}  // namespace minke

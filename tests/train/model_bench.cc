// Speed of the model's forward and backward pass on one thread: tokens per CPU second, and what the
// parts cost. `minke-train-bench [tokens a row] [rows] [steps]`.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "tests/train/nano_config.h"
#include "train/attention.h"
#include "train/fake_quantization.h"
#include "train/hyper_connections.h"
#include "train/linear.h"
#include "train/model.h"
#include "train/moe.h"
#include "train/rms_norm.h"
#include "train/rope.h"

extern "C" void openblas_set_num_threads(int count);  // of cblas.h

namespace minke::train {
namespace {

using torch::Tensor;

constexpr double kMillisecond = 1e-3;

double CpuSeconds() {
  timespec time{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
}

Tensor Random(std::vector<int64_t> shape) {
  return torch::randn(shape).set_requires_grad(true);
}

// Median CPU milliseconds of forward and backward.
void Report(const std::string& name, int repeats, const std::function<Tensor()>& forward) {
  std::vector<double> forwards;
  std::vector<double> backwards;
  for (int i = 0; i < 5; ++i) {
    const double begin = CpuSeconds();
    const Tensor y = forward();
    const double middle = CpuSeconds();
    y.backward(torch::ones_like(y));
    forwards.push_back(middle - begin);
    backwards.push_back(CpuSeconds() - middle);
  }
  std::sort(forwards.begin(), forwards.end());
  std::sort(backwards.begin(), backwards.end());
  const double f = forwards[2] / kMillisecond * repeats;
  const double b = backwards[2] / kMillisecond * repeats;
  std::printf("  %-34s x %2d: forward %7.1f  backward %7.1f  both %7.1f ms\n", name.c_str(),
              repeats, f, b, f + b);
}

void ReportParts(const ModelConfig& config, int64_t batch, int64_t tokens) {
  const int64_t n = batch * tokens;
  const int64_t d = config.hidden_size;
  const Tensor streams = Random({n, 4 * d});
  const Tensor pre = Random({n, 4});
  const HyperConnectionTensors hc{Random({24, 4 * d}), Random({24}), Random({3})};
  const Tensor norm = Random({d});
  const HyperConnectionOptions options{4, 20, 1e-6, 1e-6};
  Report("hyper-connection read", 12, [&] {
    const HyperConnectionRead read = ReadStreams(streams, pre, hc, norm, options);
    return torch::cat({read.input, read.pre, read.post, read.comb}, 1);
  });
  const Tensor y = Random({n, d});
  const Tensor post = Random({n, 4});
  const Tensor comb = Random({n, 16});
  Report("hyper-connection write", 12, [&] { return WriteStreams(streams, y, post, comb); });
  const MoeTensors moe{Random({8, d}),     torch::zeros({8}),  Random({8, 64, d}),
                       Random({8, d, 64}), Random({8, 64, d}), Random({64, d}),
                       Random({d, 64}),    Random({64, d})};
  Report("mixture of experts", 6,
         [&] { return Moe(y, moe, {.selected_count = 2, .swiglu_limit = 10}, Tensor()); });
  const Tensor q = Random({batch, tokens, 256});
  const Tensor kv = Random({batch, tokens, 64});
  const Tensor sink = Random({4});
  AttentionMask mask;
  mask.window = 32;
  Report("attention, window", 2, [&] { return Attend(q, kv, Tensor(), sink, mask, nullptr); });
  mask.ratio = 1;
  const Tensor rows = Random({batch, tokens, 64});
  Report("attention, ratio 1, dense", 2, [&] { return Attend(q, kv, rows, sink, mask, nullptr); });
  mask.selected = torch::full({batch, tokens, 32}, -1, torch::kInt32);
  for (int64_t b = 0; b < batch; ++b) {
    for (int64_t t = 0; t < tokens; ++t) {
      for (int64_t i = 0; i < std::min<int64_t>(32, t + 1); ++i) {
        mask.selected.data_ptr<int32_t>()[(b * tokens + t) * 32 + i] = static_cast<int32_t>(i);
      }
    }
  }
  Report("attention, ratio 1, 32 of them", 2,
         [&] { return Attend(q, kv, rows, sink, mask, nullptr); });
  const Tensor x = Random({n, d});
  const Tensor wq_a = Random({96, d});
  const Tensor qa = Random({n, 96});
  const Tensor wq_b = Random({256, 96});
  const Tensor wkv = Random({64, d});
  const Tensor wo_a = Random({128, 128});
  const Tensor wo_b = Random({d, 128});
  Report("linear wq_a", 6, [&] { return Linear(x, wq_a); });
  Report("linear wq_b", 6, [&] { return Linear(qa, wq_b); });
  Report("linear wkv", 6, [&] { return Linear(x, wkv); });
  const Tensor o = Random({n, 256});
  Report("grouped wo_a", 6, [&] { return GroupedLinear(o, wo_a, 2); });
  Report("linear wo_b", 6, [&] { return Linear(x, wo_b); });
  const Tensor table = MakeRopeTable(std::vector<float>(8, 0.1f), tokens, 1);
  Report("rope of 4 heads", 12, [&] { return Rope(q, 64, table, false); });
  const Tensor weight = Random({64});
  Report("norm of 64", 18, [&] { return RmsNorm(kv, weight, 1e-6); });
  Report("Q8 of 128", 18, [&] { return FakeQuantizeRows(x, RowRounding::kFp8Group32); });
  Report("Q4K of 64", 2, [&] { return FakeQuantizeRows(kv, RowRounding::kFp4Group16); });
}

void ReportPass(const std::string& name, Model& model, const Tensor& ids, int64_t steps,
                const ForwardOptions& options) {
  std::vector<double> forwards;
  std::vector<double> totals;
  for (int64_t step = 0; step < steps; ++step) {
    for (Parameter& parameter : model.parameters()) parameter.value.mutable_grad() = Tensor();
    const double begin = CpuSeconds();
    const ForwardResult result = model.Forward(ids, options);
    // The head on a quarter of the positions, as in training.
    const Tensor hidden = result.hidden.view({-1, result.hidden.size(2)});
    const int64_t supervised = hidden.size(0) / 4;
    const Tensor logits = model.Logits(hidden.narrow(0, 0, supervised), options.quantization);
    Tensor loss =
        torch::nn::functional::cross_entropy(logits, ids.view({-1}).narrow(0, 0, supervised));
    if (result.index_loss.defined()) loss = loss + result.index_loss;
    const double middle = CpuSeconds();
    loss.backward();
    totals.push_back(CpuSeconds() - begin);
    forwards.push_back(middle - begin);
  }
  std::sort(totals.begin(), totals.end());
  std::sort(forwards.begin(), forwards.end());
  const double total = totals[totals.size() / 2];
  std::printf("%-34s %7.0f tokens per CPU second (forward %.0f ms, backward %.0f ms)\n",
              name.c_str(), static_cast<double>(ids.numel()) / total,
              forwards[forwards.size() / 2] / kMillisecond,
              (total - forwards[forwards.size() / 2]) / kMillisecond);
}

void Run(int64_t tokens, int64_t batch, int64_t steps) {
  at::set_num_threads(1);
  openblas_set_num_threads(1);
  const ModelConfig config = testing::NanoConfig();
  auto model = Model::Create(config, testing::NanoTokenMap(), 1);
  CHECK(model.has_value(), model.error().message);
  const Tensor ids = torch::randint(8, config.vocab_size, {batch, tokens}, torch::kInt64);
  ForwardOptions options;
  ReportPass("dense", **model, ids, steps, options);
  options.distill = true;
  ReportPass("dense, index loss", **model, ids, steps, options);
  options.sparse = options.pool = true;
  ReportPass("sparse, pool, index loss", **model, ids, steps, options);
  options.quantization = Quantization::All();
  ReportPass("the same, quantized", **model, ids, steps, options);
  std::printf("parts of one step of %ld tokens:\n", static_cast<long>(batch * tokens));
  ReportParts(config, batch, tokens);
}

}  // namespace
}  // namespace minke::train

int main(int argc, char** argv) {
  const auto argument = [&](int i, int64_t fallback) {
    return argc > i ? static_cast<int64_t>(std::strtoll(argv[i], nullptr, 10)) : fallback;
  };
  minke::train::Run(argument(1, 256), argument(2, 8), argument(3, 5));
  return 0;
}

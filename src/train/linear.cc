#include "train/linear.h"

#include "core/result.h"
#include "train/gemm.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

struct GroupedFunction : torch::autograd::Function<GroupedFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& input, const Tensor& weight,
                        int64_t groups) {
    const Tensor x = input.contiguous();
    const int64_t in = weight.size(1);
    const int64_t out = weight.size(0) / groups;
    CHECK(x.size(-1) == groups * in);
    const int64_t rows = x.numel() / (groups * in);
    std::vector<int64_t> shape = x.sizes().vec();
    shape.back() = groups * out;
    Tensor y = torch::empty(shape);
    for (int64_t group = 0; group < groups; ++group) {
      GemmNt(rows, out, in, {x.data_ptr<float>() + group * in, groups * in},
             {weight.data_ptr<float>() + group * out * in, in}, 0.0f,
             {y.data_ptr<float>() + group * out, groups * out});
    }
    context->save_for_backward({x, weight});
    context->saved_data["groups"] = groups;
    return y;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const int64_t groups = context->saved_data["groups"].toInt();
    const Tensor dy = gradients[0].contiguous();
    const int64_t in = saved[1].size(1);
    const int64_t out = saved[1].size(0) / groups;
    const int64_t rows = saved[0].numel() / (groups * in);
    Tensor dx = torch::empty_like(saved[0]);
    Tensor dweight = torch::empty_like(saved[1]);
    for (int64_t group = 0; group < groups; ++group) {
      const ConstMatrix part{dy.data_ptr<float>() + group * out, groups * out};
      GemmNn(rows, in, out, part, {saved[1].data_ptr<float>() + group * out * in, in}, 0.0f,
             {dx.data_ptr<float>() + group * in, groups * in});
      GemmTn(out, in, rows, part, {saved[0].data_ptr<float>() + group * in, groups * in}, 0.0f,
             {dweight.data_ptr<float>() + group * out * in, in});
    }
    return {dx, dweight, Tensor()};
  }
};

}  // namespace

// One group: the same few calls, without the views and transposes of libtorch's own.
Tensor Linear(const Tensor& x, const Tensor& weight) {
  return GroupedFunction::apply(x, weight, int64_t{1});
}

Tensor GroupedLinear(const Tensor& x, const Tensor& weight, int64_t groups) {
  return GroupedFunction::apply(x, weight, groups);
}

}  // namespace minke::train

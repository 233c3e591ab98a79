#include "train/attention.h"

#include <algorithm>

#include "core/result.h"
#include "train/attention_blocks.h"

namespace minke::train {

namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// All blocks of a batch, with the place of their probabilities in one buffer.
struct PlacedBlock {
  AttentionBlock block;
  int64_t batch = 0;
  int64_t offset = 0;  // floats
};

struct Inputs {
  Tensor q;
  Tensor window_rows;
  Tensor compressed;
  Tensor sink;
  Tensor selected;
  int64_t window = 1;
  int64_t ratio = 0;
  std::vector<int64_t> window_from;
};

AttentionBlock SequenceBlock(const Inputs& in, int64_t batch) {
  const int64_t tokens = in.q.size(1);
  const int64_t dim = in.window_rows.size(2);
  AttentionBlock block;
  block.heads = in.sink.size(0);
  block.head_dim = dim;
  block.window = in.window;
  block.ratio = in.ratio;
  if (!in.window_from.empty()) block.window_from = in.window_from[static_cast<size_t>(batch)];
  block.q = in.q.data_ptr<float>() + batch * tokens * block.heads * dim;
  block.window_rows = in.window_rows.data_ptr<float>() + batch * tokens * dim;
  block.sink = in.sink.data_ptr<float>();
  if (in.ratio > 0) {
    block.compressed = in.compressed.data_ptr<float>() + batch * in.compressed.size(1) * dim;
  }
  if (in.selected.defined()) {
    block.slots = in.selected.size(2);
    block.selected = in.selected.data_ptr<int32_t>() + batch * tokens * block.slots;
  }
  return block;
}

// Blocks in order; returns the floats that their probabilities take.
int64_t PlaceBlocks(const Inputs& in, std::vector<PlacedBlock>& blocks) {
  const int64_t tokens = in.q.size(1);
  int64_t offset = 0;
  for (int64_t batch = 0; batch < in.q.size(0); ++batch) {
    AttentionBlock block = SequenceBlock(in, batch);
    for (block.first = 0; block.first < tokens; block.first += in.window) {
      block.count = std::min(in.window, tokens - block.first);
      blocks.push_back({block, batch, offset});
      offset += block.row_count() * block.columns();
    }
  }
  return offset;
}

// Sums a block's probabilities on compressed rows over its heads into mass [T, mass_columns].
void AddMass(const AttentionBlock& block, const float* probabilities, int64_t mass_columns,
             float* mass) {
  const int64_t columns = block.columns();
  for (int64_t row = 0; row < block.row_count(); ++row) {
    const float* p = probabilities + row * columns + block.key_count();
    float* target = mass + (block.first + row / block.heads) * mass_columns;
    for (int64_t i = 0; i < block.compressed_count(); ++i) target[i] += p[i];
  }
}

void AddMasses(const Inputs& in, const std::vector<PlacedBlock>& blocks, const float* probabilities,
               AttentionMass& mass) {
  if (in.ratio == 0) return;
  if (mass.rows.defined()) {
    const int64_t columns = mass.rows.size(2);
    for (const PlacedBlock& placed : blocks) {
      AddMass(placed.block, probabilities + placed.offset, columns,
              mass.rows.data_ptr<float>() + placed.batch * mass.rows.size(1) * columns);
    }
  }
  if (!mass.measured_rows.defined()) return;
  const int64_t columns = mass.measured_rows.size(1);
  std::vector<float> scratch(static_cast<size_t>(2 * in.window + columns + 1));
  for (size_t i = 0; i < mass.measured.size(); ++i) {
    const MeasuredQuery& query = mass.measured[i];
    MeasureQuery(SequenceBlock(in, query.batch), query.position, scratch.data(),
                 mass.measured_rows.data_ptr<float>() + static_cast<int64_t>(i) * columns);
  }
}

struct AttendFunction : torch::autograd::Function<AttendFunction> {
  static Tensor forward(AutogradContext* context, const Tensor& q, const Tensor& window_rows,
                        const Tensor& compressed, const Tensor& sink, const AttentionMask* mask,
                        AttentionMass* mass) {
    const Inputs in{q,           window_rows,      compressed, sink, mask->selected, mask->window,
                    mask->ratio, mask->window_from};
    std::vector<PlacedBlock> blocks;
    Tensor probabilities = torch::empty({PlaceBlocks(in, blocks)});
    Tensor sink_probabilities = torch::empty({q.size(0), q.size(1), sink.size(0)});
    Tensor out = torch::empty_like(q);
    for (const PlacedBlock& placed : blocks) {
      AttendBlock(placed.block, probabilities.data_ptr<float>() + placed.offset,
                  sink_probabilities.data_ptr<float>() + placed.batch * q.size(1) * sink.size(0),
                  out.data_ptr<float>() + placed.batch * q.size(1) * q.size(2));
    }
    if (mass != nullptr) AddMasses(in, blocks, probabilities.data_ptr<float>(), *mass);
    context->save_for_backward(
        {q, window_rows, compressed, sink, in.selected, probabilities, sink_probabilities});
    context->saved_data["window_from"] = in.window_from;
    context->saved_data["window"] = in.window;
    context->saved_data["ratio"] = in.ratio;
    return out;
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const variable_list saved = context->get_saved_variables();
    const Inputs in{saved[0],
                    saved[1],
                    saved[2],
                    saved[3],
                    saved[4],
                    context->saved_data["window"].toInt(),
                    context->saved_data["ratio"].toInt(),
                    context->saved_data["window_from"].toIntVector()};
    const Tensor dout = gradients[0].contiguous();
    Tensor dq = torch::empty_like(in.q);
    Tensor dwindow = torch::zeros_like(in.window_rows);
    Tensor dsink = torch::zeros_like(in.sink);
    Tensor dcompressed;
    if (in.ratio > 0) dcompressed = torch::zeros_like(in.compressed);
    std::vector<PlacedBlock> blocks;
    PlaceBlocks(in, blocks);
    std::vector<float> scratch;
    const int64_t tokens = in.q.size(1);
    const int64_t dim = in.window_rows.size(2);
    for (const PlacedBlock& placed : blocks) {
      const auto floats = static_cast<size_t>(placed.block.row_count() * placed.block.columns());
      if (scratch.size() < floats) scratch.resize(floats);
      const int64_t first_query = placed.batch * tokens;
      const AttentionBlockGradients out{
          dq.data_ptr<float>() + first_query * in.q.size(2),
          dwindow.data_ptr<float>() + first_query * dim,
          in.ratio == 0
              ? nullptr
              : dcompressed.data_ptr<float>() + placed.batch * in.compressed.size(1) * dim,
          dsink.data_ptr<float>()};
      AttendBlockBackward(placed.block, saved[5].data_ptr<float>() + placed.offset,
                          saved[6].data_ptr<float>() + first_query * in.sink.size(0),
                          dout.data_ptr<float>() + first_query * in.q.size(2), scratch.data(), out);
    }
    return {dq, dwindow, dcompressed, dsink, Tensor(), Tensor()};
  }
};

}  // namespace

Tensor Attend(const Tensor& q, const Tensor& window_rows, const Tensor& compressed,
              const Tensor& sink, const AttentionMask& mask, AttentionMass* mass) {
  CHECK(mask.ratio == 0 || compressed.defined());
  CHECK(mask.window_from.empty() || static_cast<int64_t>(mask.window_from.size()) == q.size(0));
  // libtorch takes no undefined tensor as an input of a function.
  const Tensor rows = mask.ratio > 0 ? compressed.contiguous() : torch::empty({0});
  return AttendFunction::apply(q.contiguous(), window_rows.contiguous(), rows, sink, &mask, mass);
}

}  // namespace minke::train

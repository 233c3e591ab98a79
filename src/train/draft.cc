#include "train/draft.h"

#include <cmath>

#include "core/result.h"
#include "train/fake_quantization.h"
#include "train/hyper_connections.h"
#include "train/linear.h"
#include "train/moe.h"
#include "train/rms_norm.h"
#include "train/rope.h"

namespace minke::train {

namespace {

using torch::Tensor;

// One call's proposals: A anchors, blocks of n tokens.
class DraftPass {
 public:
  DraftPass(const ModelConfig& config, const ModelTensors& tensors, const DraftInputs& inputs,
            const Quantization& quantization)
      : config_(config),
        tensors_(tensors),
        inputs_(inputs),
        quantization_(quantization),
        anchors_(static_cast<int64_t>(inputs.anchors->size())),
        block_(config.dspark_block_size),
        tokens_(inputs.ids.size(1)) {}

  DraftResult Run();

 private:
  void PlaceBlocks();
  // The context rows of a stage, [A, W, head_dim] (9.2). mx: [B, T, d].
  Tensor Context(const LayerTensors& stage, const Tensor& mx) const;
  Tensor Attention(const LayerTensors& stage, const Tensor& mx, const Tensor& u) const;
  Tensor WindowRows(const LayerTensors& stage, const Tensor& u, const Tensor& table) const;
  // Proposals of the hidden states [A * n, d], with the tokens of the row before each of them.
  void Propose(const Tensor& hidden, DraftResult& result) const;
  Tensor Round(const Tensor& x) const {
    return quantization_.activations ? FakeQuantizeRows(x, RowRounding::kFp8Group32) : x;
  }

  const ModelConfig& config_;
  const ModelTensors& tensors_;
  const DraftInputs& inputs_;
  const Quantization& quantization_;
  int64_t anchors_;
  int64_t block_;
  int64_t tokens_;
  Tensor table_;           // rotations of the row's positions
  Tensor block_table_;     // of the blocks' positions, [A * n, pairs, 2]
  Tensor context_places_;  // int64 [A, W]: rows of [B * T]
  Tensor context_exists_;  // bool [A, W]
  Tensor block_tokens_;    // int64 [A, n]: t_{p+1} and noise
  Tensor before_;          // int64 [A, n]: the tokens before the proposals, t_{p+1} ...
};

void DraftPass::PlaceBlocks() {
  const int64_t window = config_.sliding_window;
  table_ = MakeRopeTable(*inputs_.frequencies, tokens_, 1);
  context_places_ = torch::zeros({anchors_, window}, torch::kInt64);
  context_exists_ = torch::zeros({anchors_, window}, torch::kBool);
  block_tokens_ = torch::full({anchors_, block_}, config_.dspark_noise_token_id, torch::kInt64);
  before_ = torch::empty({anchors_, block_}, torch::kInt64);
  std::vector<int64_t> positions;
  for (int64_t a = 0; a < anchors_; ++a) {
    const DraftAnchor& anchor = (*inputs_.anchors)[static_cast<size_t>(a)];
    CHECK(anchor.position >= 0 && anchor.position + block_ + 1 < tokens_);
    const int64_t* ids = inputs_.ids.data_ptr<int64_t>() + anchor.batch * tokens_;
    for (int64_t i = 0; i < window; ++i) {
      const int64_t position = anchor.position - window + 1 + i;
      if (position < 0) continue;
      context_places_.data_ptr<int64_t>()[a * window + i] = anchor.batch * tokens_ + position;
      context_exists_.data_ptr<bool>()[a * window + i] = true;
    }
    block_tokens_.data_ptr<int64_t>()[a * block_] = ids[anchor.position + 1];
    for (int64_t i = 0; i < block_; ++i) {
      before_.data_ptr<int64_t>()[a * block_ + i] = ids[anchor.position + 1 + i];
      positions.push_back(anchor.position + 1 + i);
    }
  }
  block_table_ = table_.index_select(0, torch::tensor(positions, torch::kInt64));
}

// u: [B, rows, d] -> [B, rows, head_dim].
Tensor DraftPass::WindowRows(const LayerTensors& stage, const Tensor& u,
                             const Tensor& table) const {
  const Tensor kv = RmsNorm(Linear(Round(u), stage.wkv), stage.kv_norm, config_.rms_norm_eps);
  return FakeQuantizeRows(Rope(kv, config_.head_dim, table, false),
                          quantization_.window ? RowRounding::kFp8Group32 : RowRounding::kNone);
}

Tensor DraftPass::Context(const LayerTensors& stage, const Tensor& mx) const {
  return WindowRows(stage, mx, table_)
      .reshape({-1, config_.head_dim})
      .index_select(0, context_places_.view({-1}))
      .view({anchors_, config_.sliding_window, config_.head_dim});
}

// u: [A * n, d] -> [A * n, d].
Tensor DraftPass::Attention(const LayerTensors& stage, const Tensor& mx, const Tensor& u) const {
  const Tensor x = u.unsqueeze(0);
  const Tensor latent = RmsNorm(Linear(Round(x), stage.wq_a), stage.q_norm, config_.rms_norm_eps);
  const Tensor q = Rope(Linear(Round(latent), stage.wq_b), config_.head_dim, block_table_, false);
  const Tensor rows = WindowRows(stage, x, block_table_);
  const Tensor attended =
      AttendDraft(q.view({anchors_, block_, -1}), Context(stage, mx), context_exists_,
                  rows.view({anchors_, block_, -1}), stage.attn_sink);
  const Tensor o =
      Rope(attended.reshape({1, anchors_ * block_, -1}), config_.head_dim, block_table_, true);
  const Tensor z = GroupedLinear(o, stage.wo_a, config_.o_groups);
  return Linear(Round(z), stage.wo_b).view({anchors_ * block_, config_.hidden_size});
}

void DraftPass::Propose(const Tensor& hidden, DraftResult& result) const {
  const DraftTensors& draft = tensors_.draft;
  const Tensor markov = torch::embedding(draft.markov_embed, before_.view({-1}));
  const Tensor normed = RmsNorm(hidden, draft.norm, config_.rms_norm_eps);
  result.logits = (Linear(normed, tensors_.head.detach()) + Linear(markov, draft.markov_head))
                      .view({anchors_, block_, config_.vocab_size});
  result.confidence =
      Linear(torch::cat({hidden, markov}, 1), draft.confidence).view({anchors_, block_});
}

DraftResult DraftPass::Run() {
  PlaceBlocks();
  const DraftTensors& draft = tensors_.draft;
  const int64_t hc_mult = config_.hc_mult;
  const double eps = config_.rms_norm_eps;
  const HyperConnectionOptions options{hc_mult, config_.hc_sinkhorn_iters, eps, config_.hc_eps};
  const MoeOptions moe{.selected_count = config_.dspark_num_experts_per_tok,
                       .routed_scaling_factor = config_.routed_scaling_factor,
                       .gate_temp = config_.gate_temp,
                       .norm_topk_prob = config_.norm_topk_prob,
                       .swiglu_limit = config_.swiglu_limit,
                       .quantize_activations = quantization_.activations};
  const Tensor mx =
      RmsNorm(Linear(Round(inputs_.taps.detach()), draft.main_proj), draft.main_norm, eps);
  DraftResult result;
  result.expert_loads = torch::zeros(
      {config_.num_nextn_predict_layers, config_.dspark_n_routed_experts}, torch::kFloat64);
  Tensor streams = torch::embedding(tensors_.embed.detach(), block_tokens_.view({-1}))
                       .repeat({1, hc_mult})
                       .contiguous();
  Tensor pre = torch::zeros({anchors_ * block_, hc_mult});
  pre.select(1, 0).fill_(1.0);
  for (size_t m = 0; m < draft.stages.size(); ++m) {
    const LayerTensors& stage = draft.stages[m];
    const HyperConnectionRead attn =
        ReadStreams(streams, pre, stage.hc_attn, stage.attn_norm, options);
    streams = WriteStreams(streams, Attention(stage, mx, attn.input), attn.post, attn.comb);
    const HyperConnectionRead ffn =
        ReadStreams(streams, attn.pre, stage.hc_ffn, stage.ffn_norm, options);
    const Tensor y = Moe(ffn.input, stage.ffn, moe, result.expert_loads[static_cast<int64_t>(m)]);
    streams = WriteStreams(streams, y, ffn.post, ffn.comb);
    pre = ffn.pre;
  }
  // The confidence head reads this before the norm.
  const Tensor hidden = (streams.view({anchors_ * block_, hc_mult, -1}) * pre.unsqueeze(2)).sum(1);
  Propose(hidden, result);
  return result;
}

}  // namespace

Tensor AttendDraft(const Tensor& q, const Tensor& context, const Tensor& exists,
                   const Tensor& block_rows, const Tensor& sink) {
  const int64_t anchors = q.size(0);
  const int64_t block = q.size(1);
  const int64_t heads = sink.size(0);
  const int64_t head_dim = block_rows.size(2);
  const Tensor keys = torch::cat({context, block_rows}, 1);
  const Tensor hidden =
      torch::cat({exists.logical_not(), torch::zeros({anchors, block}, torch::kBool)}, 1);
  const double scale = std::pow(static_cast<double>(head_dim), -0.5);
  const Tensor scores =
      (q.reshape({anchors, block * heads, head_dim}).bmm(keys.transpose(1, 2)) * scale)
          .masked_fill(hidden.unsqueeze(1), -INFINITY);
  const Tensor sinks = sink.repeat({block}).view({1, block * heads, 1}).expand({anchors, -1, 1});
  const Tensor shares = torch::softmax(torch::cat({scores, sinks}, 2), 2).slice(2, 0, keys.size(1));
  return shares.bmm(keys).view({anchors, block, heads * head_dim});
}

DraftResult RunDrafts(const ModelConfig& config, const ModelTensors& tensors,
                      const DraftInputs& inputs, const Quantization& quantization) {
  CHECK(!inputs.anchors->empty() && !tensors.draft.stages.empty());
  return DraftPass(config, tensors, inputs, quantization).Run();
}

}  // namespace minke::train

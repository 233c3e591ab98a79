#include "train/forward_pass.h"

#include <algorithm>
#include <cmath>

#include "core/result.h"
#include "model/state.h"
#include "train/compressor.h"
#include "train/draft.h"
#include "train/engram.h"
#include "train/fake_quantization.h"
#include "train/linear.h"
#include "train/moe.h"
#include "train/rms_norm.h"
#include "train/rope.h"

namespace minke::train {

namespace {

using torch::Tensor;

constexpr double kSmallestMeasuredMass = 1e-6;  // less attention on rows says nothing
constexpr int64_t kMeasuredStride = 16;  // tokens between measured queries where none are named

RowRounding RoundingOf(RowPrecision precision) {
  switch (precision) {
    case RowPrecision::kFloat:
      return RowRounding::kNone;
    case RowPrecision::kBf16:
      return RowRounding::kBf16;
    case RowPrecision::kQ4K:
      return RowRounding::kFp4Group16;
    case RowPrecision::kHarsh:
      return RowRounding::kTernaryGroup16;
  }
  return RowRounding::kNone;
}

}  // namespace

Tensor ForwardPass::RoundActivations(const Tensor& x) const {
  return options_.quantization.activations ? FakeQuantizeRows(x, RowRounding::kFp8Group32) : x;
}

void ForwardPass::MakeTables() {
  window_table_ = MakeRopeTable(tables_.window_frequencies, tokens_, 1);
  compressed_table_ = MakeRopeTable(tables_.compressed_frequencies, tokens_, 1);
}

bool ForwardPass::IsTapped(int64_t layer) const {
  const std::vector<int64_t>& tapped = config_.dspark_target_layer_ids;
  return std::find(tapped.begin(), tapped.end(), layer) != tapped.end();
}

void ForwardPass::ChooseMeasured() {
  if (!options_.distill) return;
  for (int64_t b = 0; b < batch_; ++b) {
    for (int64_t t = 0; t < tokens_; ++t) {
      if (IsMeasured(b, t)) measured_.push_back({b, t});
    }
  }
}

bool ForwardPass::IsMeasured(int64_t batch, int64_t position) const {
  if (!options_.measured.defined()) {
    return position >= 2 * config_.sliding_window && position % kMeasuredStride == 0;
  }
  return options_.measured.data_ptr<bool>()[batch * tokens_ + position];
}

Tensor ForwardPass::EngramWrite(int64_t layer, const Tensor& ids, const Tensor& streams) {
  const LayerTensors& tensors = tensors_.layers[static_cast<size_t>(layer)];
  const ModelTables::EngramHash& hash =
      tables_.engram[static_cast<size_t>(config_.layers[static_cast<size_t>(layer)].engram_index)];
  const int64_t history = config_.engram_max_ngram_size - 1;
  const int64_t columns = config_.engram_columns();
  Tensor rows = torch::empty({batch_ * tokens_, columns}, torch::kInt64);
  std::vector<int32_t> compressed(static_cast<size_t>(history + tokens_), kDeadHistory);
  for (int64_t b = 0; b < batch_; ++b) {
    for (int64_t t = 0; t < tokens_; ++t) {
      const int64_t id = ids.data_ptr<int64_t>()[b * tokens_ + t];
      compressed[static_cast<size_t>(history + t)] =
          tables_.engram_token_map[static_cast<size_t>(id)];
    }
    EngramRows(tables_, hash, compressed, history, config_.engram_n_heads,
               View<int64_t>(rows.data_ptr<int64_t>() + b * tokens_ * columns, tokens_, columns));
  }
  const Tensor embedded = LookUpEngram(tensors.engram_table, rows, options_.quantization.weights);
  const Tensor projected = Linear(RoundActivations(embedded), tensors.engram_wkv);
  return WriteEngram(streams, projected, tensors.engram_q_weight, tensors.engram_k_weight,
                     config_.rms_norm_eps);
}

// The compressed rows and index keys of a kv source (4.3, 4.4, 4.8). The index keys hang on the
// latent without sending gradients back.
void ForwardPass::Compress(int64_t layer, const Tensor& u) {
  const LayerTensors& tensors = tensors_.layers[static_cast<size_t>(layer)];
  const int64_t ratio = config_.layers[static_cast<size_t>(layer)].compress_ratio;
  Tensor latent = Linear(u, tensors.compressor_wkv);
  if (ratio > 1) latent = PoolGroups(latent, Linear(u, tensors.compressor_wgate), ratio);
  latent = RmsNorm(latent, tensors.compressor_norm, config_.rms_norm_eps);
  const Tensor table = MakeRopeTable(tables_.compressed_frequencies, tokens_ / ratio, ratio);
  Rows rows;
  rows.compressed = FakeQuantizeRows(Rope(latent, config_.head_dim, table, false),
                                     RoundingOf(options_.quantization.rows));
  if (options_.sparse || options_.distill) {
    const Tensor keys = RmsNorm(Linear(latent.detach(), tensors.index_wk), tensors.index_k_norm,
                                config_.rms_norm_eps);
    rows.index_keys = FakeQuantizeRows(
        Rope(keys, config_.index_head_dim, table, false),
        options_.quantization.index ? RowRounding::kFp4Group32 : RowRounding::kNone);
  }
  rows_.push_back(rows);
}

// Index queries and head weights (4.4), the lists where attention is sparse, and what the KL loss
// will need of the layers served.
void ForwardPass::OpenIndexGroup(int64_t layer, const Tensor& u, const Tensor& query_latent) {
  if (!options_.sparse && !options_.distill) return;
  const LayerTensors& tensors = tensors_.layers[static_cast<size_t>(layer)];
  const LayerRole& role = config_.layers[static_cast<size_t>(layer)];
  const Rows& rows = rows_[static_cast<size_t>(role.kv_source_index)];
  IndexGroup group;
  group.layer = layer;
  const Tensor queries = Linear(RoundActivations(query_latent.detach()), tensors.index_wq_b);
  group.vectors.queries =
      FakeQuantizeRows(Rope(queries, config_.index_head_dim, compressed_table_, false),
                       options_.quantization.index ? RowRounding::kFp4Group32 : RowRounding::kNone);
  const double scale = std::pow(static_cast<double>(config_.index_head_dim), -0.5) *
                       std::pow(static_cast<double>(config_.index_n_heads), -0.5);
  group.vectors.weights = Linear(u.detach(), tensors.index_weights) * scale;
  group.vectors.keys = rows.index_keys;
  group.vectors.ratio = role.compress_ratio;
  const bool has_pool = config_.candidate_source_layer_id >= 0;
  group.selection = {.topk = options_.index_topk > 0 ? options_.index_topk : config_.index_topk,
                     .block_size = has_pool ? config_.candidate_block_size : 0,
                     .topk_blocks = options_.candidate_topk_blocks > 0
                                        ? options_.candidate_topk_blocks
                                        : config_.candidate_topk_blocks,
                     .publishes = has_pool && role.publishes_candidates,
                     .restricted = has_pool && role.uses_candidates && options_.pool};
  const int64_t row_count = rows.compressed.size(1);
  if (options_.sparse) {
    if (group.selection.publishes) {
      pool_ = MakePool(batch_, tokens_, row_count, config_.candidate_block_size);
    }
    group.selected = SelectRows(group.vectors, group.selection, pool_);
  }
  if (options_.distill) {
    if (!options_.indexers_only) {
      group.mass.rows =
          torch::zeros({batch_, tokens_, options_.sparse ? group.selection.topk : row_count});
    }
    group.mass.measured = measured_;
    group.mass.measured_rows = torch::zeros({static_cast<int64_t>(measured_.size()), row_count});
  }
  groups_.push_back(std::move(group));
}

Tensor ForwardPass::AttendRows(int64_t layer, const Tensor& q, const Tensor& window_rows) {
  const LayerTensors& tensors = tensors_.layers[static_cast<size_t>(layer)];
  const LayerRole& role = config_.layers[static_cast<size_t>(layer)];
  AttentionMask mask;
  mask.window = config_.sliding_window;
  if (!options_.decoder_from.empty() && layer > config_.kv_source_layer_ids.back()) {
    mask.window_from = options_.decoder_from;
  }
  if (role.compress_ratio == 0 || options_.mask_compressed) {
    return Attend(q, window_rows, Tensor(), tensors.attn_sink, mask, nullptr);
  }
  mask.ratio = role.compress_ratio;
  IndexGroup* group = groups_.empty() ? nullptr : &groups_.back();
  if (options_.sparse) mask.selected = group->selected;
  return Attend(q, window_rows, rows_[static_cast<size_t>(role.kv_source_index)].compressed,
                tensors.attn_sink, mask, options_.distill ? &group->mass : nullptr);
}

Tensor ForwardPass::Attention(int64_t layer, const Tensor& input) {
  const LayerTensors& tensors = tensors_.layers[static_cast<size_t>(layer)];
  const LayerRole& role = config_.layers[static_cast<size_t>(layer)];
  const Tensor& table = QueryTable(role.compress_ratio);
  const Tensor u = input.view({batch_, tokens_, config_.hidden_size});
  const Tensor rounded = RoundActivations(u);
  const double eps = config_.rms_norm_eps;

  const Tensor kv = RmsNorm(Linear(rounded, tensors.wkv), tensors.kv_norm, eps);
  const Tensor window_rows = FakeQuantizeRows(
      Rope(kv, config_.head_dim, table, false),
      options_.quantization.window ? RowRounding::kFp8Group32 : RowRounding::kNone);
  if (role.mode == LayerMode::kFull) Compress(layer, u);

  const Tensor query_latent = RmsNorm(Linear(rounded, tensors.wq_a), tensors.q_norm, eps);
  const Tensor q =
      Rope(Linear(RoundActivations(query_latent), tensors.wq_b), config_.head_dim, table, false);
  if (role.index_source == layer) OpenIndexGroup(layer, u, query_latent);

  const Tensor o = Rope(AttendRows(layer, q, window_rows), config_.head_dim, table, true);
  const Tensor z = GroupedLinear(o, tensors.wo_a, config_.o_groups);
  return Linear(RoundActivations(z), tensors.wo_b).view({batch_ * tokens_, config_.hidden_size});
}

Tensor ForwardPass::FeedForward(int64_t layer, const Tensor& u, ForwardResult& result) {
  const MoeOptions options{.selected_count = config_.num_experts_per_tok,
                           .routed_scaling_factor = config_.routed_scaling_factor,
                           .gate_temp = config_.gate_temp,
                           .norm_topk_prob = config_.norm_topk_prob,
                           .swiglu_limit = config_.swiglu_limit,
                           .quantize_activations = options_.quantization.activations};
  return Moe(u, tensors_.layers[static_cast<size_t>(layer)].ffn, options,
             result.expert_loads[layer]);
}

Tensor ForwardPass::MeasuredTarget(const IndexGroup& group) const {
  const bool sharpens = options_.indexers_only;
  const auto share = [&](const Tensor& rows) {
    if (!sharpens) return rows / rows.sum(1, true).clamp_min(kSmallestMeasuredMass);
    // Relative to the largest, because powers of small shares vanish.
    const Tensor powers =
        (rows / rows.amax(1, true).clamp_min(kSmallestMeasuredMass)).pow(options_.index_sharpness);
    return powers / powers.sum(1, true).clamp_min(kSmallestMeasuredMass);
  };
  Tensor target = share(group.mass.measured_rows);
  if (!group.selection.publishes) return target;
  // The candidate pool is made from these scores, so it has to hold what the layers that select
  // inside it look for, too.
  double members = 1;
  for (const IndexGroup& other : groups_) {
    if (!config_.layers[static_cast<size_t>(other.layer)].uses_candidates) continue;
    target = target + share(other.mass.measured_rows);
    members += 1;
  }
  return target / members;
}

void ForwardPass::FinishIndex(ForwardResult& result) {
  if (!options_.distill || options_.mask_compressed) return;
  std::vector<std::vector<uint8_t>> pool_rows;
  std::vector<std::vector<uint8_t>> no_pool;
  for (const IndexGroup& group : groups_) {
    const Tensor loss =
        options_.indexers_only
            ? ListLoss(group.vectors, group.mass.measured, MeasuredTarget(group),
                       group.selection.topk)
            : IndexLoss(group.vectors, group.mass.rows, group.selected, 2 * config_.sliding_window);
    result.index_loss = result.index_loss.defined() ? result.index_loss + loss : loss;
    if (options_.sparse && !options_.indexers_only && !group.mass.measured.empty()) {
      result.index_loss = result.index_loss + MeasuredIndexLoss(group.vectors, group.mass.measured,
                                                                MeasuredTarget(group));
    }
    no_pool.clear();
    // Reindex layers are measured against the pool of the candidate source whether or not they
    // select inside it.
    const LayerRole& role = config_.layers[static_cast<size_t>(group.layer)];
    const bool in_pool = role.publishes_candidates || role.uses_candidates;
    const QualitySums sums =
        MeasureSelection(group.vectors, group.selection, group.mass, in_pool ? pool_rows : no_pool);
    const double count = std::max(sums.queries, 1.0);
    result.index_quality.push_back({group.layer, sums.queries, sums.top1 / count, sums.mass / count,
                                    sums.in_a_pool > 0 ? sums.pool / sums.in_a_pool : -1.0,
                                    sums.in_a_pool > 0 ? sums.pool_topk / sums.in_a_pool : -1.0});
  }
  if (!result.index_loss.defined()) result.index_loss = torch::zeros({});
  if (!groups_.empty()) {
    result.index_loss = result.index_loss / static_cast<double>(groups_.size());
  }
}

ForwardResult ForwardPass::Run(const Tensor& ids) {
  batch_ = ids.size(0);
  tokens_ = ids.size(1);
  const int64_t hc_mult = config_.hc_mult;
  MakeTables();
  ChooseMeasured();
  ForwardResult result;
  result.expert_loads =
      torch::zeros({config_.num_hidden_layers, config_.n_routed_experts}, torch::kFloat64);
  const HyperConnectionOptions options{hc_mult, config_.hc_sinkhorn_iters, config_.rms_norm_eps,
                                       config_.hc_eps};
  Tensor streams =
      torch::embedding(tensors_.embed, ids.view({-1})).repeat({1, hc_mult}).contiguous();
  // Layer 0's attention collapses with the one-hot weights of stream 0 (3.4).
  std::vector<Tensor> taps;
  Tensor pre = torch::zeros({batch_ * tokens_, hc_mult});
  pre.select(1, 0).fill_(1.0);
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const LayerTensors& tensors = tensors_.layers[static_cast<size_t>(layer)];
    if (config_.layers[static_cast<size_t>(layer)].engram_index >= 0 && options_.engram) {
      streams = EngramWrite(layer, ids, streams);
    }
    if (!options_.drafts.empty() && IsTapped(layer)) {
      taps.push_back(streams.detach().view({batch_, tokens_, hc_mult, -1}).mean(2));
    }
    const HyperConnectionRead attn =
        ReadStreams(streams, pre, tensors.hc_attn, tensors.attn_norm, options);
    streams = WriteStreams(streams, Attention(layer, attn.input), attn.post, attn.comb);
    const HyperConnectionRead ffn =
        ReadStreams(streams, attn.pre, tensors.hc_ffn, tensors.ffn_norm, options);
    streams = WriteStreams(streams, FeedForward(layer, ffn.input, result), ffn.post, ffn.comb);
    pre = ffn.pre;
  }
  result.hidden = CollapseAndNorm(streams, pre, tensors_.norm, config_.rms_norm_eps)
                      .view({batch_, tokens_, config_.hidden_size});
  FinishIndex(result);
  if (!options_.drafts.empty()) {
    const DraftInputs inputs{ids, torch::cat(taps, 2), &options_.drafts,
                             &tables_.window_frequencies};
    result.drafts = RunDrafts(config_, tensors_, inputs, options_.quantization);
  }
  return result;
}

}  // namespace minke::train

// Embedding, layers, head (architecture.md 3.1, 3.4, 11): the model as a list of steps.
#include "model/forward.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace minke {

namespace {

constexpr int64_t kUnboundedBytes = int64_t{1} << 62;

// streams[t, c, :] = embedding of token t, for every stream c (3.1).
void Embed(const ModelWeights& weights, std::span<const ForwardRows> rows, int64_t hc_mult,
           View<float> streams) {
  const int64_t hidden = weights.embed.cols;
  int64_t row = 0;
  for (const ForwardRows& part : rows) {
    for (int32_t token : part.tokens) {
      const std::byte* source = weights.embed.data + int64_t{token} * hidden * 2;
      float* target = streams.Row(row++);
      for (int64_t i = 0; i < hidden; ++i) {
        uint16_t bits;
        std::memcpy(&bits, source + i * 2, sizeof(bits));
        target[i] = DecodeBf16(bits);
      }
      for (int64_t stream = 1; stream < hc_mult; ++stream) {
        std::copy_n(target, hidden, target + stream * hidden);
      }
    }
  }
}

// u = RMSNorm(collapse(streams, pre)), the input of a sublayer (3.3).
void CollapseAndNorm(StepContext& step, View<const float> streams, View<const float> pre,
                     std::span<const uint16_t> norm, View<float> u) {
  step.kernels.hc_collapse(streams, pre, step.numerics.round_activations, u, step.pool);
  Norm(step, norm, u, u);
}

// One block (3.4). `pre` comes in as the previous sublayer's collapse weights and goes out as this
// layer's ffn ones: every collapse uses the weights computed one sublayer earlier, while post and
// comb are used by the sublayer that computed them.
Status Block(StepContext& step, int64_t layer, const LayerWeights& weights, View<float> streams,
             View<float> pre, bool state_written) {
  ArenaScope scope(step.arena);
  const int64_t hidden = step.config.hidden_size;
  const bool round = step.numerics.round_activations;
  View<float> u = step.arena.Allocate<float>(step.row_count, hidden);
  View<float> y = step.arena.Allocate<float>(step.row_count, hidden);

  Mixes attn = AllocateMixes(step);
  HyperConnectionMix(step, weights.hc_attn, streams, attn);
  CollapseAndNorm(step, streams, pre, weights.attn_norm, u);
  step.Dump("attn_in", layer, u);
  if (!state_written) AttentionState(step, layer, weights.attn, u);
  Attention(step, layer, weights.attn, u, y);
  step.Dump("attn_out", layer, y);
  step.kernels.hc_expand(y, attn.post, attn.comb, round, streams, step.pool);

  Mixes ffn = AllocateMixes(step);
  HyperConnectionMix(step, weights.hc_ffn, streams, ffn);
  CollapseAndNorm(step, streams, attn.pre, weights.ffn_norm, u);
  step.Dump("ffn_in", layer, u);
  TRY_STATUS(Moe(step, layer, weights.ffn, u, y));
  step.Dump("ffn_out", layer, y);
  step.kernels.hc_expand(y, ffn.post, ffn.comb, round, streams, step.pool);

  std::memcpy(pre.data, ffn.pre.data, static_cast<size_t>(pre.rows * pre.cols) * sizeof(float));
  step.Dump("hidden", layer, streams);
  step.Dump("pre_mix", layer, pre);
  return {};
}

// The part of the split layer that every row runs (6.2, V3): what it leaves behind, without
// reading anything.
void LeaveState(StepContext& step, int64_t layer, const LayerWeights& weights,
                View<const float> streams, View<const float> pre) {
  ArenaScope scope(step.arena);
  View<float> u = step.arena.Allocate<float>(step.row_count, step.config.hidden_size);
  CollapseAndNorm(step, streams, pre, weights.attn_norm, u);
  AttentionState(step, layer, weights.attn, u);
}

template <typename T>
void MoveRow(View<T>& matrix, int64_t from, int64_t to) {
  if (matrix.rows == 0 || from == to) return;
  std::memmove(matrix.Row(to), matrix.Row(from), static_cast<size_t>(matrix.cols) * sizeof(T));
}

// Keeps the rows that run the decoder, in order, and forgets the others.
void KeepDecoderRows(StepContext& step, std::span<const ForwardRows> rows,
                     std::vector<SequenceSpan>& sequences, std::vector<int64_t>& positions,
                     View<float>& streams, View<float>& pre) {
  int64_t kept = 0;
  std::vector<SequenceSpan> remaining;
  for (size_t i = 0; i < rows.size(); ++i) {
    SequenceSpan span = sequences[i];
    const int64_t skipped = rows[i].decoder_from;
    const int64_t first = std::exchange(span.first_row, kept) + skipped;
    span.start += skipped;
    span.count -= skipped;
    for (int64_t row = 0; row < span.count; ++row, ++kept) {
      MoveRow(streams, first + row, kept);
      MoveRow(pre, first + row, kept);
      MoveRow(step.selected, first + row, kept);
      MoveRow(step.candidates, first + row, kept);
      positions[static_cast<size_t>(kept)] = positions[static_cast<size_t>(first + row)];
    }
    if (span.count > 0) remaining.push_back(span);
  }
  sequences = std::move(remaining);
  positions.resize(static_cast<size_t>(kept));
  streams.rows = pre.rows = step.selected.rows = step.row_count = kept;
  step.candidates.rows = std::min(step.candidates.rows, kept);
  step.sequences = sequences;
  step.positions = positions;
}

// Logits of the wanted rows only (11): collapse, norm, and the head in float32. The wanted rows of
// a sequence are its last ones.
void Head(StepContext& step, const ModelWeights& weights, std::span<const ForwardRows> rows,
          View<const float> streams, View<const float> pre, View<float> logits) {
  ArenaScope scope(step.arena);
  const int64_t hidden = step.config.hidden_size;
  View<float> normed = step.arena.Allocate<float>(step.row_count, hidden);
  CollapseAndNorm(step, streams, pre, weights.norm, normed);
  step.Dump("final_norm", -1, normed);
  // Rows that follow each other are multiplied together: the head is read once for all sequences
  // that decode.
  int64_t end = 0;
  int64_t written = 0;
  int64_t run_begin = 0;  // rows [run_begin, run_end) are wanted and not multiplied yet
  int64_t run_end = 0;
  const auto multiply_run = [&] {
    const int64_t count = run_end - run_begin;
    if (count == 0) return;
    LinearF32(step, weights.head, normed.Rows(run_begin, count), logits.Rows(written, count));
    written += count;
  };
  for (const ForwardRows& part : rows) {
    const auto count = static_cast<int64_t>(part.tokens.size());
    const int64_t wanted = count - part.logits_from;
    end += count - part.decoder_from;
    if (wanted == 0) continue;
    if (end - wanted != run_end) {
      multiply_run();
      run_begin = end - wanted;
    }
    run_end = end;
  }
  multiply_run();
}

Status CheckRows(const ModelConfig& config, std::span<const ForwardRows> rows,
                 View<const float> logits) {
  int64_t wanted = 0;
  if (rows.empty()) return Fail("forward: no rows were given; a call needs at least one token");
  for (const ForwardRows& part : rows) {
    CHECK(part.state != nullptr);
    const auto count = static_cast<int64_t>(part.tokens.size());
    if (count == 0) {
      return Fail("forward: a sequence without new tokens; every sequence needs at least one");
    }
    CHECK(part.logits_from >= 0 && part.logits_from <= count);
    CHECK(part.decoder_from >= 0 && part.decoder_from <= part.logits_from);
    wanted += count - part.logits_from;
    const int64_t length = part.state->length() + count;
    if (length > config.max_position_embeddings) {
      return Fail(ErrorCode::kLimit,
                  fmt::format("the sequence would have {} tokens, but this model's context "
                              "(max_position_embeddings) is {}; shorten the input",
                              length, config.max_position_embeddings));
    }
    for (size_t i = 0; i < part.tokens.size(); ++i) {
      if (part.tokens[i] < 0 || part.tokens[i] >= config.vocab_size) {
        return Fail(fmt::format("token {} of the call is id {}, outside the vocabulary of {} ids",
                                i, part.tokens[i], config.vocab_size));
      }
    }
  }
  CHECK(logits.rows == wanted && (wanted == 0 || logits.cols == config.vocab_size));
  return {};
}

// Begins the call in every sequence and lays the rows out one after the other.
Status LayOutRows(std::span<const ForwardRows> rows, const ModelTables& tables,
                  std::vector<SequenceSpan>& sequences, std::vector<int64_t>& positions) {
  for (const ForwardRows& part : rows) {
    SequenceState& state = *part.state;
    const auto count = static_cast<int64_t>(part.tokens.size());
    if (!state.Begin(count, part.decoder_from)) {
      return Fail(ErrorCode::kLimit,
                  fmt::format("The memory for rows of the context (--kv-ram) has no room for {} "
                              "more tokens; raise it, or shorten the input.",
                              count));
    }
    sequences.push_back(SequenceSpan{.state = &state,
                                     .first_row = static_cast<int64_t>(positions.size()),
                                     .count = count,
                                     .start = state.length()});
    for (int64_t i = 0; i < count; ++i) positions.push_back(state.length() + i);
    if (state.layout().history_length == 0) continue;
    const std::span<int32_t> history = state.PendingHistory();
    for (size_t i = 0; i < part.tokens.size(); ++i) {
      history[static_cast<size_t>(state.layout().history_length) + i] =
          tables.engram_token_map[static_cast<size_t>(part.tokens[i])];
    }
  }
  return {};
}

// Why prefill of this model cannot stop at its last kv source (6.2).
std::string ReplayObstacle(const ModelConfig& config) {
  if (config.kv_source_layer_ids.empty()) {
    return "this model has no layer with compressed rows, so every token needs every layer";
  }
  for (const int64_t layer : config.engram_layer_ids) {
    if (layer > config.kv_source_layer_ids.back()) {
      return fmt::format("layer {} has an Engram and lies above the last kv source, layer {}",
                         layer, config.kv_source_layer_ids.back());
    }
  }
  return {};
}

// Room for what flows down the layers (4.9): the selection and the candidate pool of every row.
void AllocateShared(StepContext& step) {
  step.selected = step.arena.Allocate<int32_t>(step.row_count, step.config.index_topk);
  std::fill_n(step.selected.data, step.row_count * step.config.index_topk, -1);
  if (step.config.candidate_source_layer_id < 0) return;
  int64_t rows_max = 0;
  for (const SequenceSpan& sequence : step.sequences) {
    rows_max = std::max(rows_max, sequence.start + sequence.count);
  }
  const int64_t block_size = step.config.candidate_block_size;
  step.candidates =
      step.arena.Allocate<uint8_t>(step.row_count, (rows_max + block_size - 1) / block_size);
}

}  // namespace

Result<std::unique_ptr<Model>> Model::Create(ModelConfig config, Checkpoint checkpoint,
                                             std::vector<int32_t> engram_token_map,
                                             Numerics numerics, const Kernels& kernels,
                                             int64_t weights_ram_bytes) {
  auto model = std::make_unique<Model>(Passkey{});
  model->config_ = std::move(config);
  model->checkpoint_ = std::move(checkpoint);
  if (weights_ram_bytes > 0) {
    TRY_STATUS(CheckTensors(model->config_, model->checkpoint_));
    model->stream_ =
        TRY(WeightStream::Create(model->config_, model->checkpoint_, weights_ram_bytes));
  }
  model->weights_ = TRY(BindWeights(model->config_, model->checkpoint_));
  model->numerics_ = numerics;
  model->kernels_ = &kernels;
  model->tables_.window_frequencies = WindowFrequencies(model->config_);
  model->tables_.compressed_frequencies = CompressedFrequencies(model->config_);
  if (model->config_.has_engram()) {
    const auto vocabulary = static_cast<size_t>(model->config_.vocab_size);
    if (engram_token_map.size() != vocabulary) {
      return Fail(
          fmt::format("the Engram token map has {} entries, but vocab_size is {}; the "
                      "tokenizer does not belong to this model",
                      engram_token_map.size(), vocabulary));
    }
    model->tables_.engram_pad =
        engram_token_map[static_cast<size_t>(model->config_.engram_pad_token_id)];
    model->tables_.engram_token_map = std::move(engram_token_map);
    for (size_t index = 0; index < model->config_.engram_layer_ids.size(); ++index) {
      model->tables_.engram.push_back(
          TRY(MakeEngramHash(model->config_, static_cast<int64_t>(index))));
    }
  }
  model->replay_obstacle_ = ReplayObstacle(model->config_);
  model->unbounded_pool_ = std::make_unique<BlockPool>(
      std::max<int64_t>(1, StateLayout(model->config_, numerics).block_bytes), kUnboundedBytes);
  return model;
}

Status Model::CopyWeights(int64_t available_bytes, ThreadPool& pool, const CopyProgress& progress) {
  CHECK(stream_ == nullptr && copied_.bytes().empty());
  copied_ = TRY(minke::CopyWeights(config_, checkpoint_, available_bytes, pool, progress));
  weights_ = TRY(BindWeights(config_, checkpoint_));
  return {};
}

std::unique_ptr<SequenceState> Model::NewSequence(BlockPool& pool) const {
  return std::make_unique<SequenceState>(config_, numerics_, pool);
}

std::unique_ptr<SequenceState> Model::NewSequence() const {
  return NewSequence(*unbounded_pool_);
}

std::vector<int32_t> Model::EngramHistory(std::span<const int32_t> tokens) const {
  if (!config_.has_engram()) return {};
  const auto length = static_cast<size_t>(config_.engram_max_ngram_size - 1);
  std::vector<int32_t> history(length, kDeadHistory);
  const size_t known = std::min(length, tokens.size());
  for (size_t i = 0; i < known; ++i) {
    const int32_t token = tokens[tokens.size() - known + i];
    history[length - known + i] = tables_.engram_token_map[static_cast<size_t>(token)];
  }
  return history;
}

Status Model::Forward(std::span<const ForwardRows> rows, View<float> logits, ThreadPool& pool,
                      Arena& arena, const Diagnostics* diagnostics) const {
  TRY_STATUS(CheckRows(config_, rows, logits));
  ArenaScope scope(arena);
  std::vector<SequenceSpan> sequences;
  std::vector<int64_t> positions;
  TRY_STATUS(LayOutRows(rows, tables_, sequences, positions));
  StepContext step{.config = config_,
                   .tables = tables_,
                   .numerics = numerics_,
                   .kernels = *kernels_,
                   .pool = pool,
                   .arena = arena,
                   .diagnostics = diagnostics,
                   .sequences = sequences,
                   .positions = positions,
                   .row_count = static_cast<int64_t>(positions.size()),
                   .selected = {},
                   .candidates = {},
                   .stream = stream_.get()};
  PrefetchEngram(step, weights_);
  AllocateShared(step);

  const int64_t hc_mult = config_.hc_mult;
  View<float> streams = arena.Allocate<float>(step.row_count, hc_mult * config_.hidden_size);
  Embed(weights_, rows, hc_mult, streams);
  // Layer 0's attention collapses with the one-hot weights of stream 0.
  View<float> pre = arena.Allocate<float>(step.row_count, hc_mult);
  for (int64_t row = 0; row < step.row_count; ++row) {
    std::fill_n(pre.Row(row), hc_mult, 0.0f);
    pre.Row(row)[0] = 1.0f;
  }
  const bool skips = std::any_of(rows.begin(), rows.end(),
                                 [](const ForwardRows& part) { return part.decoder_from > 0; });
  CHECK(!skips || replay_obstacle_.empty());
  const int64_t split = skips ? config_.kv_source_layer_ids.back() : -1;
  for (int64_t layer = 0; layer < config_.num_hidden_layers; ++layer) {
    const LayerWeights& weights = weights_.layers[static_cast<size_t>(layer)];
    if (config_.layers[static_cast<size_t>(layer)].engram_index >= 0) {
      TRY_STATUS(Engram(step, layer, weights.engram, streams));
    }
    if (layer == split) {
      LeaveState(step, layer, weights, streams, pre);
      KeepDecoderRows(step, rows, sequences, positions, streams, pre);
      if (step.row_count == 0) return {};
    }
    const bool last = layer + 1 == config_.num_hidden_layers;
    step.next_moe = last ? nullptr : &weights_.layers[static_cast<size_t>(layer) + 1].ffn;
    TRY_STATUS(Block(step, layer, weights, streams, pre, /*state_written=*/layer == split));
  }
  if (logits.rows > 0) Head(step, weights_, rows, streams, pre, logits);
  return {};
}

}  // namespace minke

// Hierarchical sparse indexer (architecture.md 4.4-4.6): index keys of a kv source, scores of an
// index source's queries against them, the candidate pool, and the top-k list that the layer and
// the Reuse layers after it attend to.
#include <algorithm>
#include <cmath>
#include <vector>

#include "model/layers.h"

namespace minke {

namespace {

// Scores held at once: 64 MiB of float32. A longer context takes fewer query rows at a time.
constexpr int64_t kScoresMax = int64_t{16} << 20;

// The queries of one index source: bf16 (FP4 grid) vectors and head weights of every row.
struct IndexQueries {
  View<float> vectors;  // [T, index_n_heads * index_head_dim]
  View<float> weights;  // [T, index_n_heads]
};

IndexQueries MakeQueries(StepContext& step, int64_t layer, const IndexerWeights& weights,
                         View<const float> query_latent, View<const float> x) {
  const ModelConfig& config = step.config;
  IndexQueries queries{
      step.arena.Allocate<float>(x.rows, config.index_n_heads * config.index_head_dim),
      step.arena.Allocate<float>(x.rows, config.index_n_heads)};
  Linear(step, weights.wq_b, query_latent, queries.vectors);
  Rope(step, config.layers[static_cast<size_t>(layer)].compress_ratio, queries.vectors,
       config.index_head_dim, step.positions, /*inverse=*/false);
  if (step.numerics.index_fp4) step.kernels.quantize_q4i(queries.vectors, step.pool);

  Linear(step, weights.weights_proj, x, queries.weights);
  const auto factor =
      static_cast<float>(std::pow(static_cast<double>(config.index_head_dim), -0.5) *
                         std::pow(static_cast<double>(config.index_n_heads), -0.5));
  for (int64_t row = 0; row < x.rows; ++row) {
    float* values = queries.weights.Row(row);
    for (int64_t head = 0; head < config.index_n_heads; ++head) values[head] *= factor;
  }
  if (step.numerics.round_activations) step.kernels.round_bf16(queries.weights, step.pool);
  return queries;
}

// Whose keys a row is scored against: the owner's, or (diagnosis, 4.9) on a decode step with an
// open group those that the last kv source left in the reference's shared slot.
int64_t KeySource(const StepContext& step, const LayerRole& role, const SequenceSpan& sequence) {
  const bool decode_step = sequence.count == 1 && sequence.start > 0;
  const bool open_group = (sequence.start + 1) % role.compress_ratio != 0;
  if (step.numerics.stale_index_keys && decode_step && open_group) {
    return static_cast<int64_t>(step.config.kv_source_layer_ids.size()) - 1;
  }
  return role.kv_source_index;
}

// Compressed rows that are scored together, so that a query is prepared once for all of them.
constexpr int64_t kScoredRows = 2048;

// Appends rows [begin, end) to runs, cut where the cache's blocks end.
void AppendRuns(const SequenceState& state, int64_t source, int64_t begin, int64_t end,
                float* scores, std::vector<IndexRun>& runs) {
  while (begin < end) {
    const int64_t count = state.ContiguousRows(source, begin, end);
    runs.push_back({state.IndexRow(source, begin), count, scores + begin});
    begin += count;
  }
}

bool ShowsAllScores(const StepContext& step) {
  return step.diagnostics != nullptr && step.diagnostics->all_index_scores;
}

// What of rows [begin, end) a query has to score. In a restricted layer that is the candidate pool:
// select_topk looks at nothing else (4.5).
std::vector<IndexRun> RunsOf(const StepContext& step, const LayerRole& role, int64_t source,
                             const SequenceState& state, int64_t query, int64_t begin, int64_t end,
                             float* scores) {
  std::vector<IndexRun> runs;
  if (!role.uses_candidates || ShowsAllScores(step)) {
    AppendRuns(state, source, begin, end, scores, runs);
    return runs;
  }
  const int64_t block_size = step.config.candidate_block_size;
  const uint8_t* kept = step.candidates.Row(query);
  for (int64_t row = begin; row < end;) {
    int64_t last = row;  // of neighbouring kept blocks
    while (last < end && kept[last / block_size] != 0) last = (last / block_size + 1) * block_size;
    AppendRuns(state, source, row, std::min(last, end), scores, runs);
    row = std::max(last, (row / block_size + 1) * block_size);
  }
  return runs;
}

// Scores of rows [first, first + scores.rows) of one sequence, split over (row, compressed rows).
void ScoreRows(StepContext& step, const LayerRole& role, const SequenceSpan& sequence,
               const IndexQueries& queries, int64_t first, View<float> scores) {
  const SequenceState& state = *sequence.state;
  const int64_t source = KeySource(step, role, sequence);
  const int64_t heads = step.config.index_n_heads;
  const int64_t parts = (scores.cols + kScoredRows - 1) / kScoredRows;
  const int64_t part_cost = std::min(kScoredRows, scores.cols) * queries.vectors.cols;
  step.pool.ParallelFor(
      scores.rows * parts, step.pool.GrainFor(part_cost),
      [&](int64_t begin, int64_t end, int /*worker*/) {
        for (int64_t item = begin; item < end; ++item) {
          const int64_t query = sequence.first_row + first + item / parts;
          const int64_t visible = step.VisibleRows(query, role.compress_ratio);
          const int64_t key = item % parts * kScoredRows;
          if (key >= visible) continue;
          const std::vector<IndexRun> runs =
              RunsOf(step, role, source, state, query, key, std::min(key + kScoredRows, visible),
                     scores.Row(item / parts));
          step.kernels.index_scores(
              View<const float>(queries.vectors.Row(query), heads, step.config.index_head_dim),
              {queries.weights.Row(query), static_cast<size_t>(heads)}, state.layout().index_format,
              runs, step.numerics.round_scores);
        }
      });
}

// Candidate pool and top-k of scored rows, into step.candidates and step.selected.
void SelectScored(StepContext& step, int64_t layer, const LayerRole& role,
                  const SequenceSpan& sequence, int64_t first, View<const float> scores) {
  const int64_t block_size = step.config.candidate_block_size;
  step.pool.ParallelFor(
      scores.rows, step.RowGrain(scores.cols), [&](int64_t begin, int64_t end, int /*worker*/) {
        for (int64_t row = begin; row < end; ++row) {
          const int64_t query = sequence.first_row + first + row;
          const int64_t visible = step.VisibleRows(query, role.compress_ratio);
          const std::span<const float> seen{scores.Row(row), static_cast<size_t>(visible)};
          std::span<uint8_t> kept;
          if (role.publishes_candidates || role.uses_candidates) {
            kept = {step.candidates.Row(query),
                    static_cast<size_t>((visible + block_size - 1) / block_size)};
          }
          if (role.publishes_candidates) {
            step.kernels.select_candidates(seen, block_size, step.config.candidate_topk_blocks,
                                           kept);
          }
          const std::span<int32_t> selected{step.selected.Row(query),
                                            static_cast<size_t>(step.config.index_topk)};
          // The candidate source itself selects from all rows (4.5).
          step.kernels.select_topk(seen, role.uses_candidates ? kept : std::span<uint8_t>(),
                                   block_size, selected);
          if (step.diagnostics != nullptr && step.diagnostics->force_topk) {
            step.diagnostics->force_topk(layer, step.positions[static_cast<size_t>(query)],
                                         selected);
          }
        }
      });
}

}  // namespace

void WriteIndexKeys(StepContext& step, int64_t layer, const IndexerWeights& weights,
                    const Latents& latents) {
  const int64_t count = latents.rows.rows;
  if (count == 0) return;
  ArenaScope scope(step.arena);
  const LayerRole& role = step.config.layers[static_cast<size_t>(layer)];
  const int64_t head_dim = step.config.index_head_dim;
  View<float> keys = step.arena.Allocate<float>(count, head_dim);
  Linear(step, weights.wk, latents.rows, keys);
  Norm(step, weights.k_norm, keys, keys);
  Rope(step, role.compress_ratio, keys, head_dim, latents.positions, /*inverse=*/false);
  step.Dump("index_k_prequant", layer, keys);
  step.pool.ParallelFor(
      count, step.RowGrain(head_dim), [&](int64_t begin, int64_t end, int /*worker*/) {
        for (int64_t row = begin; row < end; ++row) {
          const auto index = static_cast<size_t>(row);
          SequenceState& state =
              *step.sequences[static_cast<size_t>(latents.sequence[index])].state;
          if (!state.WritesRow(role.kv_source_index, latents.group[index])) continue;
          EncodeRow(state.layout().index_format, {keys.Row(row), static_cast<size_t>(head_dim)},
                    {state.IndexRow(role.kv_source_index, latents.group[index]),
                     static_cast<size_t>(state.layout().index_row_bytes)});
        }
      });
}

void SelectRows(StepContext& step, int64_t layer, const IndexerWeights& weights,
                View<const float> query_latent, View<const float> x) {
  ArenaScope scope(step.arena);
  const LayerRole& role = step.config.layers[static_cast<size_t>(layer)];
  const IndexQueries queries = MakeQueries(step, layer, weights, query_latent, x);
  for (const SequenceSpan& sequence : step.sequences) {
    const int64_t visible_max = (sequence.start + sequence.count) / role.compress_ratio;
    const int64_t rows_at_once =
        std::clamp<int64_t>(kScoresMax / std::max<int64_t>(visible_max, 1), 1, sequence.count);
    for (int64_t first = 0; first < sequence.count; first += rows_at_once) {
      ArenaScope score_scope(step.arena);
      const int64_t rows = std::min(rows_at_once, sequence.count - first);
      View<float> scores = step.arena.Allocate<float>(rows, visible_max);
      ScoreRows(step, role, sequence, queries, first, scores);
      SelectScored(step, layer, role, sequence, first, scores);
      if (ShowsAllScores(step)) {
        for (int64_t row = 0; row < rows; ++row) {
          const int64_t visible =
              step.VisibleRows(sequence.first_row + first + row, role.compress_ratio);
          step.Dump("index_scores", layer, View<const float>(scores.Row(row), 1, visible));
        }
      }
    }
  }
  step.Dump("topk", layer, step.selected);
}

}  // namespace minke

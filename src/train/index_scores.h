// The arithmetic of the indexer over one sequence: scores, and the gradient of its loss. No
// libtorch.
#pragma once

#include <cstdint>
#include <vector>

namespace minke::train {

// Pointers are those of the sequence's first row.
struct IndexScorer {
  int64_t heads = 0;
  int64_t dim = 0;
  int64_t ratio = 1;
  const float* queries = nullptr;  // [T, heads * dim]
  const float* weights = nullptr;  // [T, heads]
  const float* keys = nullptr;     // [Tc, dim]

  // Scores of queries [first, first + count): sum over heads of weight * relu(q . k), for the rows
  // that the last of them sees. Returns the columns of scores [count, columns].
  int64_t Score(int64_t first, int64_t count, std::vector<float>& scores,
                std::vector<float>& scratch) const;
};

struct IndexLossPart {
  int64_t mass_columns = 0;
  const float* mass = nullptr;        // [T, mass_columns]
  const int32_t* selected = nullptr;  // [T, mass_columns], -1 behind; null: columns are rows
  float* dqueries = nullptr;          // added to
  float* dweights = nullptr;
  float* dkeys = nullptr;
};

struct IndexLossSums {
  double loss = 0;    // sum over queries of m * KL
  double weight = 0;  // sum of m
};

// The loss of queries [first, end) and its gradient, not yet divided by the weights.
void AddIndexLoss(const IndexScorer& scorer, int64_t first, int64_t end, const IndexLossPart& part,
                  IndexLossSums& sums);

}  // namespace minke::train

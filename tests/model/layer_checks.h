// One layer alone against the golden intermediates; shared by the layer tests and by the test
// that every planted mistake is seen.
#pragma once

#include <string>
#include <vector>

#include "tests/model/golden_model.h"

namespace minke::testing {

struct LayerAgreement {
  std::string name;            // "full_mini attn_out.3"
  double identical_share = 0;  // values with equal bits
  double row_error = 0;        // largest difference over the row's largest value
};
// Limits of tests/golden/README.md.
bool AttentionHolds(const LayerAgreement& layer);
bool MoeHolds(const LayerAgreement& layer);
std::vector<LayerAgreement> AttentionAgreement(const Model& model, const Golden& expected);
std::vector<LayerAgreement> MoeAgreement(const Model& model, const Golden& expected);

struct RouterAgreement {
  int64_t rows = 0;
  int64_t differing_beyond_margin = 0;
  double weight_error = 0;  // over rows with the same experts
};
RouterAgreement CompareRouter(const Model& model, const Golden& expected);

struct SourceAgreement {
  std::string name;
  double compressed_bytes_identical = 1;
  double index_bytes_identical = 1;
  double scores_identical = 1;
  int64_t selections_differing_beyond_margin = 0;
  double candidates_identical = 1;
};
// One entry per index source.
std::vector<SourceAgreement> CompareSources(const Model& model, const Golden& expected);

}  // namespace minke::testing

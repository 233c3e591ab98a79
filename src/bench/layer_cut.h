// A smaller model that has layers of a larger one: its config.json, with the lists of sources,
// ratios and Engram tables made to fit (architecture.md 1.3).
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "model/config.h"

namespace minke {

struct LayerCut {
  std::vector<int64_t> layers;  // of the larger model, ascending
  int64_t experts = 0;          // routed ones of each layer; at least num_experts_per_tok
  int64_t vocab_size = 0;       // 0: as it is
  // Rows of the Engram tables come from these (8.1, 8.2). Used where an Engram layer is kept.
  int64_t engram_vocab_size = 0;
  int64_t engram_compressed_vocab_size = 0;
};

// "0,2,3": ids, ascending. Errors say what is wrong.
Result<std::vector<int64_t>> ParseLayerList(const std::string& text);

// The config of the cut; draft stages and vision are left out. root, config: the larger model's,
// parsed from one text. Errors: a layer that does not exist, too few experts, and a layer whose
// rows or selection come from one that is left out, with the list that would do.
Result<Json> CutConfig(const Json& root, const ModelConfig& config, const LayerCut& cut);

// What a layer computes, for times that are added up over layers of a kind: "SWA", "Full, ratio 2",
// "Reindex, ratio 1" ... and " + Engram".
std::string LayerKind(const LayerRole& role);
// Layers of each kind.
std::map<std::string, int64_t> LayerKindCounts(const ModelConfig& config);

}  // namespace minke

#include "bench/layer_cut.h"

#include <algorithm>
#include <charconv>
#include <set>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "model/layers.h"

namespace minke {
namespace {

Json JsonInts(const std::vector<int64_t>& values) {
  JsonArray list;
  for (const int64_t value : values) list.emplace_back(value);
  return Json(std::move(list));
}

// Layers without which `layer` would read or select something else.
void AddNeeded(const ModelConfig& config, int64_t layer, std::set<int64_t>* needed) {
  const LayerRole& role = config.layers[static_cast<size_t>(layer)];
  for (const int64_t source : {role.kv_source, role.index_source}) {
    if (source < 0) continue;
    const bool added = needed->insert(source).second;
    if (added) AddNeeded(config, source, needed);
  }
  if (role.uses_candidates) needed->insert(config.candidate_source_layer_id);
}

Status CheckCut(const ModelConfig& config, const LayerCut& cut) {
  if (cut.layers.empty()) return Fail("A model needs at least one layer; name some in --layers.");
  for (const int64_t layer : cut.layers) {
    if (layer < 0 || layer >= config.num_hidden_layers) {
      return Fail(fmt::format("--layers names {}, but the config has layers 0 to {}.", layer,
                              config.num_hidden_layers - 1));
    }
  }
  if (cut.experts < config.num_experts_per_tok || cut.experts > config.n_routed_experts) {
    return Fail(
        fmt::format("--experts must be from {}, what a token chooses, to the config's {}, "
                    "but it is {}.",
                    config.num_experts_per_tok, config.n_routed_experts, cut.experts));
  }
  const std::set<int64_t> kept(cut.layers.begin(), cut.layers.end());
  std::set<int64_t> needed = kept;
  for (const int64_t layer : cut.layers) AddNeeded(config, layer, &needed);
  if (needed.size() == kept.size()) return {};
  std::vector<int64_t> missing;
  std::set_difference(needed.begin(), needed.end(), kept.begin(), kept.end(),
                      std::back_inserter(missing));
  return Fail(
      fmt::format("--layers leaves out {}, from which a layer that it names takes its "
                  "compressed rows or its selection; use --layers {}",
                  fmt::join(missing, ", "), fmt::join(needed, ",")));
}

// Positions in the cut of those layers of a list that it keeps.
std::vector<int64_t> Positions(const std::vector<int64_t>& ids, const LayerCut& cut) {
  std::vector<int64_t> positions;
  for (size_t i = 0; i < cut.layers.size(); ++i) {
    if (std::find(ids.begin(), ids.end(), cut.layers[i]) == ids.end()) continue;
    positions.push_back(static_cast<int64_t>(i));
  }
  return positions;
}

void CutEngram(const ModelConfig& config, const LayerCut& cut, Json* text) {
  ModelConfig small = config;
  small.engram_layer_ids = Positions(config.engram_layer_ids, cut);
  text->Set("engram_layer_ids", JsonInts(small.engram_layer_ids));
  std::vector<int64_t> rows;
  if (!small.engram_layer_ids.empty()) {
    small.engram_vocab_size = cut.engram_vocab_size;
    text->Set("engram_vocab_size", cut.engram_vocab_size);
    text->Set("engram_compressed_vocab_size", cut.engram_compressed_vocab_size);
  }
  for (size_t index = 0; index < small.engram_layer_ids.size(); ++index) {
    int64_t sum = 0;
    for (const int64_t prime : EngramPrimes(small, static_cast<int64_t>(index))) sum += prime;
    rows.push_back(sum);
  }
  text->Set("engram_num_embeddings", JsonInts(rows));
}

void CutDrafts(Json* text) {
  for (const char* key : {"num_nextn_predict_layers", "dspark_noise_token_id",
                          "dspark_n_routed_experts", "dspark_num_experts_per_tok"}) {
    text->Set(key, 0);
  }
  text->Set("dspark_target_layer_ids", JsonArray{});
}

}  // namespace

Result<std::vector<int64_t>> ParseLayerList(const std::string& text) {
  std::vector<int64_t> layers;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    int64_t layer = 0;
    const auto [stop, error] = std::from_chars(text.data() + at, text.data() + end, layer);
    if (error != std::errc() || stop != text.data() + end || layer < 0 ||
        (!layers.empty() && layer <= layers.back())) {
      return Fail(
          fmt::format("Layers are named by their ids, ascending and separated by commas, such as "
                      "0,2,3; \"{}\" is not that.",
                      text.substr(0, 80)));
    }
    layers.push_back(layer);
    at = end + 1;
  }
  return layers;
}

Result<Json> CutConfig(const Json& root, const ModelConfig& config, const LayerCut& cut) {
  TRY_STATUS(CheckCut(config, cut));
  Json result = root;
  Json text = *root.Find("text_config");
  text.Set("num_hidden_layers", static_cast<int64_t>(cut.layers.size()));
  text.Set("n_routed_experts", cut.experts);
  if (cut.vocab_size > 0) text.Set("vocab_size", cut.vocab_size);
  std::vector<int64_t> ratios;
  for (const int64_t layer : cut.layers) {
    ratios.push_back(config.compress_ratios[static_cast<size_t>(layer)]);
  }
  text.Set("compress_ratios", JsonInts(ratios));
  text.Set("kv_source_layer_ids", JsonInts(Positions(config.kv_source_layer_ids, cut)));
  text.Set("index_source_layer_ids", JsonInts(Positions(config.index_source_layer_ids, cut)));
  const std::vector<int64_t> candidate = Positions({config.candidate_source_layer_id}, cut);
  text.Set("candidate_source_layer_id", candidate.empty() ? int64_t{-1} : candidate.front());
  CutEngram(config, cut, &text);
  CutDrafts(&text);
  result.Set("text_config", std::move(text));
  Json vision = *root.Find("vision_config");
  vision.Set("num_hidden_layers", 0);
  result.Set("vision_config", std::move(vision));
  if (cut.vocab_size > 0 && config.image_token_id >= cut.vocab_size) {
    result.Set("image_token_id", -1);
  }
  return result;
}

std::string LayerKind(const LayerRole& role) {
  std::string kind = LayerModeName(role.mode);
  if (role.compress_ratio > 0) kind += fmt::format(", ratio {}", role.compress_ratio);
  if (role.engram_index >= 0) kind += " + Engram";
  return kind;
}

std::map<std::string, int64_t> LayerKindCounts(const ModelConfig& config) {
  std::map<std::string, int64_t> counts;
  for (const LayerRole& role : config.layers) ++counts[LayerKind(role)];
  return counts;
}

}  // namespace minke

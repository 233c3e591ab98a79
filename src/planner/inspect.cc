#include "planner/inspect.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <cmath>

#include "core/numeric_formats.h"
#include "model/numerics.h"
#include "model/state.h"

namespace minke {

namespace {

constexpr double kBytesPerGigabyte = 1e9;

// 510286023000 -> "510,286,023,000"; such numbers are read by people and compared by eye.
std::string Grouped(int64_t value) {
  std::string digits = fmt::format("{}", value);
  for (size_t place = digits.size(); place > 3; place -= 3) digits.insert(place - 3, 1, ',');
  return digits;
}

// An integer where the value is one: 890 and not 890.0.
Json Number(double value) {
  if (value == std::floor(value)) return static_cast<int64_t>(value);
  return value;
}

std::string NumberText(double value) {
  return value == std::floor(value) ? Grouped(static_cast<int64_t>(value))
                                    : fmt::format("{:.2f}", value);
}

std::vector<PartTotals> SumParts(const std::vector<TensorSpec>& catalogue) {
  std::vector<PartTotals> parts;
  for (const ModelPart part :
       {ModelPart::kEmbedding, ModelPart::kBackbone, ModelPart::kRoutedExperts, ModelPart::kEngram,
        ModelPart::kDspark, ModelPart::kVision}) {
    PartTotals totals;
    totals.part = part;
    for (const TensorSpec& spec : catalogue) {
      if (spec.part != part) continue;
      ++totals.tensors;
      totals.bytes += TensorBytes(spec);
      totals.parameters += spec.parameters;
    }
    parts.push_back(totals);
  }
  return parts;
}

// The lines of architecture.md 5.2: one row pair, then the sources of each ratio, then the sum.
std::vector<std::string> DeriveKvBytes(const ModelConfig& config, const StateLayout& layout) {
  if (config.kv_source_layer_ids.empty()) return {"no layer stores compressed rows: 0 B/token"};
  const int64_t compressed = layout.compressed_row_bytes;
  const int64_t index = layout.index_row_bytes;
  const int64_t pair = compressed + index;
  std::vector<std::string> lines;
  lines.push_back(
      fmt::format("compressed KV row: {} channels of 4 bits, a scale byte per 16 = {} B",
                  config.head_dim, compressed));
  lines.push_back(fmt::format("index key row: {} channels of 4 bits, a scale byte per 32 = {} B",
                              config.index_head_dim, index));
  lines.push_back(fmt::format("one row pair: {} + {} = {} B", compressed, index, pair));
  std::vector<int64_t> ratios = layout.ratios;
  std::sort(ratios.begin(), ratios.end(), std::greater<>());
  ratios.erase(std::unique(ratios.begin(), ratios.end()), ratios.end());
  for (const int64_t ratio : ratios) {
    std::vector<int64_t> sources;
    for (const int64_t layer : config.kv_source_layer_ids) {
      if (config.compress_ratios[static_cast<size_t>(layer)] == ratio) sources.push_back(layer);
    }
    const auto count = static_cast<int64_t>(sources.size());
    const double bytes = static_cast<double>(count * pair) / static_cast<double>(ratio);
    lines.push_back(fmt::format("layer{} {}, a row pair per {}: {} x {} / {} = {} B/token",
                                count == 1 ? "" : "s", fmt::join(sources, ", "),
                                ratio == 1 ? "token" : fmt::format("{} tokens", ratio), count, pair,
                                ratio, NumberText(bytes)));
  }
  lines.push_back(fmt::format("sum: {} B/token", NumberText(KvBytesPerToken(layout))));
  return lines;
}

CacheReport ReportCache(const ModelConfig& config) {
  const StateLayout layout(config, Numerics::Official());
  CacheReport cache;
  cache.kv_bytes_per_token = KvBytesPerToken(layout);
  cache.kv_derivation = DeriveKvBytes(config, layout);
  cache.context_tokens = config.max_position_embeddings;
  cache.kv_bytes_at_context = cache.kv_bytes_per_token * static_cast<double>(cache.context_tokens);
  cache.window_state_bytes = WindowStateBytes(layout);
  cache.window_derivation = fmt::format("{} layers x {} positions x {} B", layout.layer_count,
                                        layout.window_slots, layout.window_row_bytes);
  for (const int64_t ratio : layout.ratios) {
    // kv and gate of every token but the last of a group, in float32.
    cache.open_group_bytes += 2 * (ratio - 1) * config.head_dim * int64_t{sizeof(float)};
  }
  cache.engram_history_bytes = layout.history_length * int64_t{sizeof(int32_t)};
  return cache;
}

const char* CandidateText(const LayerRole& role) {
  if (role.publishes_candidates) return "publishes";
  return role.uses_candidates ? "uses" : "-";
}

std::string LayerText(int64_t layer) {
  return layer < 0 ? "-" : fmt::format("{}", layer);
}

bool SameRow(const LayerRole& a, const LayerRole& b) {
  return a.mode == b.mode && a.compress_ratio == b.compress_ratio && a.kv_source == b.kv_source &&
         a.index_source == b.index_source && a.publishes_candidates == b.publishes_candidates &&
         a.uses_candidates == b.uses_candidates && a.engram_index < 0 && b.engram_index < 0;
}

Json LayerJson(int64_t layer, const LayerRole& role) {
  const auto source = [](int64_t id) { return id < 0 ? Json() : Json(id); };
  JsonObject object;
  object.emplace_back("layer", layer);
  object.emplace_back("mode", LayerModeName(role.mode));
  object.emplace_back("compress_ratio", role.compress_ratio);
  object.emplace_back("kv_source", source(role.kv_source));
  object.emplace_back("index_source", source(role.index_source));
  object.emplace_back("publishes_candidates", role.publishes_candidates);
  object.emplace_back("uses_candidates", role.uses_candidates);
  object.emplace_back("engram", role.engram_index >= 0);
  return object;
}

}  // namespace

Result<InspectReport> InspectReport::Make(const ModelConfig& config, const Checkpoint* checkpoint) {
  if (checkpoint != nullptr) TRY_STATUS(CheckTensors(config, *checkpoint));
  InspectReport report;
  report.layers_ = config.layers;
  report.parts_ = SumParts(TensorCatalogue(config));
  for (const PartTotals& part : report.parts_) {
    report.tensors_ += part.tensors;
    report.tensor_bytes_ += part.bytes;
    report.parameters_ += part.parameters;
  }
  report.cache_ = ReportCache(config);
  if (checkpoint != nullptr) {
    report.has_checkpoint_ = true;
    report.directory_ = checkpoint->directory();
    report.shard_count_ = checkpoint->shard_count();
    report.file_bytes_ = checkpoint->file_bytes();
  }
  return report;
}

std::string InspectReport::LayersText() const {
  std::string out = "Layers\n";
  out += fmt::format("  {:<9}{:<9}{:>5}  {:>8}  {:>14}  {:<11}{}\n", "layer", "mode", "ratio",
                     "KV from", "selection from", "candidates", "Engram");
  for (size_t first = 0; first < layers_.size();) {
    size_t last = first;
    while (last + 1 < layers_.size() && SameRow(layers_[first], layers_[last + 1])) ++last;
    const LayerRole& role = layers_[first];
    out += fmt::format("  {:<9}{:<9}{:>5}  {:>8}  {:>14}  {:<11}{}\n",
                       first == last ? fmt::format("{}", first) : fmt::format("{}-{}", first, last),
                       LayerModeName(role.mode), role.compress_ratio, LayerText(role.kv_source),
                       LayerText(role.index_source), CandidateText(role),
                       role.engram_index >= 0 ? "yes" : "-");
    first = last + 1;
  }
  return out;
}

std::string InspectReport::PartsText() const {
  std::string out = "Parameters\n";
  const auto row = [&out](const std::string& name, const std::string& tensors,
                          const std::string& parameters, const std::string& bytes) {
    out += fmt::format("  {:<16}{:>10}{:>20}{:>20}\n", name, tensors, parameters, bytes);
  };
  row("part", "tensors", "parameters", "bytes");
  for (const PartTotals& part : parts_) {
    row(ModelPartName(part.part), Grouped(part.tensors), Grouped(part.parameters),
        Grouped(part.bytes));
  }
  row("total", Grouped(tensors_), Grouped(parameters_), Grouped(tensor_bytes_));
  return out;
}

std::string InspectReport::CacheText() const {
  std::string out = "Cache of one sequence\n";
  for (const std::string& line : cache_.kv_derivation) out += fmt::format("  {}\n", line);
  out += fmt::format("  full context of {} tokens: {:.4g} GB\n", Grouped(cache_.context_tokens),
                     cache_.kv_bytes_at_context / kBytesPerGigabyte);
  out += "State that does not grow\n";
  out += fmt::format("  window rings: {} = {} B\n", cache_.window_derivation,
                     Grouped(cache_.window_state_bytes));
  out += fmt::format("  open compressor groups: {} B\n", Grouped(cache_.open_group_bytes));
  out += fmt::format("  Engram history: {} B\n", Grouped(cache_.engram_history_bytes));
  return out;
}

std::string InspectReport::ToText() const {
  std::string out = LayersText() + "\n" + PartsText() + "\n" + CacheText();
  if (has_checkpoint_) {
    out += fmt::format(
        "\nCheckpoint {}\n  {} shard{}, {} bytes; every tensor is as config.json "
        "demands\n",
        directory_, shard_count_, shard_count_ == 1 ? "" : "s",
        Grouped(static_cast<int64_t>(file_bytes_)));
  }
  return out;
}

Json InspectReport::ToJson() const {
  JsonObject parameters;
  JsonArray parts;
  for (const PartTotals& part : parts_) {
    parameters.emplace_back(ModelPartName(part.part), part.parameters);
    JsonObject totals;
    totals.emplace_back("part", ModelPartName(part.part));
    totals.emplace_back("tensors", part.tensors);
    totals.emplace_back("bytes", part.bytes);
    parts.emplace_back(std::move(totals));
  }
  parameters.emplace_back("total", parameters_);
  JsonArray derivation;
  for (const std::string& line : cache_.kv_derivation) derivation.emplace_back(line);
  JsonArray layers;
  for (size_t layer = 0; layer < layers_.size(); ++layer) {
    layers.push_back(LayerJson(static_cast<int64_t>(layer), layers_[layer]));
  }
  Json checkpoint;
  if (has_checkpoint_) {
    checkpoint.Set("directory", directory_);
    checkpoint.Set("shards", shard_count_);
    checkpoint.Set("file_bytes", file_bytes_);
  }
  JsonObject report;
  report.emplace_back("tensors", tensors_);
  report.emplace_back("tensor_bytes", tensor_bytes_);
  report.emplace_back("parameters", std::move(parameters));
  report.emplace_back("parts", std::move(parts));
  report.emplace_back("kv_bytes_per_token", Number(cache_.kv_bytes_per_token));
  report.emplace_back("kv_derivation", std::move(derivation));
  report.emplace_back("context_tokens", cache_.context_tokens);
  report.emplace_back("kv_bytes_at_context", Number(cache_.kv_bytes_at_context));
  report.emplace_back("window_state_bytes", cache_.window_state_bytes);
  report.emplace_back("open_group_bytes", cache_.open_group_bytes);
  report.emplace_back("engram_history_bytes", cache_.engram_history_bytes);
  report.emplace_back("layers", std::move(layers));
  report.emplace_back("checkpoint", std::move(checkpoint));
  return report;
}

}  // namespace minke

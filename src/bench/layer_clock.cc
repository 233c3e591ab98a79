#include "bench/layer_clock.h"

#include <algorithm>
#include <string_view>
#include <utility>

#include "bench/layer_cut.h"
#include "core/file.h"

namespace minke {
namespace {

constexpr uint64_t kMarkerBytesMax = uint64_t{64} << 10;
constexpr std::string_view kEngramSuffix = " + Engram";

}  // namespace

LayerClock::LayerClock(const ModelConfig& config)
    : layer_seconds_(static_cast<size_t>(config.num_hidden_layers)),
      expert_seen_(static_cast<size_t>(config.n_routed_experts)) {
  diagnostics_.all_index_scores = false;
  diagnostics_.tensor = [this](std::string_view name, int64_t layer, View<const float>) {
    if (name == "hidden") LayerDone(layer);
  };
  diagnostics_.indices = [this](std::string_view name, int64_t, View<const int32_t> values) {
    if (name == "router_idx") CountExperts(values);
  };
}

void LayerClock::Start() {
  std::fill(layer_seconds_.begin(), layer_seconds_.end(), 0.0);
  chosen_experts_ = 0;
  start_ = last_ = Clock::now();
}

void LayerClock::LayerDone(int64_t layer) {
  const Clock::time_point now = Clock::now();
  layer_seconds_[static_cast<size_t>(layer)] = std::chrono::duration<double>(now - last_).count();
  last_ = now;
}

void LayerClock::CountExperts(View<const int32_t> experts) {
  std::fill(expert_seen_.begin(), expert_seen_.end(), 0);
  for (int64_t row = 0; row < experts.rows; ++row) {
    for (int64_t i = 0; i < experts.cols; ++i) {
      char& seen = expert_seen_[static_cast<size_t>(experts.Row(row)[i])];
      chosen_experts_ += seen == 0 ? 1 : 0;
      seen = 1;
    }
  }
}

void LayerClock::Stop() {
  const Clock::time_point now = Clock::now();
  head_seconds_ = std::chrono::duration<double>(now - last_).count();
  seconds_ = std::chrono::duration<double>(now - start_).count();
}

Result<std::map<std::string, int64_t>> ReadLayerKinds(const std::string& model_dir,
                                                      const ModelConfig& config) {
  const std::string path = JoinPath(model_dir, "minke.json");
  if (!FileExists(path)) return LayerKindCounts(config);
  const std::string text = TRY(ReadFile(path, kMarkerBytesMax));
  const Json marker = TRY(ParseJson(text, path));
  const Json* synthetic = marker.Find("synthetic");
  if (synthetic == nullptr) return LayerKindCounts(config);
  std::map<std::string, int64_t> counts;
  const JsonObject* kinds = TRY(JsonMembers(*synthetic, "layer_kinds", path));
  for (const JsonMember& kind : *kinds) {
    counts[kind.first] = TRY(JsonInt(*synthetic->Find("layer_kinds"), kind.first, path));
  }
  return counts;
}

KindTimes::KindTimes(const ModelConfig& config, std::map<std::string, int64_t> weights)
    : weights_(std::move(weights)) {
  for (const LayerRole& role : config.layers) {
    kinds_.push_back(LayerKind(role));
    samples_[kinds_.back()];
  }
}

void KindTimes::Add(const LayerClock& clock) {
  std::vector<double> seconds;
  for (size_t layer = 0; layer < kinds_.size(); ++layer) {
    seconds.push_back(clock.layer_seconds(static_cast<int64_t>(layer)));
  }
  Add(seconds, clock.head_seconds());
}

void KindTimes::Add(const std::vector<double>& layer_seconds, double head_seconds) {
  for (auto& [kind, samples] : samples_) {
    double sum = 0;
    int64_t count = 0;
    for (size_t layer = 0; layer < kinds_.size(); ++layer) {
      if (kinds_[layer] != kind) continue;
      sum += layer_seconds[layer];
      ++count;
    }
    samples.Add(sum / static_cast<double>(count));
  }
  head_.Add(head_seconds);
}

std::string KindTimes::Present(const std::string& kind) const {
  if (samples_.contains(kind)) return kind;
  const bool engram = kind.ends_with(kEngramSuffix);
  const std::string other = engram ? kind.substr(0, kind.size() - kEngramSuffix.size())
                                   : kind + std::string(kEngramSuffix);
  return samples_.contains(other) ? other : std::string();
}

double KindTimes::Seconds(const std::string& kind) const {
  const auto found = samples_.find(kind);
  return found == samples_.end() ? 0 : found->second.Median();
}

double KindTimes::WeightedSeconds() const {
  double sum = head_.Median();
  for (const auto& [kind, count] : weights_) {
    const std::string present = Present(kind);
    if (!present.empty()) sum += static_cast<double>(count) * Seconds(present);
  }
  return sum;
}

std::vector<std::string> KindTimes::MissingKinds() const {
  std::vector<std::string> missing;
  for (const auto& [kind, count] : weights_) {
    if (Present(kind).empty()) missing.push_back(kind);
  }
  return missing;
}

Json KindTimes::ToJson() const {
  JsonArray kinds;
  for (const auto& [kind, samples] : samples_) {
    const auto weight = weights_.find(kind);
    Json json;
    json.Set("kind", kind);
    json.Set("layers", weight == weights_.end() ? int64_t{0} : weight->second);
    json.Set("seconds", samples.Median());
    kinds.push_back(std::move(json));
  }
  JsonArray missing;
  for (const std::string& kind : MissingKinds()) missing.emplace_back(kind);
  Json json;
  json.Set("kinds", std::move(kinds));
  json.Set("head_seconds", HeadSeconds());
  json.Set("weighted_seconds", WeightedSeconds());
  json.Set("missing_kinds", std::move(missing));
  return json;
}

}  // namespace minke

// Where the time of a call goes: seconds of every layer, and their sum over the layers of a larger
// model of which this one has some.
#pragma once

#include <chrono>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "bench/samples.h"
#include "core/json.h"
#include "core/result.h"
#include "model/config.h"
#include "model/layers.h"

namespace minke {

// Looks into calls of one model, one after the other.
class LayerClock {
 public:
  explicit LayerClock(const ModelConfig& config);
  LayerClock(const LayerClock&) = delete;
  LayerClock& operator=(const LayerClock&) = delete;

  // For Model::Forward(); lives as long as the clock.
  const Diagnostics* diagnostics() const { return &diagnostics_; }
  void Start();
  void Stop();  // after the call

  // Of the last call.
  double seconds() const { return seconds_; }
  double layer_seconds(int64_t layer) const { return layer_seconds_[static_cast<size_t>(layer)]; }
  double head_seconds() const { return head_seconds_; }
  // Distinct routed experts of a layer, summed over layers.
  int64_t chosen_experts() const { return chosen_experts_; }

 private:
  using Clock = std::chrono::steady_clock;

  void LayerDone(int64_t layer);
  void CountExperts(View<const int32_t> experts);

  Diagnostics diagnostics_;
  Clock::time_point start_;
  Clock::time_point last_;
  double seconds_ = 0;
  double head_seconds_ = 0;
  std::vector<double> layer_seconds_;
  std::vector<char> expert_seen_;
  int64_t chosen_experts_ = 0;
};

// Layers of each kind (LayerKind) that the larger model has: "synthetic.layer_kinds" of minke.json
// where `minke bench synth` wrote the model, otherwise those of the model itself.
Result<std::map<std::string, int64_t>> ReadLayerKinds(const std::string& model_dir,
                                                      const ModelConfig& config);

// Times of the layers of one model by kind.
class KindTimes {
 public:
  KindTimes(const ModelConfig& config, std::map<std::string, int64_t> weights);

  void Add(const LayerClock& clock);
  // seconds[layer], for times that are sums over several calls.
  void Add(const std::vector<double>& layer_seconds, double head_seconds);

  // Median seconds of one layer of that kind; 0 if the model has none.
  double Seconds(const std::string& kind) const;
  // Of all layers of the larger model and the head. A kind with an Engram that is not there counts
  // as the kind without, and the other way round.
  double WeightedSeconds() const;
  // Kinds of the larger model that this one has not: their time is missing in the sum.
  std::vector<std::string> MissingKinds() const;
  const std::map<std::string, int64_t>& weights() const { return weights_; }
  double HeadSeconds() const { return head_.Median(); }
  // {"kinds": [{"kind", "layers", "seconds"}], "head_seconds", "weighted_seconds", "missing_kinds"}
  Json ToJson() const;

 private:
  std::string Present(const std::string& kind) const;

  std::vector<std::string> kinds_;          // by layer
  std::map<std::string, Samples> samples_;  // means over the layers of a kind, a call each
  std::map<std::string, int64_t> weights_;
  Samples head_;
};

}  // namespace minke

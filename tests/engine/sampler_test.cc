#include "engine/sampler.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace minke {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

Sampler MakeSampler(const SamplingOptions& options, size_t vocab_size) {
  Result<Sampler> sampler = Sampler::Create(options, static_cast<int64_t>(vocab_size));
  EXPECT_TRUE(sampler.has_value()) << sampler.error().message;
  return std::move(sampler).value();
}

int32_t SampleOnce(const SamplingOptions& options, const std::vector<float>& logits,
                   int64_t position = 0) {
  Sampler sampler = MakeSampler(options, logits.size());
  Result<int32_t> id = sampler.Sample(logits, position);
  EXPECT_TRUE(id.has_value()) << id.error().message;
  return id.value_or(-1);
}

std::set<int32_t> Kept(const SamplingOptions& options, const std::vector<float>& logits) {
  Sampler sampler = MakeSampler(options, logits.size());
  Result<std::span<const Candidate>> candidates = sampler.Filter(logits);
  EXPECT_TRUE(candidates.has_value()) << candidates.error().message;
  std::set<int32_t> ids;
  for (const Candidate& candidate : *candidates) ids.insert(candidate.id);
  EXPECT_EQ(ids.size(), candidates->size());
  return ids;
}

std::vector<double> Softmax(const std::vector<float>& logits, double temperature) {
  std::vector<double> p;
  double mass = 0;
  for (float logit : logits) {
    p.push_back(std::exp(static_cast<double>(logit) / temperature));
    mass += p.back();
  }
  for (double& value : p) value /= mass;
  return p;
}

// Pearson's statistic of draws at consecutive positions against expected probabilities.
double ChiSquare(const SamplingOptions& options, const std::vector<float>& logits,
                 const std::vector<double>& expected, int draws) {
  Sampler sampler = MakeSampler(options, logits.size());
  std::vector<int> counts(logits.size(), 0);
  for (int i = 0; i < draws; ++i) {
    ++counts[static_cast<size_t>(sampler.Sample(logits, i).value())];
  }
  double statistic = 0;
  for (size_t i = 0; i < counts.size(); ++i) {
    const double mean = expected[i] * draws;
    if (mean == 0) {
      EXPECT_EQ(counts[i], 0) << "token " << i << " has probability 0";
      continue;
    }
    statistic += (counts[i] - mean) * (counts[i] - mean) / mean;
  }
  return statistic;
}

TEST(CounterUniform, IsPhiloxAndStaysInsideTheOpenInterval) {
  // Published vector of Philox4x32-10 for counter 0 and key 0: 6627e8d5 e169c58d bc57ac4c 9b00dbd8.
  const uint64_t word = 0xe169c58d6627e8d5;
  EXPECT_EQ(CounterUniform(0, 0, 0), (static_cast<double>(word >> 12) + 0.5) * 0x1p-52);
  for (uint32_t id = 0; id < 10000; ++id) {
    const double u = CounterUniform(~uint64_t{0}, 7, id);
    EXPECT_GT(u, 0.0);
    EXPECT_LT(u, 1.0);
  }
  EXPECT_NE(CounterUniform(0, 1, 0), CounterUniform(0, 0, 1));
  EXPECT_NE(CounterUniform(0, uint64_t{1} << 32, 0), CounterUniform(0, 0, 0));
  EXPECT_NE(CounterUniform(uint64_t{1} << 32, 0, 0), CounterUniform(0, 0, 0));
}

TEST(Sampler, GreedyTakesTheLowerIdOnTies) {
  EXPECT_EQ(SampleOnce({}, {0.5f, 2.0f, -1.0f, 2.0f}), 1);
  EXPECT_EQ(SampleOnce({}, {-0.0f, 0.0f}), 0);
  EXPECT_EQ(SampleOnce({}, {-kInfinity, -3.0f}), 1);
}

TEST(Sampler, WithoutFiltersDrawsTheSoftmax) {
  const std::vector<float> logits = {1.0f, 0.0f, -1.0f, 2.0f, 0.5f, -2.0f, 1.5f, 0.25f};
  for (double temperature : {0.5, 1.0, 2.0}) {
    SamplingOptions options{.temperature = temperature};
    options.seed = 1234;
    // 7 degrees of freedom: 24.3 is exceeded once in 1000 by a correct sampler; the seed is fixed.
    EXPECT_LT(ChiSquare(options, logits, Softmax(logits, temperature), 40000), 24.3);
    // The check can fail: the wrong temperature is far outside.
    EXPECT_GT(ChiSquare(options, logits, Softmax(logits, temperature * 1.2), 40000), 100.0);
  }
}

// The draw leaves out logarithms that cannot decide it; the formula has all of them.
TEST(Sampler, DrawsWhatTheWholeFormulaDraws) {
  std::mt19937 random(5);
  std::normal_distribution<float> normal(0.0f, 4.0f);
  for (const double temperature : {1e-5, 0.3, 1.0, 2.0, 100.0}) {
    std::vector<float> logits(3000);
    for (float& logit : logits) logit = normal(random);
    Sampler sampler = MakeSampler({.temperature = temperature, .seed = 11}, logits.size());
    for (int64_t position = 0; position < 300; ++position) {
      double best = -std::numeric_limits<double>::infinity();
      int32_t expected = -1;
      for (size_t id = 0; id < logits.size(); ++id) {
        const double uniform =
            CounterUniform(11, static_cast<uint64_t>(position), static_cast<uint32_t>(id));
        const double noisy = logits[id] * (1.0 / temperature) - std::log(-std::log(uniform));
        if (noisy <= best) continue;
        best = noisy;
        expected = static_cast<int32_t>(id);
      }
      ASSERT_EQ(sampler.Sample(logits, position).value(), expected) << temperature;
    }
  }
}

TEST(Sampler, FiltersRenormaliseWhatTheyLeave) {
  const std::vector<float> logits = {1.0f, 0.0f, -1.0f, 2.0f, 0.5f};
  SamplingOptions options{.temperature = 1.0, .top_k = 3};
  options.seed = 99;
  std::vector<double> expected = Softmax(logits, 1.0);
  const double mass = expected[0] + expected[3] + expected[4];
  expected = {expected[0] / mass, 0, 0, expected[3] / mass, expected[4] / mass};
  EXPECT_LT(ChiSquare(options, logits, expected, 40000), 13.8);  // 2 degrees, once in 1000
}

TEST(Sampler, SeedAndPositionFixTheDraw) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> logits(500);
  for (float& logit : logits) logit = normal(random);
  SamplingOptions options{.temperature = 1.0};
  options.seed = 42;
  Sampler one = MakeSampler(options, logits.size());
  Sampler other = MakeSampler(options, logits.size());
  // Draws of another position in between, in another order, change nothing.
  std::vector<int32_t> forward;
  for (int64_t position = 0; position < 64; ++position) {
    forward.push_back(one.Sample(logits, position).value());
  }
  std::set<int32_t> distinct(forward.begin(), forward.end());
  EXPECT_GT(distinct.size(), 20u);
  for (int64_t position = 63; position >= 0; --position) {
    EXPECT_EQ(other.Sample(logits, position).value(), forward[static_cast<size_t>(position)]);
  }
  options.seed = 43;
  int different = 0;
  for (int64_t position = 0; position < 64; ++position) {
    different += SampleOnce(options, logits, position) != forward[static_cast<size_t>(position)];
  }
  EXPECT_GT(different, 40);
}

TEST(Sampler, AFilterThatKeepsTheWinnerKeepsTheDraw) {
  std::mt19937 random(8);
  std::normal_distribution<float> normal;
  std::vector<float> logits(200);
  for (float& logit : logits) logit = normal(random);
  int same = 0;
  for (int64_t position = 0; position < 100; ++position) {
    const int32_t free = SampleOnce({.temperature = 1.0}, logits, position);
    const std::set<int32_t> kept = Kept({.temperature = 1.0, .top_k = 150}, logits);
    if (kept.count(free) == 0) continue;
    ++same;
    EXPECT_EQ(SampleOnce({.temperature = 1.0, .top_k = 150}, logits, position), free);
  }
  EXPECT_GT(same, 50);
}

TEST(Sampler, TopKKeepsExactlyKAndLowerIdsOnTies) {
  const std::vector<float> logits = {1, 3, 3, 3, 0};
  EXPECT_EQ(Kept({.temperature = 1.0, .top_k = 1}, logits), (std::set<int32_t>{1}));
  EXPECT_EQ(Kept({.temperature = 1.0, .top_k = 2}, logits), (std::set<int32_t>{1, 2}));
  EXPECT_EQ(Kept({.temperature = 1.0, .top_k = 5}, logits).size(), 5u);
  EXPECT_EQ(Kept({.temperature = 1.0, .top_k = 500}, logits).size(), 5u);
}

TEST(Sampler, TopPTakesTheFewestThatHoldTheMass) {
  // Probabilities 1/2, 1/4, 1/8, 1/8.
  const float step = std::log(2.0f);
  const std::vector<float> logits = {0, 2 * step, 0, step};
  EXPECT_EQ(Kept({.temperature = 1.0, .top_p = 1e-300}, logits), (std::set<int32_t>{1}));
  EXPECT_EQ(Kept({.temperature = 1.0, .top_p = 0.49}, logits), (std::set<int32_t>{1}));
  EXPECT_EQ(Kept({.temperature = 1.0, .top_p = 0.51}, logits), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(Kept({.temperature = 1.0, .top_p = 0.8}, logits), (std::set<int32_t>{0, 1, 3}));
  EXPECT_EQ(Kept({.temperature = 1.0, .top_p = 0.999}, logits).size(), 4u);
  EXPECT_EQ(Kept({.temperature = 1.0, .top_p = 1.0}, logits).size(), 4u);
  // After top-k 2 the best token holds 2/3, so 0.6 is enough with it alone.
  EXPECT_EQ(Kept({.temperature = 1.0, .top_k = 2, .top_p = 0.6}, logits), (std::set<int32_t>{1}));
  // Temperature comes before: at 1/2 the best holds 16/22.
  EXPECT_EQ(Kept({.temperature = 0.5, .top_p = 0.7}, logits), (std::set<int32_t>{1}));
}

TEST(Sampler, TopPAgreesWithASortOnRandomRows) {
  std::mt19937 random(9);
  std::normal_distribution<float> normal(0, 2);
  for (int round = 0; round < 50; ++round) {
    std::vector<float> logits(1 + static_cast<size_t>(random() % 300));
    for (float& logit : logits) logit = normal(random);
    const double top_p = 0.02 + 0.02 * (round % 49);
    std::vector<double> p = Softmax(logits, 1.0);
    std::vector<size_t> order(logits.size());
    for (size_t i = 0; i < order.size(); ++i) order[i] = i;
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return p[a] > p[b]; });
    std::set<int32_t> expected;
    double held = 0;
    for (size_t i : order) {
      if (held >= top_p) break;
      held += p[i];
      expected.insert(static_cast<int32_t>(i));
    }
    EXPECT_EQ(Kept({.temperature = 1.0, .top_p = top_p}, logits), expected) << top_p;
  }
}

TEST(Sampler, MinPIsRelativeToTheBest) {
  const float step = std::log(2.0f);
  const std::vector<float> logits = {0, 3 * step, step, 2 * step};  // shares 1/8, 1, 1/4, 1/2
  EXPECT_EQ(Kept({.temperature = 1.0, .min_p = 0.0}, logits).size(), 4u);
  EXPECT_EQ(Kept({.temperature = 1.0, .min_p = 0.2}, logits), (std::set<int32_t>{1, 2, 3}));
  EXPECT_EQ(Kept({.temperature = 1.0, .min_p = 0.4}, logits), (std::set<int32_t>{1, 3}));
  EXPECT_EQ(Kept({.temperature = 1.0, .min_p = 1.0}, logits), (std::set<int32_t>{1}));
}

TEST(Sampler, PenaltiesActOnSeenTokens) {
  const std::vector<float> logits = {2.0f, 1.9f, -1.0f, -1.1f};
  SamplingOptions options;
  options.repetition_penalty = 1.5;
  Sampler repetition = MakeSampler(options, 4);
  EXPECT_EQ(repetition.Sample(logits, 0).value(), 0);
  repetition.AddPrompt(std::vector<int32_t>{0});
  EXPECT_EQ(repetition.Sample(logits, 0).value(), 1);

  options = {};
  options.presence_penalty = 0.2;
  Sampler presence = MakeSampler(options, 4);
  presence.AddPrompt(std::vector<int32_t>{0});  // the prompt does not count
  EXPECT_EQ(presence.Sample(logits, 0).value(), 0);
  presence.AddAnswer(0);
  EXPECT_EQ(presence.Sample(logits, 0).value(), 1);

  options = {};
  options.frequency_penalty = 0.06;
  Sampler frequency = MakeSampler(options, 4);
  frequency.AddAnswer(0);
  EXPECT_EQ(frequency.Sample(logits, 0).value(), 0);
  frequency.AddAnswer(0);
  EXPECT_EQ(frequency.Sample(logits, 0).value(), 1);

  // A repetition penalty pushes negative logits further down.
  options = {};
  options.repetition_penalty = 1.5;
  Sampler negative = MakeSampler(options, 2);
  negative.AddPrompt(std::vector<int32_t>{0});
  EXPECT_EQ(negative.Sample(std::vector<float>{-1.0f, -1.1f}, 0).value(), 1);
}

TEST(Sampler, BiasMovesTokens) {
  SamplingOptions options;
  options.logit_bias = {{2, 5.0}, {1, -1000.0}};
  EXPECT_EQ(SampleOnce(options, {1, 4, 0}), 2);
}

TEST(Sampler, LogitsThatAreNoNumbersAreErrors) {
  for (float bad : {std::numeric_limits<float>::quiet_NaN(), kInfinity}) {
    for (double temperature : {0.0, 1.0}) {
      Sampler sampler = MakeSampler({.temperature = temperature}, 3);
      Result<int32_t> id = sampler.Sample(std::vector<float>{0, bad, 0}, 0);
      ASSERT_FALSE(id.has_value());
      EXPECT_NE(id.error().message.find("token 1"), std::string::npos) << id.error().message;
    }
  }
  Sampler sampler = MakeSampler({.temperature = 1.0}, 2);
  EXPECT_FALSE(sampler.Sample(std::vector<float>{-kInfinity, -kInfinity}, 0).has_value());
  EXPECT_EQ(sampler.Sample(std::vector<float>{-kInfinity, 0}, 0).value(), 1);
}

TEST(Sampler, ExtremeLogitsAndTemperaturesStayFinite) {
  const std::vector<float> logits = {3e38f, -3e38f, 1.0f};
  for (double temperature : {1e-320, 1e-5, 1.0, 100.0}) {
    for (double top_p : {1.0, 0.5}) {
      EXPECT_EQ(SampleOnce({.temperature = temperature, .top_p = top_p}, logits), 0);
    }
  }
}

TEST(Sampler, OptionsOutOfRangeAreNamed) {
  const auto error = [](const SamplingOptions& options) {
    Result<Sampler> sampler = Sampler::Create(options, 10);
    return sampler.has_value() ? std::string() : sampler.error().message;
  };
  const double nan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(error({}), "");
  for (double bad : {-0.1, 100.1, nan}) {
    EXPECT_NE(error({.temperature = bad}).find("temperature"), std::string::npos);
  }
  for (double bad : {0.0, 1.1, nan}) {
    EXPECT_NE(error({.top_p = bad}).find("top_p"), std::string::npos);
  }
  EXPECT_NE(error({.min_p = 1.5}).find("min_p"), std::string::npos);
  EXPECT_NE(error({.top_k = -1}).find("top_k"), std::string::npos);
  EXPECT_NE(error({.repetition_penalty = 0}).find("repetition_penalty"), std::string::npos);
  EXPECT_NE(error({.presence_penalty = 2.1}).find("presence_penalty"), std::string::npos);
  EXPECT_NE(error({.frequency_penalty = -2.1}).find("frequency_penalty"), std::string::npos);
  EXPECT_NE(error({.logprobs = 21}).find("logprobs"), std::string::npos);
  EXPECT_NE(error({.logit_bias = {{10, 1.0}}}).find("token 10"), std::string::npos);
  EXPECT_NE(error({.logit_bias = {{3, 1001.0}}}).find("logit_bias"), std::string::npos);
}

TEST(Logprobs, AreTheLogSoftmaxBestFirst) {
  const std::vector<float> logits = {0.0f, 2.0f, 1.0f, 2.0f};
  const std::vector<double> p = Softmax(logits, 1.0);
  const Logprobs result = ComputeLogprobs(logits, 2, 3);
  EXPECT_EQ(result.chosen.id, 2);
  EXPECT_NEAR(result.chosen.logprob, std::log(p[2]), 1e-12);
  ASSERT_EQ(result.best.size(), 3u);
  EXPECT_EQ(result.best[0].id, 1);
  EXPECT_EQ(result.best[1].id, 3);
  EXPECT_EQ(result.best[2].id, 2);
  EXPECT_NEAR(result.best[0].logprob, std::log(p[1]), 1e-12);
  EXPECT_EQ(ComputeLogprobs(logits, 0, 100).best.size(), 4u);
}

struct Stopped {
  std::string text;
  std::string stop;
};

Stopped RunStops(const std::vector<std::string>& stops, const std::vector<std::string>& pieces) {
  StopMatcher matcher(stops);
  Stopped result;
  for (const std::string& piece : pieces) {
    result.text += matcher.Push(piece);
    if (matcher.matched()) {
      result.stop = matcher.match();
      return result;
    }
  }
  result.text += matcher.Flush();
  return result;
}

TEST(StopMatcher, FindsStopsAcrossPieces) {
  const Stopped found = RunStops({"END"}, {"abc E", "N", "D rest"});
  EXPECT_EQ(found.text, "abc ");
  EXPECT_EQ(found.stop, "END");
  EXPECT_EQ(RunStops({"END"}, {"abc E", "N", "d"}).text, "abc ENd");
  EXPECT_EQ(RunStops({"END"}, {"abc EN"}).text, "abc EN");
  EXPECT_EQ(RunStops({"aab"}, {"aaab"}).text, "a");
  EXPECT_EQ(RunStops({}, {"anything"}).text, "anything");
}

TEST(StopMatcher, HoldsBackOnlyWhatMayBecomeAStop) {
  StopMatcher matcher({"世界", "\n\n"});
  EXPECT_EQ(matcher.Push("你好"), "你好");
  EXPECT_EQ(matcher.Push("a\n"), "a");
  EXPECT_EQ(matcher.Push("b世"), "\nb");
  EXPECT_EQ(matcher.Push("人"), "世人");
  EXPECT_EQ(matcher.Flush(), "");
}

TEST(StopMatcher, EarliestEndWinsThenTheLongest) {
  EXPECT_EQ(RunStops({"b", "abc"}, {"xabc"}).text, "xa");
  EXPECT_EQ(RunStops({"c", "abc"}, {"xabc"}).text, "x");
  EXPECT_EQ(RunStops({"c", "abc"}, {"xabc"}).stop, "abc");
}

TEST(StopMatcher, OutcomeDoesNotDependOnTheCut) {
  std::mt19937 random(11);
  int matched = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<std::string> stops(1 + random() % 3);
    for (std::string& stop : stops) {
      for (size_t size = 1 + random() % 4; size > 0; --size) stop += "ab"[random() % 2];
    }
    std::string text;
    for (size_t size = random() % 20; size > 0; --size) text += "abc"[random() % 3];
    std::vector<std::string> pieces;
    for (size_t begin = 0; begin < text.size();) {
      const size_t size = 1 + random() % 5;
      pieces.push_back(text.substr(begin, size));
      begin += size;
    }
    const Stopped whole = RunStops(stops, {text});
    const Stopped cut = RunStops(stops, pieces);
    EXPECT_EQ(whole.text, cut.text) << text;
    EXPECT_EQ(whole.stop, cut.stop) << text;
    for (const std::string& stop : stops) {
      EXPECT_EQ(cut.text.find(stop), std::string::npos) << text << " " << stop;
    }
    matched += cut.stop.empty() ? 0 : 1;
  }
  EXPECT_GT(matched, 500);
}

}  // namespace
}  // namespace minke

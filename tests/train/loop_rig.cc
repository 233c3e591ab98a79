#include "tests/train/loop_rig.h"

#include <gtest/gtest.h>

#include <utility>

#include "core/file.h"
#include "core/json.h"

namespace minke::testing {

using train::Row;
using train::TargetKind;

Row PairRows::Make(const train::RowRequest& request) const {
  Row row;
  for (int64_t i = 0; i < request.length; ++i) {
    const bool second = i % 2 == 1;
    const double uniform = train::UniformOf(request.seed, request.step, request.index * 10'000 + i,
                                            static_cast<uint64_t>(request.kind));
    const auto fresh = static_cast<int32_t>(uniform * (kRigVocabulary / 2));
    row.ids.push_back(second ? row.ids.back() + kRigVocabulary / 2 : fresh);
    const bool value = !second && i + 1 < request.length;
    row.weights.push_back(i + 1 < request.length ? 1.0F : 0.0F);
    const bool plain = request.kind == train::RowKind::kPlain;
    row.targets.push_back(plain || !value ? TargetKind::kText : TargetKind::kFirst);
  }
  return row;
}

std::unique_ptr<Rig> MakeRig(const std::string& folder, int64_t replicas, const std::string& plan) {
  auto config = train::ParseTrainingConfig(plan, "plan");
  CHECK(config.has_value(), config ? "" : config.error().message);
  ModelConfig model_config;
  model_config.vocab_size = kRigVocabulary;
  model_config.hidden_size = 16;
  model_config.sliding_window = 8;
  auto model = train::Model::Create(model_config, {}, config->seed);
  CHECK(model.has_value());
  train::RunIdentity identity{config->digest, "m", "t", "c", config->seed, replicas};
  auto rig = std::make_unique<Rig>();
  rig->trainer = std::make_unique<train::Trainer>(std::move(*config), std::move(identity),
                                                  std::move(*model), rig->rows, folder);
  return rig;
}

std::vector<double> LoggedLosses(const std::string& folder) {
  std::vector<double> losses;
  const auto text = ReadFile(JoinPath(folder, train::kLogFileName), train::kLogBytesMax);
  EXPECT_TRUE(text) << text.error().message;
  size_t begin = 0;
  for (size_t end = text->find('\n'); end != std::string::npos; end = text->find('\n', begin)) {
    const auto line = ParseJson(std::string_view(*text).substr(begin, end - begin), "log");
    EXPECT_TRUE(line) << line.error().message;
    EXPECT_EQ(line->Find("step")->as_int(), static_cast<int64_t>(losses.size()) + 1);
    losses.push_back(line->Find("loss")->as_double());
    begin = end + 1;
  }
  EXPECT_EQ(begin, text->size());  // no half line
  return losses;
}

}  // namespace minke::testing

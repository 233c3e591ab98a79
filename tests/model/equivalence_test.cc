// The equivalences are the product: any cutting of a prompt, any number of threads, any company
// in a call, and any number of rejected rows give the same bits.
#include <cstring>

#include <gtest/gtest.h>

#include "tests/model/golden_model.h"
#include "tests/support/resident_memory.h"

namespace minke::testing {
namespace {

bool SameBits(View<const float> a, View<const float> b) {
  return a.rows == b.rows && a.cols == b.cols &&
         std::memcmp(a.data, b.data, static_cast<size_t>(a.rows * a.cols) * sizeof(float)) == 0;
}

class Equivalence : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    model_ = LoadGoldenModel(GetParam(), Numerics::Official(), FastKernels());
    tokens_ = GoldenPrompt(GetParam());
    if (tokens_.size() > kTokensMax) tokens_.resize(kTokensMax);
    whole_ = RunTokens(*model_, tokens_);
  }
  // Odd; above two blocks of 128, or one where a sanitizer takes its time.
  static constexpr size_t kTokensMax = kSanitized ? 141 : 301;
  std::unique_ptr<Model> model_;
  std::vector<int32_t> tokens_;
  Matrix<float> whole_;
};

TEST_P(Equivalence, AnyChunkSize) {
  for (int64_t chunk : Values({1, 2, 3, 7, 64, 128}, {7, 128})) {
    const Matrix<float> cut = RunTokens(*model_, tokens_, {.chunk = chunk});
    EXPECT_TRUE(SameBits(cut.view(), whole_.view())) << "chunk " << chunk;
  }
}

TEST_P(Equivalence, DecodeIsPrefill) {
  const int64_t window = model_->config().sliding_window;
  for (int64_t from : Values({1, window - 1, window, window + 1, 60}, {1, window + 1})) {
    if (from >= static_cast<int64_t>(tokens_.size())) continue;
    const Matrix<float> cut = RunTokens(*model_, tokens_, {.chunk = 0, .decode_from = from});
    EXPECT_TRUE(SameBits(cut.view(), whole_.view())) << "decode from " << from;
  }
}

TEST_P(Equivalence, AnyThreadCount) {
  for (int64_t count : Values({2, 5}, {5})) {
    const auto threads = static_cast<int>(count);
    const Matrix<float> usual =
        RunTokens(*model_, tokens_, {.chunk = 7, .decode_from = -1, .threads = threads});
    EXPECT_TRUE(SameBits(usual.view(), whole_.view())) << threads << " threads, chunk 7";
    // Every kernel split into as many shares as there are threads, however small its work.
    const Matrix<float> split = RunTokens(
        *model_, tokens_, {.chunk = 0, .decode_from = -1, .threads = threads, .share_cost_min = 0});
    EXPECT_TRUE(SameBits(split.view(), whole_.view())) << threads << " threads, all split";
  }
}

TEST_P(Equivalence, APrefixHasTheSameRows) {
  for (int64_t length : Values({1, 2, 31, 33, 65, 127, 129}, {2, 33, 129})) {
    if (length > static_cast<int64_t>(tokens_.size())) continue;
    const Matrix<float> part =
        RunTokens(*model_, std::span(tokens_).first(static_cast<size_t>(length)));
    EXPECT_TRUE(SameBits(part.view(), std::as_const(whole_).view().Rows(0, length)))
        << "length " << length;
  }
}

TEST_P(Equivalence, FastKernelsAreTheReference) {
  const auto reference = LoadGoldenModel(GetParam(), Numerics::Official(), ReferenceKernels());
  const auto tokens = std::span(tokens_).first(std::min<size_t>(tokens_.size(), 150));
  const Matrix<float> logits = RunTokens(*reference, tokens);
  EXPECT_TRUE(SameBits(logits.view(), std::as_const(whole_).view().Rows(0, logits.rows())));
}

// One call mixes prefill chunks and decode rows of three sequences; each is as if alone.
TEST_P(Equivalence, BatchIsAlone) {
  const auto count = static_cast<int64_t>(tokens_.size());
  std::vector<std::vector<int32_t>> prompts = {
      tokens_,
      {tokens_.begin() + 3, tokens_.begin() + 3 + count / 2},
      {tokens_.rbegin(), tokens_.rbegin() + count / 3}};
  const std::vector<std::vector<int64_t>> steps = {{1, 40, 1, 1, 9}, {17, 1, 1, 5}, {2, 3, 1}};
  std::vector<Matrix<float>> alone;
  std::vector<std::unique_ptr<SequenceState>> states;
  std::vector<int64_t> done(prompts.size(), 0);
  for (const auto& prompt : prompts) {
    alone.push_back(RunTokens(*model_, prompt));
    states.push_back(model_->NewSequence());
  }
  ThreadPool pool(2);
  Arena arena;
  for (size_t round = 0; round < 12; ++round) {
    std::vector<ForwardRows> call;
    std::vector<size_t> who;
    for (size_t s = 0; s < prompts.size(); ++s) {
      const int64_t left = static_cast<int64_t>(prompts[s].size()) - done[s];
      const int64_t rows = std::min(left, steps[s][round % steps[s].size()]);
      if (rows == 0) continue;
      call.push_back(ForwardRows{
          .state = states[s].get(),
          .tokens = std::span<const int32_t>(prompts[s])
                        .subspan(static_cast<size_t>(done[s]), static_cast<size_t>(rows)),
          .logits_from = round % 2 == 0 ? 0 : rows - 1});
      who.push_back(s);
    }
    ASSERT_FALSE(call.empty());
    int64_t wanted = 0;
    for (const ForwardRows& rows : call) {
      wanted += static_cast<int64_t>(rows.tokens.size()) - rows.logits_from;
    }
    Matrix<float> logits(wanted, model_->config().vocab_size);
    ASSERT_TRUE(model_->Forward(call, logits.view(), pool, arena).has_value());
    int64_t first = 0;
    for (size_t i = 0; i < call.size(); ++i) {
      const auto rows = static_cast<int64_t>(call[i].tokens.size());
      const int64_t shown = rows - call[i].logits_from;
      EXPECT_TRUE(SameBits(
          std::as_const(logits).view().Rows(first, shown),
          std::as_const(alone[who[i]]).view().Rows(done[who[i]] + call[i].logits_from, shown)))
          << "sequence " << who[i] << " round " << round;
      first += shown;
      states[who[i]]->Commit(rows);
      done[who[i]] += rows;
    }
  }
}

// Draft decoding commits fewer rows than it computed: the rest must leave no trace.
TEST_P(Equivalence, RejectedRowsLeaveNoTrace) {
  ThreadPool pool(1);
  Arena arena;
  auto state = model_->NewSequence();
  const auto count = static_cast<int64_t>(tokens_.size());
  std::vector<int32_t> wrong(tokens_.rbegin(), tokens_.rend());
  int64_t done = 0;
  for (int64_t step = 0; done < count; ++step) {
    const int64_t accepted = std::min(1 + step % 4, count - done);
    const int64_t rejected = (step * 7) % 6;
    std::vector<int32_t> rows(tokens_.begin() + done, tokens_.begin() + done + accepted);
    rows.insert(rows.end(), wrong.begin(), wrong.begin() + rejected);
    const ForwardRows call{.state = state.get(), .tokens = rows, .logits_from = 0};
    Matrix<float> logits(accepted + rejected, model_->config().vocab_size);
    ASSERT_TRUE(model_->Forward({&call, 1}, logits.view(), pool, arena).has_value());
    ASSERT_TRUE(SameBits(std::as_const(logits).view().Rows(0, accepted),
                         std::as_const(whole_).view().Rows(done, accepted)))
        << "at " << done;
    state->Commit(step % 5 == 4 ? 0 : accepted);  // now and then nothing is accepted
    done = state->length();
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Equivalence, ::testing::Values("tiny_swa", "full_mini", "wide"));

}  // namespace
}  // namespace minke::testing

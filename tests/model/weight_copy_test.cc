// Weights that were copied into memory of their own give the bits of mapped ones.
#include "model/weight_copy.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "tests/model/golden_model.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke::testing {
namespace {

using Owners = std::vector<int>;
constexpr size_t kPage = kLargePageBytes;

TEST(PageOwners, AreThoseWhoseOutputsAreThere) {
  const std::vector<TensorPlace> one = {{0, 8 * kPage}};
  EXPECT_EQ(PageOwners(one, 0, 8 * kPage, 1), Owners(8, 0));
  EXPECT_EQ(PageOwners(one, 0, 8 * kPage, 2), (Owners{0, 0, 0, 0, 1, 1, 1, 1}));
  EXPECT_EQ(PageOwners(one, 4 * kPage, 7 * kPage, 4), (Owners{2, 2, 3}));
  EXPECT_EQ(PageOwners(one, 0, 8 * kPage, 3), (Owners{0, 0, 0, 1, 1, 2, 2, 2}));
}

TEST(PageOwners, AreCountedInEveryTensorAnew) {
  // A small tensor, a hole, one from the middle of a page on, and the end in a page of its own.
  const std::vector<TensorPlace> places = {
      {0, 4096}, {kPage / 2, 2 * kPage}, {kPage * 5 / 2, 2 * kPage}};
  EXPECT_EQ(PageOwners(places, 0, kPage * 9 / 2, 2), (Owners{0, 1, 0, 1, 1}));
  EXPECT_EQ(PageOwners(places, 0, kPage * 9 / 2, 1024).front(), 0);
  EXPECT_EQ(PageOwners(places, 4 * kPage, kPage * 9 / 2, 1024), Owners{896});
}

TEST(PageOwners, WhatIsNotOfATensorIsSomebodys) {
  const std::vector<TensorPlace> places = {{kPage, 100}};
  EXPECT_EQ(PageOwners(places, 0, 3 * kPage, 4), (Owners{0, 3, 3}));
}

bool SameLogitBits(const Matrix<float>& a, const Matrix<float>& b) {
  return a.rows() == b.rows() && a.cols() == b.cols() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.rows() * a.cols()) * 4) == 0;
}

bool IsMapped(const Model& model, const void* data) {
  const auto& files = model.checkpoint().files();
  return std::any_of(files.begin(), files.end(), [&](const MappedFile& file) {
    return data >= file.bytes().data() && data < file.bytes().data() + file.bytes().size();
  });
}

class CopiedSets : public ::testing::TestWithParam<const char*> {};

TEST_P(CopiedSets, SameBitsAsMapped) {
  std::vector<int32_t> tokens = GoldenPrompt(GetParam());
  tokens.resize(std::min<size_t>(tokens.size(), kSanitized ? 40 : 90));
  const auto mapped = LoadGoldenModel(GetParam(), Numerics::Official(), FastKernels());
  const Matrix<float> expected = RunTokens(*mapped, tokens);
  for (const int threads : {1, 2, 3}) {
    const auto model = LoadGoldenModel(GetParam(), Numerics::Official(), FastKernels());
    uint64_t done = 0;
    uint64_t total = 0;
    {
      ThreadPool pool(threads, kShareCostMin, Pinning::kProcessorEach);
      const Status copied = model->CopyWeights(0, pool, [&](uint64_t so_far, uint64_t of) {
        EXPECT_GT(so_far, done);
        done = so_far;
        total = of;
      });
      ASSERT_TRUE(copied) << copied.error().message;
    }
    EXPECT_EQ(done, total);
    EXPECT_GT(total, 0u);
    EXPECT_TRUE(IsMapped(*mapped, mapped->weights().head.data));
    for (const LayerWeights& layer : model->weights().layers) {
      EXPECT_FALSE(IsMapped(*model, layer.attn.wq_a.data));
      EXPECT_FALSE(IsMapped(*model, layer.attn_norm.data()));
      for (const ExpertWeights& expert : layer.ffn.experts) {
        EXPECT_FALSE(IsMapped(*model, expert.w2.data));
        EXPECT_FALSE(IsMapped(*model, expert.w2.scales));
      }
      if (layer.engram.embed.rows == 0) continue;
      EXPECT_TRUE(IsMapped(*model, layer.engram.embed.codes)) << "a token needs a few rows of it";
      EXPECT_FALSE(IsMapped(*model, layer.engram.wkv.data));
    }
    for (const Cutting& cutting : {Cutting{.chunk = 0, .threads = threads},
                                   Cutting{.chunk = 7, .decode_from = 30, .threads = threads}}) {
      EXPECT_TRUE(SameLogitBits(RunTokens(*model, tokens, cutting), expected))
          << threads << " threads, chunk " << cutting.chunk;
    }
  }
}

std::string CopiedSetName(const ::testing::TestParamInfo<const char*>& param) {
  return param.param;
}
INSTANTIATE_TEST_SUITE_P(Sets, CopiedSets, ::testing::Values("full_mini", "tiny_swa"),
                         CopiedSetName);

TEST(CopyWeights, TooLittleMemoryIsAnErrorWithBothSizes) {
  const auto model = LoadGoldenModel("full_mini", Numerics::Official(), FastKernels());
  ThreadPool pool(2);
  const Status copied = model->CopyWeights(12345, pool, {});
  ASSERT_FALSE(copied);
  EXPECT_EQ(copied.error().code, ErrorCode::kLimit);
  const std::string& message = copied.error().message;
  const size_t take = message.find(" take ");
  ASSERT_NE(take, std::string::npos) << message;
  EXPECT_NE(message.find("12345 bytes"), std::string::npos) << message;
  EXPECT_NE(message.find("--weights-ram"), std::string::npos) << message;
  const int64_t needed = std::atoll(message.c_str() + take + 6);
  EXPECT_FALSE(model->CopyWeights(needed - 1, pool, {}));
  EXPECT_TRUE(model->CopyWeights(needed, pool, {}));
}

TEST(CopyWeights, ATruncatedShardIsAnError) {
  const TempDirectory copy;
  std::filesystem::copy(GoldenPath("tiny_swa"), copy.path(),
                        std::filesystem::copy_options::recursive);
  const Result<ModelConfig> config = LoadConfig(copy.Path("config.json"));
  Result<Checkpoint> checkpoint = Checkpoint::Open(copy.path());
  ASSERT_TRUE(config && checkpoint);
  const std::string shard = checkpoint->files().front().path();
  std::filesystem::resize_file(shard, 8192);
  ThreadPool pool(2);
  const Result<PageMemory> memory = CopyWeights(*config, *checkpoint, 0, pool, {});
  ASSERT_FALSE(memory.has_value());
  EXPECT_EQ(memory.error().code, ErrorCode::kIo);
  EXPECT_NE(memory.error().message.find(shard), std::string::npos) << memory.error().message;
}

}  // namespace
}  // namespace minke::testing

// minke logits in processes of its own: rows, chunks, dumps and hostile token files.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "apps/commands.h"
#include "core/json.h"
#include "tests/apps/process.h"
#include "tests/support/golden.h"

namespace minke::testing {
namespace {

constexpr int64_t kVocabSize = 512;

std::string TokensOf(const std::string& set) {
  const Json golden = GoldenJson(set + "/case.json");
  return DumpJson(*golden.Find("prompt_ids"), JsonStyle::kCompact);
}

Finished RunLogits(const std::string& set, const std::string& tokens, const std::string& out,
                   std::vector<std::string> more) {
  std::vector<std::string> arguments = {"logits", "--model", GoldenPath(set), "--tokens", tokens,
                                        "--out",  out,       "--threads",     "1"};
  arguments.insert(arguments.end(), more.begin(), more.end());
  return RunMinke(arguments);
}

TEST(LogitsCommand, WritesTheGoldenFloat32Rows) {
  const TemporaryFolder folder;
  const std::string tokens = folder.Write("ids.json", TokensOf("tiny_swa"));
  const std::string out = folder.Path("logits.bin");
  const Finished run = RunLogits("tiny_swa", tokens, out, {"--numerics", "f32", "--json"});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json summary = ParseJson(run.out, "output").value();
  EXPECT_EQ(summary.Find("shape")->as_array()[0].as_int(), 77);
  EXPECT_EQ(summary.Find("kernels")->as_string(), "reference");
  const std::string bytes = TemporaryFolder::Read(out);
  ASSERT_EQ(bytes.size(), 77u * kVocabSize * sizeof(float));

  const GoldenMatrix golden = GoldenLogits("tiny_swa", "logits_f32");
  const Json golden_case = GoldenJson("tiny_swa/case.json");
  const std::vector<int32_t> positions =
      GoldenIds(*golden_case.Find("f32_modes")->Find("positions"));
  double difference = 0;
  double largest = 0;
  for (size_t row = 0; row < positions.size(); ++row) {
    for (int64_t i = 0; i < kVocabSize; ++i) {
      float value = 0;
      const auto at = static_cast<size_t>(positions[row] * kVocabSize + i) * sizeof(float);
      std::memcpy(&value, bytes.data() + at, sizeof(value));
      const float expected = golden.Row(static_cast<int64_t>(row))[i];
      difference = std::max(difference, std::fabs(static_cast<double>(value) - expected));
      largest = std::max(largest, std::fabs(static_cast<double>(expected)));
    }
  }
  EXPECT_LT(difference, 2e-4);
  EXPECT_GT(largest, 1.0);
}

TEST(LogitsCommand, ChunksAndDecodingGiveTheSameBytes) {
  const TemporaryFolder folder;
  const std::string tokens = folder.Write("ids.json", TokensOf("tiny_swa"));
  std::string expected;
  for (const std::vector<std::string>& more : {std::vector<std::string>{"--chunk", "0"},
                                               {"--chunk", "7"},
                                               {"--decode-from", "60"},
                                               {"--decode-from", "0"},
                                               {"--decode-from", "77"},
                                               {"--kernels", "reference"}}) {
    const std::string out = folder.Path("logits.bin");
    const Finished run = RunLogits("tiny_swa", tokens, out, more);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    const std::string bytes = TemporaryFolder::Read(out);
    if (expected.empty()) expected = bytes;
    EXPECT_EQ(bytes.size(), 77u * kVocabSize * sizeof(float));
    EXPECT_TRUE(bytes == expected) << more[0] << " " << more[1];
  }
}

TEST(LogitsCommand, DumpsEveryTensorWithItsShape) {
  const TemporaryFolder folder;
  const std::string tokens = folder.Write("ids.txt", "0 5 6 7 8 9 10 11 12 13 14 15\n");
  const std::string dump = folder.Path("dump/tensors");
  const Finished run =
      RunLogits("full_mini", tokens, folder.Path("l.bin"), {"--chunk", "5", "--dump", dump});
  ASSERT_EQ(run.exit_code, 0) << run.err;
  const Json index = ParseJson(TemporaryFolder::Read(dump + "/index.json"), "index").value();
  size_t attention_inputs = 0;
  bool has_indices = false;
  for (const Json& entry : index.Find("tensors")->as_array()) {
    int64_t values = 0;
    for (const Json& part : entry.Find("parts")->as_array()) {
      values += part.as_array()[0].as_int() * part.as_array()[1].as_int();
    }
    const std::string file = dump + "/" + entry.Find("file")->as_string();
    EXPECT_EQ(std::filesystem::file_size(file), static_cast<uint64_t>(values) * 4) << file;
    has_indices = has_indices || entry.Find("dtype")->as_string() == "i32";
    if (entry.Find("name")->as_string() != "attn_in") continue;
    ++attention_inputs;
    EXPECT_EQ(entry.Find("shape")->as_array()[0].as_int(), 12);
  }
  EXPECT_EQ(attention_inputs, 10u);
  EXPECT_TRUE(has_indices);
}

TEST(LogitsCommand, ReferenceArtifactsChangeOnlyDecodedRows) {
  const TemporaryFolder folder;
  const std::string tokens = folder.Write("ids.json", TokensOf("full_mini"));
  std::vector<std::string> bytes;
  for (const char* artifacts : {"", "--reference-artifacts"}) {
    std::vector<std::string> more = {"--decode-from", "561"};
    if (artifacts[0] != '\0') more.push_back(artifacts);
    const std::string out = folder.Path("l.bin");
    const Finished run = RunLogits("full_mini", tokens, out, more);
    ASSERT_EQ(run.exit_code, 0) << run.err;
    bytes.push_back(TemporaryFolder::Read(out));
  }
  const size_t prefill = size_t{561} * kVocabSize * sizeof(float);
  ASSERT_EQ(bytes[0].size(), size_t{601} * kVocabSize * sizeof(float));
  EXPECT_TRUE(bytes[0].substr(0, prefill) == bytes[1].substr(0, prefill));
  EXPECT_FALSE(bytes[0] == bytes[1]);
}

TEST(LogitsCommand, HostileTokenFilesAreRefusedInWords) {
  const TemporaryFolder folder;
  const auto error = [&](std::string_view text) {
    const std::string tokens = folder.Write("ids", text);
    const Finished run = RunLogits("tiny_swa", tokens, folder.Path("l.bin"), {});
    EXPECT_EQ(run.exit_code, 1) << text.substr(0, 40);
    EXPECT_EQ(std::count(run.err.begin(), run.err.end(), '\n'), 1) << run.err;
    EXPECT_TRUE(run.err.starts_with("minke: error: ")) << run.err;
    return run.err;
  };
  EXPECT_NE(error("").find("no token ids"), std::string::npos);
  EXPECT_NE(error("[]").find("no token ids"), std::string::npos);
  EXPECT_NE(error("[0, 512]").find("entry 1 is 512"), std::string::npos);
  EXPECT_NE(error("0 -1").find("entry 1 is -1"), std::string::npos);
  EXPECT_NE(error("0 1 two").find("entry 2"), std::string::npos);
  EXPECT_NE(error("[1.5]").find("entry 0"), std::string::npos);
  error("[1,");
  error("\x1b[31m");
  error(std::string("\0\0\0", 3));
  error(std::string(1 << 20, '['));

  const std::string big = folder.Write("big", "0");
  std::filesystem::resize_file(big, kTokenFileBytesMax + 1);
  const Finished run = RunLogits("tiny_swa", big, folder.Path("l.bin"), {});
  EXPECT_EQ(run.exit_code, 1);
  EXPECT_NE(run.err.find(std::to_string(kTokenFileBytesMax)), std::string::npos) << run.err;
}

TEST(LogitsCommand, OtherMistakesAreNamed) {
  const TemporaryFolder folder;
  const std::string tokens = folder.Write("ids", "0 1 2");
  const std::string out = folder.Path("l.bin");
  EXPECT_NE(RunLogits("tiny_swa", folder.Path("none"), out, {}).err.find("none"),
            std::string::npos);
  EXPECT_NE(RunLogits("tiny_swa", tokens, "/nonexistent/l.bin", {}).err.find("/nonexistent/l.bin"),
            std::string::npos);
  EXPECT_NE(RunLogits("tiny_swa", tokens, out, {"--decode-from", "4"}).err.find("--decode-from"),
            std::string::npos);
  EXPECT_EQ(RunLogits("tiny_swa", tokens, out, {"--numerics", "f16"}).exit_code, 2);
  EXPECT_EQ(RunLogits("tiny_swa", tokens, out, {"--chunk", "-1"}).exit_code, 2);
  EXPECT_EQ(RunMinke({"logits", "--tokens", tokens}).exit_code, 2);
}

}  // namespace
}  // namespace minke::testing

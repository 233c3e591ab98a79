#include "model/weights.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <map>
#include <string>
#include <unordered_set>

#include "checkpoint/safetensors_writer.h"
#include "core/json.h"
#include "tests/model/golden_config.h"
#include "tests/support/golden.h"
#include "tests/support/resident_memory.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::GoldenConfig;
using testing::GoldenPath;
using testing::MemoryBytes;
using testing::TempDirectory;

Checkpoint OpenSet(const std::string& set) {
  auto checkpoint = Checkpoint::Open(GoldenPath(set));
  EXPECT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  return checkpoint ? std::move(*checkpoint) : Checkpoint();
}

// architecture.md 1.4 and 2.1.
TEST(TensorCatalogue, ReleasedTotals) {
  std::map<ModelPart, int64_t> parameters;
  int64_t bytes = 0;
  std::unordered_set<std::string> names;
  const auto catalogue = TensorCatalogue(GoldenConfig("released"));
  for (const TensorSpec& spec : catalogue) {
    parameters[spec.part] += spec.parameters;
    bytes += TensorBytes(spec);
    names.insert(spec.name);
  }
  EXPECT_EQ(catalogue.size(), 96'085u);
  EXPECT_EQ(names.size(), catalogue.size());
  EXPECT_EQ(bytes, 510'286'023'000);
  EXPECT_EQ(parameters[ModelPart::kRoutedExperts], 543'581'798'400);
  EXPECT_EQ(parameters[ModelPart::kBackbone], 6'660'549'744);
  EXPECT_EQ(parameters[ModelPart::kEmbedding], 1'323'832'320);
  EXPECT_EQ(parameters[ModelPart::kEngram], 196'928'504'320);
  EXPECT_EQ(parameters[ModelPart::kDspark], 14'225'362'530);
  EXPECT_EQ(parameters[ModelPart::kVision], 485'253'120 + 15'360);
  int64_t total = 0;
  for (const auto& [part, count] : parameters) total += count;
  EXPECT_EQ(total, 763'205'315'794);
}

// One row of each kind from the table of architecture.md 2.2.
TEST(TensorCatalogue, ReleasedShapes) {
  struct Expected {
    const char* name;
    DType dtype;
    std::vector<int64_t> shape;
  };
  std::map<std::string, TensorSpec> specs;
  for (TensorSpec& spec : TensorCatalogue(GoldenConfig("released"))) {
    const std::string name = spec.name;
    specs.emplace(name, std::move(spec));
  }
  for (const Expected& expected : std::vector<Expected>{
           {"layers.0.attn.attn_sink", DType::kF32, {64}},
           {"layers.0.attn.wq_a.scale", DType::kF8E8M0, {40, 160}},
           {"layers.7.attn.wq_b.weight", DType::kF8E4M3, {32768, 1280}},
           {"layers.39.attn.wo_a.weight", DType::kF8E4M3, {8192, 4096}},
           {"layers.39.attn.wo_b.scale", DType::kF8E8M0, {160, 256}},
           {"layers.3.ffn.gate.bias_vl", DType::kF32, {384}},
           {"layers.3.ffn.experts.383.w1.weight", DType::kI8, {2304, 2560}},
           {"layers.3.ffn.experts.383.w1.scale", DType::kF8E8M0, {2304, 160}},
           {"layers.3.ffn.experts.0.w2.weight", DType::kI8, {5120, 1152}},
           {"layers.3.hc_ffn_fn", DType::kF32, {24, 20480}},
           {"layers.14.attn.compressor.wgate.weight", DType::kBf16, {512, 5120}},
           {"layers.36.attn.indexer.weights_proj.weight", DType::kBf16, {32, 5120}},
           {"layers.20.attn.indexer.wk.weight", DType::kBf16, {128, 512}},
           {"layers.1.engram.embed.weight", DType::kF8E4M3, {384006168, 256}},
           {"layers.14.engram.embed.scale", DType::kF8E8M0, {384016682, 8}},
           {"layers.1.engram.wkv.scale", DType::kF8E8M0, {800, 192}},
           {"layers.1.engram.q_weight", DType::kBf16, {4, 5120}},
           {"mtp.0.main_proj.weight", DType::kF8E4M3, {5120, 15360}},
           {"mtp.2.markov_head.embed.weight", DType::kBf16, {129280, 256}},
           {"mtp.2.confidence_head.proj.weight", DType::kBf16, {1, 5376}},
           {"mtp.1.ffn.gate.weight", DType::kBf16, {128, 5120}},
           {"vision.patch_embed.proj.weight", DType::kBf16, {1024, 588}},
           {"vision.blocks.31.mlp.w1.weight", DType::kBf16, {5632, 1024}},
           {"aligner.w1.weight", DType::kBf16, {5120, 9216}},
           {"image_newline", DType::kBf16, {5120}}}) {
    ASSERT_TRUE(specs.contains(expected.name)) << expected.name;
    EXPECT_EQ(specs[expected.name].dtype, expected.dtype) << expected.name;
    EXPECT_EQ(specs[expected.name].shape, expected.shape) << expected.name;
  }
  for (const char* absent :
       {"layers.20.attn.compressor.wgate.weight", "layers.24.attn.compressor.wkv.weight",
        "layers.24.attn.indexer.wk.weight", "layers.3.attn.indexer.wq_b.weight",
        "layers.0.engram.wkv.weight", "mtp.1.main_proj.weight", "mtp.0.norm.weight"}) {
    EXPECT_FALSE(specs.contains(absent)) << absent;
  }
}

TEST(BindWeights, EveryGoldenSetIsExactlyItsCatalogue) {
  for (const char* set : {"tiny_swa", "full_mini", "wide", "chat", "dspark", "vision"}) {
    const ModelConfig config = GoldenConfig(set);
    const Checkpoint checkpoint = OpenSet(set);
    const auto weights = BindWeights(config, checkpoint);
    ASSERT_TRUE(weights.has_value()) << weights.error().message;
    EXPECT_EQ(weights->layers.size(), config.layers.size());
    int64_t bytes = 0;
    for (const TensorSpec& spec : TensorCatalogue(config)) bytes += TensorBytes(spec);
    EXPECT_EQ(static_cast<uint64_t>(bytes), checkpoint.tensor_bytes()) << set;
  }
}

TEST(BindWeights, FieldsPointAtTheirTensors) {
  const ModelConfig config = GoldenConfig("full_mini");
  const Checkpoint checkpoint = OpenSet("full_mini");
  const auto weights = BindWeights(config, checkpoint);
  ASSERT_TRUE(weights.has_value()) << weights.error().message;
  const auto data = [&checkpoint](const char* name) { return checkpoint.Find(name)->bytes.data(); };
  const LayerWeights& layer = weights->layers[4];
  EXPECT_EQ(weights->head.data, data("head.weight"));
  EXPECT_EQ(layer.attn.wq_b.data, data("layers.4.attn.wq_b.weight"));
  EXPECT_EQ(reinterpret_cast<const std::byte*>(layer.attn.wq_b.scales),
            data("layers.4.attn.wq_b.scale"));
  EXPECT_EQ(layer.attn.wq_b.format, WeightFormat::kFp8Tile32);
  EXPECT_EQ(layer.attn.wq_b.rows, 4 * 64);
  EXPECT_EQ(layer.attn.wq_b.cols, 64);
  const Weight& w2 = layer.ffn.experts[15].w2;
  EXPECT_EQ(w2.data, data("layers.4.ffn.experts.15.w2.weight"));
  EXPECT_EQ(w2.format, WeightFormat::kFp4Group32);
  EXPECT_EQ(w2.rows, 128);
  EXPECT_EQ(w2.cols, 64);  // logical: two elements a byte
  EXPECT_EQ(layer.hc_ffn.fn.format, WeightFormat::kF32);
  EXPECT_EQ(layer.hc_ffn.scale.size(), 3u);
  EXPECT_EQ(layer.attn.compressor.wgate.format, WeightFormat::kBf16);
  EXPECT_EQ(layer.attn.indexer.k_norm.size(), 64u);
  EXPECT_EQ(reinterpret_cast<const std::byte*>(layer.engram.embed.codes),
            data("layers.4.engram.embed.weight"));
  EXPECT_EQ(layer.engram.embed.rows, 2148);
  EXPECT_EQ(layer.engram.embed.cols, 32);
  EXPECT_EQ(layer.engram.q_weight.size(), 4u * 128);
  // What a layer does not own stays empty.
  EXPECT_EQ(weights->layers[6].attn.compressor.wgate.data, nullptr);
  EXPECT_EQ(weights->layers[8].attn.indexer.wk.data, nullptr);
  EXPECT_EQ(weights->layers[3].attn.indexer.wq_b.data, nullptr);
  EXPECT_EQ(weights->layers[3].engram.embed.codes, nullptr);
}

// The golden file has F32 tensors at addresses that are no multiple of 4.
TEST(BindWeights, OddTensorsAreCopiedToAlignedMemory) {
  const ModelConfig config = GoldenConfig("chat");
  const Checkpoint checkpoint = OpenSet("chat");
  const auto bound = BindWeights(config, checkpoint);
  ASSERT_TRUE(bound.has_value()) << bound.error().message;
  const TensorView& tensor = *checkpoint.Find("layers.2.hc_attn_fn");
  ASSERT_NE(reinterpret_cast<uintptr_t>(tensor.bytes.data()) % 4, 0u);
  const Weight& fn = bound->layers[2].hc_attn.fn;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(fn.data) % 4, 0u);
  EXPECT_EQ(std::memcmp(fn.data, tensor.bytes.data(), tensor.bytes.size()), 0);
  EXPECT_EQ(bound->realigned.size(), 18u);
  const auto sink = bound->layers[2].attn.attn_sink;
  EXPECT_EQ(reinterpret_cast<uintptr_t>(sink.data()) % 4, 0u);
  EXPECT_EQ(std::memcmp(sink.data(), checkpoint.Find("layers.2.attn.attn_sink")->bytes.data(),
                        sink.size_bytes()),
            0);
}

// tiny_swa rewritten with a change.
class Rewritten {
 public:
  explicit Rewritten(const std::function<void(std::vector<TensorToWrite>&)>& change)
      : source_(OpenSet("tiny_swa")), config_(GoldenConfig("tiny_swa")) {
    std::vector<TensorToWrite> tensors;
    for (const auto& [name, tensor] : source_.tensors()) {
      tensors.push_back({name, tensor.dtype, tensor.shape, tensor.bytes});
    }
    change(tensors);
    const auto status = WriteSafetensors(directory_.Path("model.safetensors"), tensors);
    EXPECT_TRUE(status.has_value()) << status.error().message;
  }
  std::string Error() const {
    const auto checkpoint = Checkpoint::Open(directory_.path());
    EXPECT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
    const auto weights = BindWeights(config_, *checkpoint);
    return weights ? std::string() : weights.error().message;
  }
  const TempDirectory& directory() const { return directory_; }

 private:
  TempDirectory directory_;
  Checkpoint source_;
  ModelConfig config_;
};

void ExpectMentions(const std::string& message, std::initializer_list<std::string_view> parts) {
  for (const std::string_view part : parts) {
    EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
  }
}

TEST(BindWeights, AnUnchangedCopyBinds) {
  EXPECT_EQ(Rewritten([](auto&) {}).Error(), "");
}

TEST(BindWeights, MissingTensorsAreCountedAndListed) {
  const Rewritten rewritten([](auto& tensors) {
    std::erase_if(tensors, [](const auto& tensor) {
      return tensor.name.starts_with("layers.1.ffn.experts.7.") || tensor.name == "norm.weight";
    });
  });
  ExpectMentions(rewritten.Error(), {rewritten.directory().path(), "237 tensors", "7 are missing",
                                     "layers.1.ffn.experts.7.w1.weight", "and 2 more"});
}

TEST(BindWeights, ExtraTensorsAreNamedWithTheirFile) {
  const Rewritten rewritten([](auto& tensors) {
    tensors.push_back(tensors.front());
    tensors.back().name = "layers.9.attn_norm.weight";
  });
  ExpectMentions(rewritten.Error(),
                 {"1 others are present", "layers.9.attn_norm.weight", "model.safetensors"});
}

TEST(BindWeights, WrongDtypeAndShape) {
  const auto change = [](std::string_view name, const std::function<void(TensorToWrite&)>& edit) {
    return Rewritten([&](auto& tensors) {
             for (TensorToWrite& tensor : tensors) {
               if (tensor.name == name) edit(tensor);
             }
           })
        .Error();
  };
  ExpectMentions(change("layers.1.attn.wq_a.weight",
                        [](auto& tensor) {
                          tensor.shape = {128, 64};
                        }),
                 {"model.safetensors", "\"layers.1.attn.wq_a.weight\"", "must be F8_E4M3 [64, 128]",
                  "it is F8_E4M3 [128, 64]"});
  ExpectMentions(
      change("layers.0.attn.wkv.weight", [](auto& tensor) { tensor.dtype = DType::kI8; }),
      {"must be F8_E4M3 [64, 128]", "it is I8 [64, 128]"});
  ExpectMentions(change("embed.weight",
                        [](auto& tensor) {
                          tensor.shape = {512, 128, 1};
                        }),
                 {"must be BF16 [512, 128]", "it is BF16 [512, 128, 1]"});
}

// Writes a shard of the specs' sizes whose data is one hole: it takes no disk. False where the file
// system cannot do that. The data starts at a multiple of 8, plus `shift`.
bool WriteSparseShard(const TempDirectory& directory, const std::string& name,
                      const std::vector<const TensorSpec*>& specs, size_t shift) {
  JsonObject header;
  int64_t end = 0;
  for (const TensorSpec* spec : specs) {
    JsonArray shape;
    for (const int64_t dim : spec->shape) shape.emplace_back(dim);
    const int64_t begin = end;
    end += TensorBytes(*spec);
    JsonObject entry{{"dtype", DTypeName(spec->dtype)}};
    entry.emplace_back("shape", std::move(shape));
    entry.emplace_back("data_offsets", JsonArray{begin, end});
    header.emplace_back(spec->name, std::move(entry));
  }
  std::string text = DumpJson(std::move(header), JsonStyle::kCompact);
  text.resize((text.size() + 7) / 8 * 8 + shift, ' ');
  const uint64_t length = text.size();
  std::string file(8, '\0');
  std::memcpy(file.data(), &length, 8);
  file += text;
  directory.Write(name, file);
  return ::truncate(directory.Path(name).c_str(),
                    static_cast<off_t>(file.size()) + static_cast<off_t>(end)) == 0;
}

// The released model as sparse files of its true sizes: 510 GB that take no disk.
class SparseRelease {
 public:
  SparseRelease() : config_(GoldenConfig("released")) {
    std::map<std::string, std::vector<const TensorSpec*>> shards;
    const auto catalogue = TensorCatalogue(config_);
    JsonObject weight_map;
    uint64_t total = 0;
    for (const TensorSpec& spec : catalogue) {
      const std::string shard = ShardOf(spec.name);
      shards[shard].push_back(&spec);
      weight_map.emplace_back(spec.name, shard);
      total += static_cast<uint64_t>(TensorBytes(spec));
    }
    Json index;
    index.Set("metadata", JsonObject{{"total_size", total}});
    index.Set("weight_map", std::move(weight_map));
    directory_.Write("model.safetensors.index.json", DumpJson(index, JsonStyle::kPretty));
    for (const auto& [name, specs] : shards) {
      if (!WriteSparseShard(directory_, name, specs, 0)) sparse_ = false;
    }
  }
  bool sparse() const { return sparse_; }
  const ModelConfig& config() const { return config_; }
  const TempDirectory& directory() const { return directory_; }

 private:
  // A shard a layer, a draft stage and an Engram table, as in the release (architecture.md 2.1).
  static std::string ShardOf(const std::string& name) {
    const bool table = name.find("engram.embed") != std::string::npos;
    std::string stem = name.substr(0, name.find('.'));
    if (stem == "layers" || stem == "mtp") {
      stem += name.substr(name.find('.') + 1, name.find('.', stem.size() + 1) - stem.size() - 1);
    }
    return stem + (table ? "-table" : "") + ".safetensors";
  }

  TempDirectory directory_;
  ModelConfig config_;
  bool sparse_ = true;
};

// 128 columns of BF16: 1,048,576 rows are kRealignedBytesMax exactly.
std::string BindShiftedEmbedding(int64_t vocab_size) {
  const TempDirectory directory;
  ModelConfig config = GoldenConfig("tiny_swa");
  config.vocab_size = vocab_size;
  const auto catalogue = TensorCatalogue(config);
  std::vector<const TensorSpec*> specs;
  for (const TensorSpec& spec : catalogue) {
    if (spec.name == "embed.weight") specs.push_back(&spec);
  }
  // Everything else in a shard of its own, aligned.
  std::vector<const TensorSpec*> others;
  for (const DType dtype :
       {DType::kF32, DType::kBf16, DType::kI8, DType::kF8E4M3, DType::kF8E8M0}) {
    for (const TensorSpec& spec : catalogue) {
      if (spec.dtype == dtype && spec.name != "embed.weight") others.push_back(&spec);
    }
  }
  JsonObject weight_map;
  uint64_t total = 0;
  for (const TensorSpec& spec : catalogue) {
    weight_map.emplace_back(
        spec.name, spec.name == "embed.weight" ? "shifted.safetensors" : "others.safetensors");
    total += static_cast<uint64_t>(TensorBytes(spec));
  }
  Json index;
  index.Set("metadata", JsonObject{{"total_size", total}});
  index.Set("weight_map", std::move(weight_map));
  directory.Write("model.safetensors.index.json", DumpJson(index, JsonStyle::kCompact));
  EXPECT_TRUE(WriteSparseShard(directory, "shifted.safetensors", specs, 1));
  EXPECT_TRUE(WriteSparseShard(directory, "others.safetensors", others, 0));
  const auto checkpoint = Checkpoint::Open(directory.path());
  EXPECT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  if (!checkpoint) return "no checkpoint";
  const auto weights = BindWeights(config, *checkpoint);
  return weights ? std::string() : weights.error().message;
}

TEST(BindWeights, CopiesForAlignmentHaveALimit) {
  constexpr int64_t kRowsAtTheLimit = int64_t{kRealignedBytesMax} / (128 * 2);
  EXPECT_EQ(BindShiftedEmbedding(kRowsAtTheLimit), "");
  ExpectMentions(BindShiftedEmbedding(kRowsAtTheLimit + 1),
                 {"shifted.safetensors", "\"embed.weight\"", "multiple of 2 bytes", "268435456"});
}

TEST(BindWeights, TheReleasedSizesBindInLittleMemory) {
  if (testing::kSanitized) GTEST_SKIP() << "A sanitizer's own memory hides ours.";
  const SparseRelease release;
  if (!release.sparse()) GTEST_SKIP() << "This file system has no sparse files of 100 GB.";
  testing::ForgetPeak();
  const int64_t before = MemoryBytes("VmRSS");
  const auto checkpoint = Checkpoint::Open(release.directory().path());
  ASSERT_TRUE(checkpoint.has_value()) << checkpoint.error().message;
  EXPECT_EQ(checkpoint->tensors().size(), 96'085u);
  EXPECT_EQ(checkpoint->tensor_bytes(), 510'286'023'000u);
  const auto weights = BindWeights(release.config(), *checkpoint);
  ASSERT_TRUE(weights.has_value()) << weights.error().message;
  // 384 million rows of 256: the last row is 98 GB away.
  const EngramTable& table = weights->layers[14].engram.embed;
  EXPECT_EQ(table.rows, 384'016'682);
  EXPECT_EQ(table.codes[table.rows * table.cols - 1], 0);
  EXPECT_LT(MemoryBytes("VmHWM") - before, int64_t{100} << 20);
}

}  // namespace
}  // namespace minke

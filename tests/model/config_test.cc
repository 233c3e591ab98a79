#include "model/config.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "core/json.h"
#include "tests/model/golden_config.h"
#include "tests/support/golden.h"
#include "tests/support/temp_directory.h"

namespace minke {
namespace {

using testing::GoldenConfig;
using testing::GoldenJson;
using testing::GoldenPath;

// full_mini has every mechanism but drafts and vision; dspark has drafts.
struct Mutation {
  const char* section;  // "" for the top level
  const char* key;
  Json value;
  const char* expected;  // must be part of the error
};

std::string ErrorOf(Json root, const Mutation& mutation) {
  Json* section = &root;
  for (auto& [key, value] : root.as_object()) {
    if (key == mutation.section) section = &value;
  }
  section->Set(mutation.key, mutation.value);
  const auto config = ParseConfig(DumpJson(root, JsonStyle::kCompact), "dir/config.json");
  EXPECT_FALSE(config.has_value())
      << mutation.key << " = " << DumpJson(mutation.value, JsonStyle::kCompact);
  return config ? std::string() : config.error().message;
}

void ExpectRefused(const std::string& set, const std::vector<Mutation>& mutations) {
  const Json root = GoldenJson(set + "/config.json");
  for (const Mutation& mutation : mutations) {
    const std::string message = ErrorOf(root, mutation);
    for (const std::string_view part :
         {std::string_view("dir/config.json"), std::string_view(mutation.expected)}) {
      EXPECT_NE(message.find(part), std::string::npos) << part << " in: " << message;
    }
  }
}

TEST(Config, ReadsTheReleasedValues) {
  const ModelConfig config = GoldenConfig("released");
  EXPECT_EQ(config.vocab_size, 129280);
  EXPECT_EQ(config.hidden_size, 5120);
  EXPECT_EQ(config.num_hidden_layers, 40);
  EXPECT_EQ(config.rms_norm_eps, 1e-20);
  EXPECT_EQ(config.gate_temp, 1.0);  // absent in the file
  EXPECT_EQ(config.rope_theta, 10000.0);
  EXPECT_EQ(config.compress_rope_theta, 160000.0);
  EXPECT_EQ(config.rope_scaling.factor, 16.0);
  EXPECT_EQ(config.rope_scaling.original_max_position_embeddings, 65536);
  EXPECT_EQ(config.compress_ratios.size(), 40u);  // draft stages cut off
  EXPECT_EQ(config.image_token_id, 129264);
  EXPECT_EQ(config.engram_columns(), 24);
  EXPECT_EQ(config.kv_source_ratio(2), 2);
  EXPECT_EQ(config.kv_source_ratio(3), 1);
  EXPECT_EQ(config.dspark_target_layer_ids, (std::vector<int64_t>{37, 38, 39}));
  EXPECT_EQ(config.vision.num_hidden_layers, 32);
  EXPECT_EQ(config.vision.patch_size, 14);
}

// The table of architecture.md 1.3, row by row.
TEST(Config, DerivesTheReleasedRoles) {
  const ModelConfig config = GoldenConfig("released");
  ASSERT_EQ(config.layers.size(), 40u);
  int counts[4] = {};
  for (int64_t layer = 0; layer < 40; ++layer) {
    const LayerRole& role = config.layers[static_cast<size_t>(layer)];
    SCOPED_TRACE(layer);
    ++counts[static_cast<int>(role.mode)];
    EXPECT_EQ(role.engram_index, layer == 1 ? 0 : layer == 14 ? 1 : -1);
    EXPECT_EQ(role.publishes_candidates, layer == 20);
    EXPECT_EQ(role.uses_candidates, layer > 20 && layer % 4 == 0);
    if (layer < 2) {
      EXPECT_EQ(role.mode, LayerMode::kSwa);
      EXPECT_EQ(role.kv_source, -1);
      EXPECT_EQ(role.index_source, -1);
      EXPECT_EQ(role.compress_ratio, 0);
      continue;
    }
    const bool encoder = layer < 20;
    const int64_t source = encoder ? 2 + (layer - 2) / 6 * 6 : 20;
    EXPECT_EQ(role.compress_ratio, encoder ? 2 : 1);
    EXPECT_EQ(role.kv_source, source);
    EXPECT_EQ(role.kv_source_index, encoder ? (layer - 2) / 6 : 3);
    EXPECT_EQ(role.index_source, encoder ? source : layer / 4 * 4);
  }
  EXPECT_EQ(counts[static_cast<int>(LayerMode::kSwa)], 2);
  EXPECT_EQ(counts[static_cast<int>(LayerMode::kFull)], 4);
  EXPECT_EQ(counts[static_cast<int>(LayerMode::kReindex)], 4);
  EXPECT_EQ(counts[static_cast<int>(LayerMode::kReuse)], 30);
}

TEST(Config, AcceptsEveryGoldenSet) {
  for (const char* set : {"tiny_swa", "full_mini", "wide", "chat", "dspark", "vision"}) {
    EXPECT_EQ(GoldenConfig(set).layers.size(),
              static_cast<size_t>(GoldenConfig(set).num_hidden_layers))
        << set;
  }
  EXPECT_EQ(GoldenConfig("dspark").num_nextn_predict_layers, 3);
  EXPECT_EQ(GoldenConfig("tiny_swa").candidate_source_layer_id, -1);
}

TEST(Config, GateTempIsReadWhereItIsGiven) {
  Json root = GoldenJson("tiny_swa/config.json");
  for (auto& [key, value] : root.as_object()) {
    if (key == "text_config") value.Set("gate_temp", 0.5);
  }
  const auto config = ParseConfig(DumpJson(root, JsonStyle::kCompact), "config");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->gate_temp, 0.5);
}

TEST(Config, NullRopeScalingMeansNoYarn) {
  Json root = GoldenJson("full_mini/config.json");
  for (auto& [key, value] : root.as_object()) {
    if (key == "text_config") value.Set("rope_scaling", Json());
  }
  const auto config = ParseConfig(DumpJson(root, JsonStyle::kCompact), "config");
  ASSERT_TRUE(config.has_value()) << config.error().message;
  EXPECT_EQ(config->rope_scaling.original_max_position_embeddings, 0);
}

// A decoder half without any compressor or Engram after the last kv source is the released shape.
TEST(Config, LayersAfterTheLastSourceMayOwnNothing) {
  const ModelConfig config = GoldenConfig("released");
  for (size_t layer = 21; layer < 40; ++layer) {
    EXPECT_NE(config.layers[layer].mode, LayerMode::kFull);
    EXPECT_EQ(config.layers[layer].engram_index, -1);
  }
}

TEST(Config, EveryRequiredKeyIsMissed) {
  const Json root = GoldenJson("dspark/config.json");
  // Keys that carry nothing the engine needs.
  const auto optional = [](const std::string& section, const std::string& key) {
    if (section.empty()) return key == "architectures";
    if (section == "text_config") return key == "model_type" || key == "gate_temp";
    return section == "vision_config" &&
           (key == "model_type" || key == "rope_theta" || key == "max_image_tokens" ||
            key == "min_pixels" || key == "max_wh_ratio");
  };
  const auto check = [&](const std::string& section, const JsonObject& members) {
    for (size_t i = 0; i < members.size(); ++i) {
      const std::string& key = members[i].first;
      Json cut = root;
      JsonObject* target = &cut.as_object();
      for (auto& [name, value] : cut.as_object()) {
        if (name == section) target = &value.as_object();
      }
      target->erase(target->begin() + static_cast<ptrdiff_t>(i));
      const auto config = ParseConfig(DumpJson(cut, JsonStyle::kCompact), "dir/config.json");
      if (optional(section, key)) {
        EXPECT_TRUE(config.has_value()) << section << "." << key;
        continue;
      }
      ASSERT_FALSE(config.has_value()) << section << "." << key;
      EXPECT_NE(config.error().message.find("\"" + key + "\""), std::string::npos)
          << config.error().message;
    }
  };
  check("", root.as_object());
  for (const char* section : {"text_config", "vision_config", "quantization_config"}) {
    check(section, root.Find(section)->as_object());
  }
}

TEST(Config, WrongTypesAreRefused) {
  ExpectRefused("full_mini",
                {{"text_config", "hidden_size", "128", "\"hidden_size\" must be an integer"},
                 {"text_config", "hidden_size", 128.0, "\"hidden_size\" must be an integer"},
                 {"text_config", "hidden_size", Json(), "it is null"},
                 {"text_config", "rope_theta", JsonArray{}, "\"rope_theta\" must be a number"},
                 {"text_config", "norm_topk_prob", 1, "\"norm_topk_prob\" must be true or false"},
                 {"text_config", "compress_ratios", 2, "\"compress_ratios\" must be an array"},
                 {"text_config", "kv_source_layer_ids", JsonArray{2, "4"}, "\"4\""},
                 {"text_config", "rope_scaling", 1, "\"rope_scaling\" must be an object"},
                 {"", "text_config", JsonArray{}, "\"text_config\" must be an object"},
                 {"", "vision_config", Json(), "\"vision_config\" must be an object"}});
}

TEST(Config, SizesAreBounded) {
  ExpectRefused(
      "full_mini",
      {{"text_config", "vocab_size", 0, "\"vocab_size\" must be from 1"},
       {"text_config", "vocab_size", kVocabSizeMax + 1, "4194304, but it is 4194305"},
       {"text_config", "hidden_size", int64_t{1} << 62, "\"hidden_size\" must be from"},
       {"text_config", "hidden_size", -32, "\"hidden_size\" must be from"},
       {"text_config", "num_hidden_layers", kLayerCountMax + 1, "1024"},
       {"text_config", "num_hidden_layers", 0, "\"num_hidden_layers\" must be from 1"},
       {"text_config", "n_routed_experts", kExpertCountMax + 1, "4096"},
       {"text_config", "num_experts_per_tok", 17, "must be from 1 to 16, but it is 17"},
       {"text_config", "hc_mult", 17, "\"hc_mult\" must be from 1 to 16"},
       {"text_config", "hc_sinkhorn_iters", 1'000'000, "\"hc_sinkhorn_iters\""},
       {"text_config", "max_position_embeddings", kContextTokensMax + 1, "16777216"},
       {"text_config", "sliding_window", kWindowTokensMax + 1, "65536"},
       {"text_config", "index_topk", kSelectedRowsMax + 1, "65536"},
       {"text_config", "rms_norm_eps", 0, "\"rms_norm_eps\" must be from"},
       {"text_config", "swiglu_limit", -1.0, "\"swiglu_limit\""},
       {"text_config", "engram_max_ngram_size", 9, "from 0 to 8"},
       {"text_config", "engram_num_embeddings", JsonArray{1916, 0}, "an integer from 1"},
       {"text_config", "compress_ratios", JsonArray{0, 4}, "from 0 to 2"},
       {"text_config", "kv_source_layer_ids", JsonArray{2, 4, 10}, "from 0 to 9"},
       {"text_config", "engram_pad_token_id", 512, "from 0 to 511"},
       {"", "bos_token_id", 512, "from 0 to 511"},
       {"", "image_token_id", -2, "from -1 to 511"},
       {"vision_config", "patch_size", kPatchSizeMax + 1, "\"patch_size\""},
       {"vision_config", "num_attention_heads", 15, "multiple of num_attention_heads = 15"}});
}

TEST(Config, TooManyTensorsAreRefused) {
  Json root = GoldenJson("tiny_swa/config.json");
  for (auto& [key, value] : root.as_object()) {
    if (key == "text_config") {
      value.Set("n_routed_experts", kExpertCountMax);
      value.Set("num_hidden_layers", 1000);
    }
  }
  const auto config = ParseConfig(DumpJson(root, JsonStyle::kCompact), "config");
  ASSERT_FALSE(config.has_value());
  EXPECT_NE(config.error().message.find("more than 1048576 tensors"), std::string::npos)
      << config.error().message;
}

TEST(Config, DimensionsFitTheKernels) {
  ExpectRefused("full_mini",
                {{"text_config", "hidden_size", 144, "\"hidden_size\" must be a positive multiple"},
                 {"text_config", "moe_intermediate_size", 48, "\"moe_intermediate_size\""},
                 {"text_config", "head_dim", 80, "\"head_dim\""},
                 {"text_config", "q_lora_rank", 16, "\"q_lora_rank\""},
                 {"text_config", "o_lora_rank", 33, "\"o_lora_rank\""},
                 {"text_config", "index_head_dim", 48, "\"index_head_dim\""},
                 {"text_config", "index_head_dim", 0, "\"index_head_dim\""},
                 {"text_config", "engram_head_dim", 40, "\"engram_head_dim\""},
                 {"text_config", "qk_rope_head_dim", 15, "even"},
                 {"text_config", "qk_rope_head_dim", 66, "head_dim = 64"},
                 {"text_config", "o_groups", 3, "divide num_attention_heads = 4"},
                 {"text_config", "index_n_heads", 0, "\"index_n_heads\" must be at least 1"},
                 {"text_config", "index_topk", 0, "\"index_topk\" must be at least 1"}});
}

TEST(Config, SourcesMustBeConsistent) {
  const Json eleven = JsonArray{0, 0, 2, 2, 2, 2, 1, 1, 1, 1, 1};
  ExpectRefused(
      "full_mini",
      {{"text_config", "compress_ratios", eleven, "it has 11 entries"},
       {"text_config", "compress_ratios", JsonArray{0, 0, 2}, "it has 3 entries"},
       {"text_config", "kv_source_layer_ids", JsonArray{4, 2, 6}, "ascending"},
       {"text_config", "kv_source_layer_ids", JsonArray{2, 2, 6}, "ascending"},
       {"text_config", "index_source_layer_ids", JsonArray{2, 6, 4, 8}, "ascending"},
       {"text_config", "index_source_layer_ids", JsonArray{2, 6, 8}, "kv source 4 must also"},
       {"text_config", "index_source_layer_ids", JsonArray{1, 2, 4, 6}, "index source 1"},
       {"text_config", "kv_source_layer_ids", JsonArray{4, 6}, "layer 2 has compress ratio 2"},
       {"text_config", "kv_source_layer_ids", JsonArray{2, 4}, "its kv source 4 has 2"},
       {"text_config", "candidate_source_layer_id", 5, "must be an index source"},
       {"text_config", "candidate_source_layer_id", 10, "from -1 to 9"},
       {"text_config", "candidate_source_layer_id", 4, "after candidate source 4"},
       {"text_config", "candidate_topk_blocks", 2, "fewer rows than index_topk = 16"},
       {"text_config", "candidate_topk_blocks", 0, "fewer rows"},
       {"text_config", "candidate_block_size", 0, "fewer rows"}});
  ExpectRefused("tiny_swa", {{"text_config", "candidate_source_layer_id", 0, "must be -1"}});
}

// 2 blocks of 8 rows may hold one row and eight: nine, but for index_topk = 10.
TEST(Config, CandidateCapacityIsExact) {
  Json root = GoldenJson("full_mini/config.json");
  const auto with_topk = [&root](int64_t index_topk) {
    for (auto& [key, value] : root.as_object()) {
      if (key != "text_config") continue;
      value.Set("candidate_topk_blocks", 2);
      value.Set("index_topk", index_topk);
    }
    return ParseConfig(DumpJson(root, JsonStyle::kCompact), "config").has_value();
  };
  EXPECT_TRUE(with_topk(9));
  EXPECT_FALSE(with_topk(10));
}

TEST(Config, EngramListsMustMatch) {
  ExpectRefused("full_mini",
                {{"text_config", "engram_num_embeddings", JsonArray{1916}, "2 and 1"},
                 {"text_config", "engram_layer_ids", JsonArray{4, 1}, "ascending"},
                 {"text_config", "engram_n_heads", 0, "\"engram_n_heads\" must be at least 1"},
                 {"text_config", "engram_max_ngram_size", 1, "at least 2"},
                 {"text_config", "engram_vocab_size", 0, "\"engram_vocab_size\""},
                 {"text_config", "engram_compressed_vocab_size", 0, "at least 1"}});
}

TEST(Config, DraftStagesMustBeComplete) {
  const Json ratios = JsonArray{0, 2, 2, 1, 1, 0, 1, 0};
  ExpectRefused("dspark",
                {{"text_config", "dspark_block_size", 0, "\"dspark_block_size\""},
                 {"text_config", "dspark_markov_rank", 0, "\"dspark_markov_rank\""},
                 {"text_config", "dspark_target_layer_ids", JsonArray{}, "at least one layer"},
                 {"text_config", "dspark_target_layer_ids", JsonArray{3, 2, 4}, "ascending"},
                 {"text_config", "dspark_target_layer_ids", JsonArray{2, 3, 5}, "from 0 to 4"},
                 {"text_config", "dspark_n_routed_experts", 0, "\"dspark_num_experts_per_tok\""},
                 {"text_config", "dspark_num_experts_per_tok", 9, "from 0 to 8"},
                 {"text_config", "compress_ratios", ratios, "draft stages must be 0"}});
}

TEST(Config, UnsupportedVariantsAreRefusedInWords) {
  ExpectRefused(
      "full_mini",
      {{"text_config", "hidden_act", "gelu", "must be \"silu\", but it is \"gelu\""},
       {"text_config", "scoring_func", "sigmoid", "\"sqrtsoftplus\""},
       {"text_config", "topk_method", "greedy", "\"noaux_tc\""},
       {"text_config", "attention_bias", true, "\"attention_bias\" must be false"},
       {"text_config", "tie_word_embeddings", true, "\"tie_word_embeddings\" must be false"},
       {"text_config", "num_key_value_heads", 2, "\"num_key_value_heads\" must be 1"},
       {"text_config", "n_shared_experts", 2, "\"n_shared_experts\" must be 1"},
       {"text_config", "rope_scaling", JsonObject{{"rope_type", "linear"}}, "\"yarn\""},
       {"quantization_config", "quant_method", "awq", "\"fp8\""},
       {"quantization_config", "activation_scheme", "static", "\"dynamic\""},
       {"quantization_config", "scale_fmt", "float", "\"ue8m0\""},
       {"quantization_config", "weight_block_size", JsonArray{128, 128}, "[32,32]"},
       {"quantization_config", "expert_dtype", "fp8", "\"fp4\""},
       {"", "model_type", "llama", "must be \"deepseek_v41\", but it is \"llama\""},
       {"", "dtype", "float16", "\"bfloat16\""}});
}

TEST(Config, LongValuesAreNotRepeated) {
  const std::string message = ErrorOf(GoldenJson("full_mini/config.json"),
                                      {"", "model_type", std::string(10'000, 'x'), ""});
  EXPECT_LT(message.size(), 200u) << message;
}

TEST(Config, FileSizeLimitIsExact) {
  const testing::TempDirectory directory;
  std::string text = DumpJson(GoldenJson("tiny_swa/config.json"), JsonStyle::kCompact);
  text.resize(kConfigBytesMax, ' ');
  directory.Write("config.json", text);
  EXPECT_TRUE(LoadConfig(directory.Path("config.json")).has_value());
  directory.Write("config.json", text + " ");
  const auto refused = LoadConfig(directory.Path("config.json"));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
}

TEST(Config, FileErrorsNameTheFile) {
  const auto missing = LoadConfig("no/such/config.json");
  ASSERT_FALSE(missing.has_value());
  EXPECT_EQ(missing.error().code, ErrorCode::kNotFound);
  EXPECT_NE(missing.error().message.find("no/such/config.json"), std::string::npos);
  const auto broken = ParseConfig("{", "some/config.json");
  ASSERT_FALSE(broken.has_value());
  EXPECT_NE(broken.error().message.find("some/config.json"), std::string::npos);
  EXPECT_FALSE(ParseConfig("[]", "some/config.json").has_value());
}

}  // namespace
}  // namespace minke

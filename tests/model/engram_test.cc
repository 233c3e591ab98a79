// Engram row ids against the official hash (tests/golden/engram_hash).
#include <gtest/gtest.h>

#include "tests/model/golden_model.h"

namespace minke::testing {
namespace {

ModelConfig HashConfig(int64_t layer, int64_t compressed_vocab, int64_t max_ngram) {
  ModelConfig config;
  config.engram_layer_ids = {layer};
  config.engram_max_ngram_size = max_ngram;
  config.engram_n_heads = 1;
  config.engram_vocab_size = 16;
  config.engram_compressed_vocab_size = compressed_vocab;
  config.engram_num_embeddings = {17 + 19 + 23};
  return config;
}

TEST(EngramHash, MultipliersOfManyLayersAndVocabularies) {
  const Golden golden("engram_hash/engram_hash.json");
  const JsonArray& table = golden.index().Find("multiplier_table")->as_array();
  ASSERT_GT(table.size(), 5U);
  for (const Json& entry : table) {
    const ModelConfig config =
        HashConfig(entry.Find("layer_id")->as_int(), entry.Find("compressed_vocab_size")->as_int(),
                   entry.Find("max_ngram_size")->as_int());
    const auto hash = MakeEngramHash(config, 0);
    ASSERT_TRUE(hash.has_value()) << hash.error().message;
    const JsonArray& multipliers = entry.Find("multipliers")->as_array();
    ASSERT_EQ(hash->multipliers.size(), multipliers.size());
    for (size_t i = 0; i < multipliers.size(); ++i) {
      EXPECT_EQ(std::to_string(hash->multipliers[i]), multipliers[i].as_string());
    }
  }
}

TEST(EngramHash, ReleasedPrimesAndOffsets) {
  const Golden golden("engram_hash/engram_hash.json");
  const auto config = LoadConfig(GoldenPath("released/config.json"));
  ASSERT_TRUE(config.has_value());
  for (int64_t index = 0; index < 2; ++index) {
    const auto hash = MakeEngramHash(*config, index);
    ASSERT_TRUE(hash.has_value()) << hash.error().message;
    std::vector<int64_t> primes;
    const Json& layers = *golden.index().Find("primes");
    for (const Json& ngram : layers.as_array()[static_cast<size_t>(index)].as_array()) {
      for (const Json& prime : ngram.as_array()) primes.push_back(prime.as_int());
    }
    EXPECT_EQ(hash->primes, primes);
    EXPECT_EQ(
        hash->offsets,
        GoldenPositions(golden.index().Find("offsets")->as_array()[static_cast<size_t>(index)]));
  }
}

TEST(EngramHash, RefusesATableOfAnotherSize) {
  auto config = LoadConfig(GoldenPath("full_mini/config.json"));
  ASSERT_TRUE(config.has_value());
  config->engram_num_embeddings[1] += 1;
  const auto hash = MakeEngramHash(*config, 1);
  ASSERT_FALSE(hash.has_value());
  EXPECT_NE(hash.error().message.find("2149"), std::string::npos) << hash.error().message;
  EXPECT_NE(hash.error().message.find("2148"), std::string::npos) << hash.error().message;
}

TEST(EngramRows, ReleasedRowIdsWithHistoryCutAnywhere) {
  const Golden golden("engram_hash/engram_hash.json");
  const auto config = LoadConfig(GoldenPath("released/config.json"));
  ASSERT_TRUE(config.has_value());
  ModelTables tables;
  tables.engram_pad = static_cast<int32_t>(golden.index().Find("pad_class")->as_int());
  const std::vector<int64_t> map = golden["token_map"].Ints();
  const std::vector<ModelTables::EngramHash> hashes = {*MakeEngramHash(*config, 0),
                                                       *MakeEngramHash(*config, 1)};
  constexpr int64_t kHistory = 3;
  for (const Json& entry : golden.index().Find("sequences")->as_array()) {
    const std::string& name = entry.as_string();
    const std::vector<int64_t> ids = golden[name + ".ids"].Ints();
    const std::vector<int64_t> expected = golden[name + ".rows"].Ints();
    std::vector<int64_t> mask(ids.size(), 1);
    if (golden.Has(name + ".mask")) mask = golden[name + ".mask"].Ints();
    std::vector<int32_t> stream(kHistory, kDeadHistory);
    for (size_t i = 0; i < ids.size(); ++i) {
      stream.push_back(mask[i] == 0 ? kDeadHistory
                                    : static_cast<int32_t>(map[static_cast<size_t>(ids[i])]));
    }
    for (int64_t chunk : {static_cast<int64_t>(ids.size()), int64_t{1}, int64_t{5}}) {
      for (int64_t layer = 0; layer < 2; ++layer) {
        for (int64_t begin = 0; begin < static_cast<int64_t>(ids.size()); begin += chunk) {
          const int64_t count = std::min(chunk, static_cast<int64_t>(ids.size()) - begin);
          Matrix<int64_t> rows(count, 24);
          EngramRows(tables, hashes[static_cast<size_t>(layer)],
                     std::span<const int32_t>(stream).subspan(
                         static_cast<size_t>(begin), static_cast<size_t>(kHistory + count)),
                     kHistory, 8, rows.view());
          for (int64_t row = 0; row < count; ++row) {
            if (mask[static_cast<size_t>(begin + row)] == 0) continue;  // its gate is 0
            for (int64_t column = 0; column < 24; ++column) {
              ASSERT_EQ(rows.view().Row(row)[column],
                        expected[static_cast<size_t>(((begin + row) * 2 + layer) * 24 + column)])
                  << name << " position " << begin + row << " column " << column;
            }
          }
        }
      }
    }
  }
}

TEST(EngramRows, MiniModelsRowIds) {
  for (const std::string set : {"full_mini", "wide"}) {
    const auto model = LoadGoldenModel(set, Numerics::Official(), FastKernels());
    const Golden expected(set + "/expected.json");
    const std::vector<int64_t> golden = expected["engram_ids"].Ints();
    const auto layers = static_cast<int64_t>(model->config().engram_layer_ids.size());
    const int64_t columns = model->config().engram_columns();
    int64_t compared = 0;
    Diagnostics diagnostics;
    diagnostics.engram_rows = [&](int64_t layer, View<const int64_t> rows) {
      const int64_t index = model->config().layers[static_cast<size_t>(layer)].engram_index;
      for (int64_t row = 0; row < rows.rows; ++row) {
        for (int64_t column = 0; column < columns; ++column, ++compared) {
          ASSERT_EQ(rows.Row(row)[column],
                    golden[static_cast<size_t>((row * layers + index) * columns + column)]);
        }
      }
    };
    RunTokens(*model, GoldenPrompt(set), {}, &diagnostics);
    EXPECT_EQ(compared, static_cast<int64_t>(golden.size()));
  }
}

}  // namespace
}  // namespace minke::testing

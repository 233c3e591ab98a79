// Engram row ids against the official hash (tests/golden/engram_hash), and their pages in memory.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <thread>

#include "core/file.h"
#include "core/page_memory.h"
#include "tests/model/golden_model.h"
#include "tests/support/temp_directory.h"

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

// A file of empty pages that nobody has read yet.
class ColdFile {
 public:
  explicit ColdFile(size_t pages) {
    directory_.Write("table", "");
    std::filesystem::resize_file(directory_.Path("table"), pages * kPageBytes);
    file_ = std::move(*MappedFile::Open(directory_.Path("table")));
  }
  const uint8_t* data() const { return reinterpret_cast<const uint8_t*>(file_.bytes().data()); }

  std::set<size_t> Resident() const {
    std::vector<unsigned char> pages(file_.bytes().size() / kPageBytes);
    EXPECT_EQ(
        ::mincore(const_cast<std::byte*>(file_.bytes().data()), file_.bytes().size(), pages.data()),
        0);
    std::set<size_t> resident;
    for (size_t page = 0; page < pages.size(); ++page) {
      if ((pages[page] & 1) != 0) resident.insert(page);
    }
    return resident;
  }
  // The same once there are as many as that, or seconds later.
  std::set<size_t> ResidentOnce(size_t count) const {
    std::set<size_t> resident = Resident();
    for (int i = 0; i < 500 && resident.size() < count; ++i, resident = Resident()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    return resident;
  }

 private:
  TempDirectory directory_;
  MappedFile file_;
};

// Each row of these tables has a page of its own, which shows that it was asked for; behind the
// rows lie the scales, a byte for 32 of theirs.
TEST(EngramRows, MappedPagesAreAskedForBeforeAnyLayer) {
  const ColdFile probe(2);
  StartReadingPage(probe.data() + kPageBytes + 1);
  if (probe.ResidentOnce(1) != std::set<size_t>{1}) {
    GTEST_SKIP() << "the temporary folder is on a file system without pages to be read";
  }
  const auto model = LoadGoldenModel("full_mini", Numerics::Official(), FastKernels());
  const ModelConfig& config = model->config();
  LayerBench bench(*model, {0, 1, 2, 3, 4, 5}, nullptr);
  ModelWeights weights;
  weights.layers.resize(static_cast<size_t>(config.num_hidden_layers));
  std::vector<std::unique_ptr<ColdFile>> tables;
  for (size_t index = 0; index < config.engram_layer_ids.size(); ++index) {
    const int64_t rows = config.engram_num_embeddings[index];
    tables.push_back(std::make_unique<ColdFile>(static_cast<size_t>(rows + rows / 32 + 1)));
    const uint8_t* data = tables.back()->data();
    weights.layers[static_cast<size_t>(config.engram_layer_ids[index])].engram.embed = {
        data, data + rows * static_cast<int64_t>(kPageBytes), rows, int64_t{kPageBytes}};
  }
  PrefetchEngram(bench.step(), weights);
  for (size_t index = 0; index < tables.size(); ++index) {
    Matrix<int64_t> ids(6, config.engram_columns());
    EngramRows(model->tables(), model->tables().engram[index], bench.state().PendingHistory(),
               bench.state().layout().history_length, config.engram_n_heads, ids.view());
    std::set<size_t> wanted;
    for (int64_t i = 0; i < ids.rows() * ids.cols(); ++i) {
      const int64_t id = ids.data()[i];
      wanted.insert(static_cast<size_t>(id));
      wanted.insert(static_cast<size_t>(config.engram_num_embeddings[index] + id / 32));
    }
    EXPECT_GT(wanted.size(), 10u);
    EXPECT_EQ(tables[index]->ResidentOnce(wanted.size()), wanted) << "and no other page";
  }
}

}  // namespace
}  // namespace minke::testing

// Records whose every byte follows from a number, and a store to put them into.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/block_pool.h"
#include "prefix_cache/block_key.h"
#include "prefix_cache/block_store.h"

namespace minke::testing {

// A folder in memory where there is one: for tests that open thousands of stores and of which no
// disk has to survive anything. Removed at the end of its scope.
class MemoryDirectory {
 public:
  MemoryDirectory() {
    const std::filesystem::path memory = "/dev/shm";
    const auto* test = ::testing::UnitTest::GetInstance()->current_test_info();
    std::string name = "minke_" + std::string(test->name()) + "_" + std::to_string(::getpid());
    std::replace(name.begin(), name.end(), '/', '_');
    path_ =
        (std::filesystem::is_directory(memory) ? memory : std::filesystem::temp_directory_path()) /
        name;
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~MemoryDirectory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  MemoryDirectory(const MemoryDirectory&) = delete;
  MemoryDirectory& operator=(const MemoryDirectory&) = delete;
  std::string Path(std::string_view name) const { return (path_ / name).string(); }

 private:
  std::filesystem::path path_;
};

// The user that owns nothing.
inline constexpr uid_t kNobody = 65534;

inline std::string ReadBytes(const std::string& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

inline CacheKey NumberKey(std::string_view purpose, int64_t number) {
  KeyHasher hasher(purpose);
  hasher.Add("number", number);
  return hasher.Finish();
}

// The payload that belongs to a key.
inline std::vector<std::byte> PayloadOf(const CacheKey& key, int64_t bytes) {
  std::seed_seq seed(key.bytes.begin(), key.bytes.end());
  std::mt19937 random(seed);
  std::vector<std::byte> payload(static_cast<size_t>(bytes));
  for (size_t at = 0; at < payload.size(); at += sizeof(uint32_t)) {
    const auto word = static_cast<uint32_t>(random());
    std::memcpy(&payload[at], &word, std::min(sizeof(word), payload.size() - at));
  }
  return payload;
}

struct RecordShape {
  int64_t payload_bytes = 1000;
  std::string_view model = "model";
  std::string_view tenant = "tenant";
};

// Block `index` (0, 1, ...) of chain `chain`.
inline RecordInfo BlockOf(int64_t chain, int64_t index, const RecordShape& shape = {}) {
  const CacheKey fingerprint = NumberKey(shape.model, 0);
  const auto key = [&](int64_t i) {
    KeyHasher hasher("chain");
    hasher.Add("model", fingerprint);
    hasher.Add("tenant", shape.tenant);
    hasher.Add("chain", chain);
    hasher.Add("index", i);
    return hasher.Finish();
  };
  RecordInfo info;
  info.kind = RecordKind::kBlock;
  info.key = key(index);
  info.parent = key(index - 1);
  info.fingerprint = fingerprint;
  info.tenant = TenantKey(shape.tenant);
  info.content = NumberKey("content", chain);
  info.end_position = (index + 1) * kCacheBlockTokens;
  for (int64_t i = 0; i < kCacheBlockTokens; ++i) {
    info.tokens.push_back(static_cast<int32_t>((chain * 7919 + index * 104729 + i * 31) % 129280));
  }
  info.payload_bytes = shape.payload_bytes;
  return info;
}

// A snapshot `tail` tokens after block `index` of the chain (index -1: after the root).
inline RecordInfo SnapshotOf(int64_t chain, int64_t index, int64_t tail,
                             const RecordShape& shape = {}) {
  RecordInfo info = BlockOf(chain, index + 1, shape);
  info.kind = RecordKind::kSnapshot;
  KeyHasher hasher("snapshot");
  hasher.Add("parent", info.parent);
  hasher.Add("tail", tail);
  info.key = hasher.Finish();
  info.tokens.resize(static_cast<size_t>(tail));
  info.end_position = (index + 1) * kCacheBlockTokens + tail;
  return info;
}

// A pool, a clock that is set by hand, and options for a directory.
class StoreRig {
 public:
  explicit StoreRig(std::string directory, int64_t payload_bytes_max = 1 << 18)
      : pool_(payload_bytes_max, int64_t{1} << 40) {
    options.directory = std::move(directory);
    options.fingerprint = NumberKey("model", 0);
    options.now_us = [this]() { return ++now_us; };
  }

  std::unique_ptr<BlockStore> Open() {
    auto store = BlockStore::Open(options);
    EXPECT_TRUE(store) << (store ? "" : store.error().message);
    return store ? std::move(*store) : nullptr;
  }
  std::string OpenError() {
    auto store = BlockStore::Open(options);
    EXPECT_FALSE(store);
    return store ? "" : store.error().message;
  }

  void Put(BlockStore& store, const RecordInfo& info) {
    BlockRef block = pool_.Allocate();
    ASSERT_TRUE(block);
    const std::vector<std::byte> payload = PayloadOf(info.key, info.payload_bytes);
    std::copy(payload.begin(), payload.end(), block.bytes());
    store.Put(info, std::move(block));
  }

  // Reads and compares with what was put: a hit with a wrong byte fails the test.
  ReadOutcome Read(BlockStore& store, const RecordInfo& info) {
    std::vector<std::byte> payload(static_cast<size_t>(pool_.block_bytes()));
    RecordInfo found;
    const ReadOutcome outcome = store.Read(info.key, payload, &found);
    if (outcome != ReadOutcome::kHit) return outcome;
    EXPECT_EQ(found.payload_bytes, info.payload_bytes);
    payload.resize(static_cast<size_t>(found.payload_bytes));
    EXPECT_TRUE(payload == PayloadOf(info.key, info.payload_bytes)) << "wrong bytes";
    EXPECT_TRUE(found.tokens == info.tokens);
    EXPECT_TRUE(found.key == info.key && found.parent == info.parent);
    EXPECT_TRUE(found.fingerprint == info.fingerprint && found.tenant == info.tenant);
    EXPECT_TRUE(found.content == info.content);
    EXPECT_EQ(found.kind, info.kind);
    EXPECT_EQ(found.end_position, info.end_position);
    return outcome;
  }

  StoreOptions options;
  std::atomic<int64_t> now_us = int64_t{1} << 50;  // the storage thread asks too

 private:
  BlockPool pool_;
};

}  // namespace minke::testing

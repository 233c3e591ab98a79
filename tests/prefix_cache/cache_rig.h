// A prefix cache over small synthetic rows, and something that uses it as an engine does. The bytes
// of every block and snapshot follow from the tokens before it, so that each hit can be checked.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "prefix_cache/prefix_cache.h"

namespace minke::testing {

inline constexpr int64_t kRigBlockBytes = 64;
inline constexpr int64_t kRigSnapshotBytes = 96;
// What a block takes of the budget for rows once it is in the cache.
inline constexpr int64_t kRigEntryBytes = kRigBlockBytes + kCacheNodeBytes;
inline constexpr int64_t kRigAmple = int64_t{1} << 24;

using Tokens = std::vector<int32_t>;

// `count` tokens that no other seed has.
inline Tokens Text(int32_t seed, int64_t count) {
  Tokens tokens(static_cast<size_t>(count));
  for (size_t i = 0; i < tokens.size(); ++i) {
    tokens[i] = static_cast<int32_t>(static_cast<size_t>(seed) * 100003u + i);
  }
  return tokens;
}

inline Tokens operator+(Tokens a, const Tokens& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

inline Tokens First(const Tokens& tokens, int64_t count) {
  return {tokens.begin(), tokens.begin() + count};
}

inline CacheChain Chain(const Tokens& tokens, const std::string& tenant = "alice",
                        std::span<const ExtraInput> extras = {}) {
  return {.tenant = TenantKey(tenant), .tokens = tokens, .extras = extras};
}

// Of the chain's first `count` tokens, images included.
inline uint64_t ChainHash(const CacheChain& chain, int64_t count) {
  uint64_t hash = 0;
  std::memcpy(&hash, chain.tenant.bytes.data(), sizeof(hash));
  const auto add = [&hash](uint64_t value) {
    hash = (hash ^ value) * 0x9e3779b97f4a7c15u;
    hash ^= hash >> 29;
  };
  for (int64_t i = 0; i < count; ++i) {
    add(static_cast<uint64_t>(chain.tokens[static_cast<size_t>(i)]));
  }
  for (const ExtraInput& extra : chain.extras) {
    if (extra.position < count) add(extra.content.bytes[0] + 1u);
  }
  return hash;
}

inline void Fill(std::span<std::byte> bytes, uint64_t hash) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    bytes[i] = static_cast<std::byte>((hash >> (i % 8 * 8)) + i / 8);
  }
}

inline bool Holds(std::span<const std::byte> bytes, uint64_t hash) {
  std::vector<std::byte> expected(bytes.size());
  Fill(expected, hash);
  return std::equal(bytes.begin(), bytes.end(), expected.begin());
}

// Whether every byte of the match is what its chain demands.
inline bool IsRight(const CacheChain& chain, const CacheMatch& match) {
  for (size_t i = 0; i < match.blocks.size(); ++i) {
    const auto end = static_cast<int64_t>(i + 1) * kCacheBlockTokens;
    const std::span bytes(match.blocks[i].bytes(), static_cast<size_t>(kRigBlockBytes));
    if (!Holds(bytes, ChainHash(chain, end))) return false;
  }
  if (!match.snapshot) return match.snapshot_tokens == 0 && match.snapshot_bytes == 0;
  if (match.snapshot_bytes <= 0 || match.snapshot_bytes > kRigSnapshotBytes) return false;
  const std::span bytes(match.snapshot.bytes(), static_cast<size_t>(match.snapshot_bytes));
  return Holds(bytes, ~ChainHash(chain, match.snapshot_tokens));
}

struct CacheRig {
  explicit CacheRig(int64_t rows_budget = kRigAmple, int64_t snapshots_budget = kRigAmple,
                    BlockStore* store_in = nullptr, CacheKey fingerprint = {})
      : rows(kRigBlockBytes, rows_budget),
        snapshots(kRigSnapshotBytes, snapshots_budget),
        cache(fingerprint, rows, snapshots, store_in) {}

  // What an engine does with a prompt: looks it up, computes what is missing, inserts it, with a
  // snapshot at the end.
  CacheMatch Run(const CacheChain& chain, ChainPin* pin = nullptr) {
    ChainPin own;
    ChainPin& used = pin != nullptr ? *pin : own;
    const auto tokens = static_cast<int64_t>(chain.tokens.size());
    CacheMatch match = cache.Lookup(chain, tokens, &used);
    EXPECT_TRUE(IsRight(chain, match));
    Insert(chain, match.blocks, &used);
    Snapshot(chain);
    EXPECT_EQ(Problem(), "");
    return match;
  }

  // Computes the blocks of the chain that follow `known` ones.
  void Insert(const CacheChain& chain, std::vector<BlockRef> known = {}, ChainPin* pin = nullptr) {
    const auto count = static_cast<int64_t>(chain.tokens.size()) / kCacheBlockTokens;
    while (static_cast<int64_t>(known.size()) < count) {
      if (!cache.MakeRoom(kRigBlockBytes)) break;
      BlockRef block = rows.Allocate();
      const auto end = static_cast<int64_t>(known.size() + 1) * kCacheBlockTokens;
      Fill({block.bytes(), static_cast<size_t>(kRigBlockBytes)}, ChainHash(chain, end));
      known.push_back(std::move(block));
    }
    cache.InsertBlocks(chain, known, pin);
  }

  bool Snapshot(const CacheChain& chain, int64_t bytes = kRigSnapshotBytes) {
    BlockRef snapshot = cache.AllocateSnapshot();
    if (!snapshot) return false;
    const auto tokens = static_cast<int64_t>(chain.tokens.size());
    Fill({snapshot.bytes(), static_cast<size_t>(bytes)}, ~ChainHash(chain, tokens));
    cache.InsertSnapshot(chain, std::move(snapshot), bytes);
    return true;
  }

  CacheMatch Find(const CacheChain& chain, int64_t limit = INT64_MAX) {
    CacheMatch match = cache.Lookup(chain, limit, nullptr);
    EXPECT_TRUE(IsRight(chain, match));
    return match;
  }

  std::string Problem() const {
    const Status status = cache.Audit();
    return status ? "" : status.error().message;
  }

  BlockPool rows;
  BlockPool snapshots;
  PrefixCache cache;
};

// What is compared of a match, in words that a failing test prints.
inline std::string Summary(const CacheMatch& match) {
  std::string text = std::to_string(match.blocks.size()) + " blocks";
  if (match.disk_blocks > 0) text += " (" + std::to_string(match.disk_blocks) + " from disk)";
  if (match.snapshot) {
    text += ", snapshot " + std::to_string(match.snapshot_tokens) + " " +
            CacheTierName(match.snapshot_tier);
  }
  text += std::string(", ") + MissReasonName(match.reason);
  if (match.first_difference >= 0) text += " at " + std::to_string(match.first_difference);
  return text;
}

}  // namespace minke::testing

// CacheTree::Audit(): walks every entry and compares it with everything else that knows of it.
#include <algorithm>

#include <fmt/format.h>

#include "prefix_cache/cache_tree.h"

namespace minke {

namespace {

Status Expect(bool holds, std::string_view what, EntryId id) {
  if (holds) return {};
  return Fail(fmt::format("The prefix cache is inconsistent at entry {}: {}.", id, what));
}

Status ExpectEqual(int64_t found, int64_t expected, std::string_view what) {
  if (found == expected) return {};
  return Fail(fmt::format("The prefix cache is inconsistent: {} is {}, expected {}.", what, found,
                          expected));
}

}  // namespace

Status CacheTree::AuditLinks(EntryId id) const {
  EntryId previous = kNoEntry;
  size_t children = 0;
  for (EntryId at = Node(id).first_child; at != kNoEntry; at = Node(at).next_sibling) {
    const auto place = static_cast<size_t>(at);
    TRY_STATUS(Expect(place < nodes_.size() && nodes_[place] != nullptr, "a child is gone", id));
    TRY_STATUS(Expect(Node(at).parent == id, "a child has another parent", id));
    TRY_STATUS(Expect(Node(at).previous_sibling == previous, "siblings are mislinked", at));
    TRY_STATUS(Expect(++children <= nodes_.size(), "its children form a ring", id));
    previous = at;
  }
  for (const EntryId snapshot : Node(id).snapshots) {
    const auto place = static_cast<size_t>(snapshot);
    TRY_STATUS(Expect(place < snapshots_.size() && snapshots_[place] != nullptr,
                      "a snapshot is gone", id));
    TRY_STATUS(Expect(Snapshot(snapshot).node == id, "a snapshot hangs elsewhere", id));
  }
  return {};
}

Status CacheTree::AuditNode(EntryId id) const {
  const CacheNode& node = Node(id);
  TRY_STATUS(Expect(FindNode(node.key) == id, "its key leads elsewhere", id));
  TRY_STATUS(Expect(node.pins >= 0, "it has a negative number of pins", id));
  TRY_STATUS(AuditLinks(id));
  if (node.parent == kNoEntry) {
    TRY_STATUS(Expect(node.depth == 0 && !node.block && node.tokens.empty(),
                      "a root has a depth or rows", id));
    return Expect(node.first_child != kNoEntry || !node.snapshots.empty() || node.pins > 0,
                  "a root of nothing was kept", id);
  }
  const auto place = static_cast<size_t>(node.parent);
  TRY_STATUS(Expect(place < nodes_.size() && nodes_[place] != nullptr, "its parent is gone", id));
  TRY_STATUS(Expect(node.depth == Node(node.parent).depth + 1, "its depth is wrong", id));
  TRY_STATUS(Expect(node.tokens.size() == kCacheBlockTokens && node.block,
                    "it has no rows or no tokens", id));
  const bool remembered = evicted_.Contains(node.key);
  TRY_STATUS(Expect(!remembered, "it is remembered as evicted", id));
  if (node.depth > 1) return {};
  TRY_STATUS(Expect(node.content == ContentKey(node.tokens), "its content key is wrong", id));
  return Expect(contents_.contains(node.content), "its content key is not known", id);
}

Status CacheTree::AuditSnapshot(EntryId id) const {
  const CacheSnapshot& snapshot = Snapshot(id);
  TRY_STATUS(Expect(FindSnapshot(snapshot.key) == id, "a snapshot's key leads elsewhere", id));
  const auto place = static_cast<size_t>(snapshot.node);
  TRY_STATUS(
      Expect(place < nodes_.size() && nodes_[place] != nullptr, "a snapshot's node is gone", id));
  const auto& siblings = Node(snapshot.node).snapshots;
  TRY_STATUS(Expect(std::count(siblings.begin(), siblings.end(), id) == 1,
                    "a snapshot does not hang below its node once", id));
  TRY_STATUS(Expect(snapshot.bytes && snapshot.tail.size() < kCacheBlockTokens,
                    "a snapshot has no bytes or too long a tail", id));
  return Expect(snapshot.size_bytes >= 0 && snapshot.size_bytes <= snapshot_pool_.block_bytes(),
                "a snapshot is larger than its block", id);
}

Status CacheTree::AuditCounters() const {
  int64_t roots = 0;
  int64_t blocks = 0;
  int64_t linked = 0;  // found below their parents, not by their numbers
  int64_t chains = 0;
  for (const auto& node : nodes_) {
    if (node == nullptr) continue;
    ++(node->parent == kNoEntry ? roots : blocks);
    chains += node->depth == 1 ? 1 : 0;
    for (EntryId at = node->first_child; at != kNoEntry; at = Node(at).next_sibling) {
      ++linked;
    }
  }
  int64_t snapshots = 0;
  int64_t snapshot_bytes = 0;
  for (const auto& snapshot : snapshots_) {
    if (snapshot == nullptr) continue;
    ++snapshots;
    snapshot_bytes += snapshot->size_bytes;
  }
  int64_t known_chains = 0;
  for (const auto& [content, count] : contents_) {
    known_chains += count;
  }
  TRY_STATUS(ExpectEqual(root_count_, roots, "the number of roots"));
  TRY_STATUS(ExpectEqual(block_count_, blocks, "the number of blocks"));
  TRY_STATUS(ExpectEqual(linked, blocks, "the number of blocks below others"));
  TRY_STATUS(ExpectEqual(known_chains, chains, "the number of content keys"));
  TRY_STATUS(ExpectEqual(snapshot_count_, snapshots, "the number of snapshots"));
  TRY_STATUS(ExpectEqual(snapshot_bytes_, snapshot_bytes, "the bytes of snapshots"));
  TRY_STATUS(ExpectEqual(static_cast<int64_t>(node_of_key_.size()), roots + blocks,
                         "the number of keys of nodes"));
  TRY_STATUS(ExpectEqual(static_cast<int64_t>(snapshot_of_key_.size()), snapshots,
                         "the number of keys of snapshots"));
  TRY_STATUS(ExpectEqual(charged_bytes_, (roots + blocks + snapshots) * kCacheNodeBytes,
                         "what entries charge"));
  if (evicted_.size() > kEvictedKeysMax) return Fail("The prefix cache remembers too many keys.");
  return {};
}

// Blocks that running sequences hold are in the pools as well, so the pools hold at least ours.
Status CacheTree::AuditPools() const {
  for (const BlockPool* pool : {&rows_, &snapshot_pool_}) {
    const bool is_rows = pool == &rows_;
    const BlockPoolUsage usage = pool->usage();
    const int64_t ours = is_rows ? block_count_ : snapshot_count_;
    const int64_t charged = is_rows ? charged_bytes_ : 0;
    if (usage.live_blocks < ours || usage.charged_bytes < charged) {
      return Fail("A pool holds less than the prefix cache in it.");
    }
    if (usage.used_bytes + usage.reserved_bytes > usage.budget_bytes) {
      return Fail(fmt::format("A pool of {} bytes holds {} and has set {} aside.",
                              usage.budget_bytes, usage.used_bytes, usage.reserved_bytes));
    }
  }
  return {};
}

// A policy tells its victims one by one: each is pinned to see the next. Pins do not change when
// an entry was used.
Status CacheTree::AuditPolicy(EvictionPolicy& policy, std::vector<EntryId> expected) const {
  std::vector<EntryId> found;
  EntryId victim = policy.Victim();
  for (; victim != kNoEntry && found.size() <= expected.size(); victim = policy.Victim()) {
    policy.Pin(victim);
    found.push_back(victim);
  }
  for (const EntryId id : found) {
    policy.Unpin(id);
  }
  std::sort(found.begin(), found.end());
  std::sort(expected.begin(), expected.end());
  if (found == expected) return {};
  return Fail(fmt::format("The eviction policy has {} victims, expected {} or others.",
                          found.size(), expected.size()));
}

Status CacheTree::Audit() const {
  std::vector<EntryId> victims;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i] == nullptr) continue;
    TRY_STATUS(AuditNode(static_cast<EntryId>(i)));
    const bool is_leaf = nodes_[i]->parent != kNoEntry && nodes_[i]->first_child == kNoEntry;
    if (is_leaf && nodes_[i]->pins == 0) victims.push_back(static_cast<EntryId>(i));
  }
  std::vector<EntryId> snapshot_victims;
  for (size_t i = 0; i < snapshots_.size(); ++i) {
    if (snapshots_[i] == nullptr) continue;
    TRY_STATUS(AuditSnapshot(static_cast<EntryId>(i)));
    snapshot_victims.push_back(static_cast<EntryId>(i));
  }
  TRY_STATUS(AuditCounters());
  TRY_STATUS(AuditPools());
  TRY_STATUS(AuditPolicy(*policy_, std::move(victims)));
  return AuditPolicy(*snapshot_policy_, std::move(snapshot_victims));
}

}  // namespace minke

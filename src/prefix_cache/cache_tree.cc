#include "prefix_cache/cache_tree.h"

#include <algorithm>

namespace minke {

namespace {

// Reuses the number of a removed entry if there is one.
template <typename T>
EntryId Store(std::unique_ptr<T> entry, std::vector<std::unique_ptr<T>>& entries,
              std::vector<EntryId>& free) {
  if (free.empty()) {
    entries.push_back(std::move(entry));
    return static_cast<EntryId>(entries.size()) - 1;
  }
  const EntryId id = free.back();
  free.pop_back();
  entries[static_cast<size_t>(id)] = std::move(entry);
  return id;
}

}  // namespace

void EvictedKeys::Add(const CacheKey& key) {
  const uint64_t stamp = ++last_stamp_;
  stamps_[key] = stamp;
  if (order_.size() < kEvictedKeysMax) {
    if (order_.empty()) order_.reserve(kEvictedKeysMax);
    order_.push_back({key, stamp});
    return;
  }
  Entry& oldest = order_[(stamp - 1) % kEvictedKeysMax];
  const auto found = stamps_.find(oldest.key);
  if (found != stamps_.end() && found->second == oldest.stamp) stamps_.erase(found);
  oldest = {key, stamp};
}

void EvictedKeys::Remove(const CacheKey& key) {
  stamps_.erase(key);
}

CacheTree::CacheTree(BlockPool& rows, BlockPool& snapshots, BlockStore* store)
    : rows_(rows), snapshot_pool_(snapshots), store_(store) {
  policy_ = MakeEvictionPolicy("lru").value();
  snapshot_policy_ = MakeEvictionPolicy("lru").value();
}

CacheTree::~CacheTree() {
  rows_.Refund(charged_bytes_);
}

EntryId CacheTree::FindNode(const CacheKey& key) const {
  const auto found = node_of_key_.find(key);
  return found == node_of_key_.end() ? kNoEntry : found->second;
}

EntryId CacheTree::FindSnapshot(const CacheKey& key) const {
  const auto found = snapshot_of_key_.find(key);
  return found == snapshot_of_key_.end() ? kNoEntry : found->second;
}

// ---- entries come ----

bool CacheTree::ChargeEntry() {
  if (!rows_.Charge(kCacheNodeBytes) &&
      !(MakeRoom(kCacheNodeBytes) && rows_.Charge(kCacheNodeBytes))) {
    return false;
  }
  charged_bytes_ += kCacheNodeBytes;
  return true;
}

EntryId CacheTree::AddNode(std::unique_ptr<CacheNode> node) {
  const CacheKey key = node->key;
  const EntryId id = Store(std::move(node), nodes_, free_nodes_);
  const bool is_new = node_of_key_.emplace(key, id).second;
  CHECK(is_new, "A key is in the cache once.");
  return id;
}

EntryId CacheTree::AddRoot(const CacheKey& key) {
  if (!ChargeEntry()) return kNoEntry;
  auto root = std::make_unique<CacheNode>();
  root->key = key;
  ++root_count_;
  return AddNode(std::move(root));
}

EntryId CacheTree::AddBlock(EntryId parent, const CacheKey& key, std::span<const int32_t> tokens,
                            BlockRef block) {
  CHECK(block && tokens.size() == kCacheBlockTokens);
  Pin(parent);
  const bool charged = ChargeEntry();
  EntryId id = kNoEntry;
  if (charged) {
    auto node = std::make_unique<CacheNode>();
    node->key = key;
    node->parent = parent;
    node->depth = Node(parent).depth + 1;
    node->tokens.assign(tokens.begin(), tokens.end());
    node->block = std::move(block);
    if (node->depth == 1) {
      node->content = ContentKey(tokens);
      ++contents_[node->content];
    }
    id = AddNode(std::move(node));
    Link(id);
    policy_->Insert(id, Node(id).depth == 1 ? kNoEntry : parent);
    evicted_.Remove(key);
    ++block_count_;
  }
  Unpin(parent);
  return id;
}

void CacheTree::Link(EntryId id) {
  CacheNode& node = MutableNode(id);
  CacheNode& parent = MutableNode(node.parent);
  node.next_sibling = parent.first_child;
  if (parent.first_child != kNoEntry) MutableNode(parent.first_child).previous_sibling = id;
  parent.first_child = id;
}

EntryId CacheTree::AddSnapshot(EntryId parent, const CacheKey& key, std::span<const int32_t> tail,
                               BlockRef bytes, int64_t size_bytes) {
  CHECK(bytes && tail.size() < kCacheBlockTokens);
  CHECK(size_bytes >= 0 && size_bytes <= snapshot_pool_.block_bytes());
  Pin(parent);
  const bool charged = ChargeEntry();
  EntryId id = kNoEntry;
  if (charged) {
    auto snapshot = std::make_unique<CacheSnapshot>();
    snapshot->key = key;
    snapshot->node = parent;
    snapshot->tail.assign(tail.begin(), tail.end());
    snapshot->bytes = std::move(bytes);
    snapshot->size_bytes = size_bytes;
    id = Store(std::move(snapshot), snapshots_, free_snapshots_);
    const bool is_new = snapshot_of_key_.emplace(key, id).second;
    CHECK(is_new, "A key is in the cache once.");
    MutableNode(parent).snapshots.push_back(id);
    snapshot_policy_->Insert(id, kNoEntry);
    evicted_.Remove(key);
    ++snapshot_count_;
    snapshot_bytes_ += size_bytes;
  }
  Unpin(parent);
  return id;
}

BlockRef CacheTree::AllocateBlock() {
  if (!MakeRoom(rows_.block_bytes() + kCacheNodeBytes)) return {};
  return rows_.Allocate();
}

BlockRef CacheTree::TryAllocateSnapshot() {
  BlockRef bytes = snapshot_pool_.Allocate();
  std::vector<EntryId> in_use;  // evicting them would free nothing
  while (!bytes) {
    const EntryId victim = snapshot_policy_->Victim();
    if (victim == kNoEntry) break;
    if (Snapshot(victim).bytes.shared()) {
      snapshot_policy_->Pin(victim);
      in_use.push_back(victim);
      continue;
    }
    EvictSnapshot(victim);
    bytes = snapshot_pool_.Allocate();
  }
  for (const EntryId id : in_use) {
    snapshot_policy_->Unpin(id);
  }
  return bytes;
}

BlockRef CacheTree::AllocateSnapshot() {
  BlockRef bytes = TryAllocateSnapshot();
  if (bytes || store_ == nullptr || snapshot_count_ == 0) return bytes;
  // With a budget of few snapshots, all of them may be waiting for the disk. A chain without a
  // snapshot costs its next request far more than this wait.
  store_->Flush();
  return TryAllocateSnapshot();
}

// ---- use ----

void CacheTree::Pin(EntryId id) {
  CacheNode& node = MutableNode(id);
  ++node.pins;
  if (node.parent != kNoEntry) policy_->Pin(id);
}

void CacheTree::Unpin(EntryId id) {
  CacheNode& node = MutableNode(id);
  CHECK(node.pins > 0);
  --node.pins;
  if (node.parent != kNoEntry) {
    policy_->Unpin(id);
  } else {
    RemoveRootIfEmpty(id);
  }
}

void CacheTree::TouchChain(EntryId end) {
  for (EntryId id = end; Node(id).parent != kNoEntry; id = Node(id).parent) {
    policy_->Touch(id);
  }
}

void CacheTree::TouchSnapshot(EntryId id) {
  snapshot_policy_->Touch(id);
}

// ---- entries go ----

int64_t CacheTree::Room() const {
  const BlockPoolUsage usage = rows_.usage();
  return usage.budget_bytes - usage.used_bytes - usage.reserved_bytes;
}

void CacheTree::EvictSnapshot(EntryId id) {
  const CacheSnapshot& snapshot = Snapshot(id);
  const EntryId parent = snapshot.node;
  std::erase(MutableNode(parent).snapshots, id);
  snapshot_policy_->Remove(id);
  snapshot_of_key_.erase(snapshot.key);
  evicted_.Add(snapshot.key);
  snapshot_bytes_ -= snapshot.size_bytes;
  --snapshot_count_;
  ++snapshots_evicted_;
  snapshots_[static_cast<size_t>(id)].reset();
  free_snapshots_.push_back(id);
  rows_.Refund(kCacheNodeBytes);
  charged_bytes_ -= kCacheNodeBytes;
  RemoveRootIfEmpty(parent);
}

void CacheTree::EvictBlock(EntryId id) {
  while (!Node(id).snapshots.empty()) {
    EvictSnapshot(Node(id).snapshots.back());
  }
  const CacheNode& node = Node(id);
  CHECK(node.first_child == kNoEntry && node.pins == 0, "A block that is in use was evicted.");
  policy_->Remove(id);
  evicted_.Add(node.key);
  if (node.depth == 1) {
    const auto content = contents_.find(node.content);
    if (--content->second == 0) contents_.erase(content);
  }
  if (node.previous_sibling != kNoEntry) {
    MutableNode(node.previous_sibling).next_sibling = node.next_sibling;
  } else {
    MutableNode(node.parent).first_child = node.next_sibling;
  }
  if (node.next_sibling != kNoEntry) {
    MutableNode(node.next_sibling).previous_sibling = node.previous_sibling;
  }
  const EntryId parent = node.parent;
  RemoveNode(id);
  --block_count_;
  ++blocks_evicted_;
  RemoveRootIfEmpty(parent);
}

void CacheTree::RemoveNode(EntryId id) {
  node_of_key_.erase(Node(id).key);
  nodes_[static_cast<size_t>(id)].reset();
  free_nodes_.push_back(id);
  rows_.Refund(kCacheNodeBytes);
  charged_bytes_ -= kCacheNodeBytes;
}

void CacheTree::RemoveRootIfEmpty(EntryId id) {
  const CacheNode& node = Node(id);
  if (node.parent != kNoEntry || node.pins > 0) return;
  if (node.first_child != kNoEntry || !node.snapshots.empty()) return;
  RemoveNode(id);
  --root_count_;
}

bool CacheTree::EvictOneSnapshot() {
  const EntryId victim = snapshot_policy_->Victim();
  if (victim == kNoEntry) return false;
  EvictSnapshot(victim);
  return true;
}

bool CacheTree::EvictBlocksUntil(int64_t bytes) {
  std::vector<EntryId> in_use;  // evicting them would free nothing
  while (Room() < bytes) {
    const EntryId victim = policy_->Victim();
    if (victim == kNoEntry) break;
    if (Node(victim).block.shared()) {
      policy_->Pin(victim);
      in_use.push_back(victim);
      continue;
    }
    EvictBlock(victim);
  }
  for (const EntryId id : in_use) {
    policy_->Unpin(id);
  }
  return Room() >= bytes;
}

// What evicting everything that may go would give: neither pinned chains nor blocks that a running
// sequence or the storage thread holds as well, nor what is above them.
int64_t CacheTree::ReclaimableBytes() const {
  std::vector<bool> kept(nodes_.size());
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i] == nullptr) continue;
    if (nodes_[i]->pins == 0 && !(nodes_[i]->block && nodes_[i]->block.shared())) continue;
    for (size_t at = i; !kept[at]; at = static_cast<size_t>(nodes_[at]->parent)) {
      kept[at] = true;
      if (nodes_[at]->parent == kNoEntry) break;
    }
  }
  int64_t bytes = snapshot_count_ * kCacheNodeBytes;
  for (size_t i = 0; i < nodes_.size(); ++i) {
    if (nodes_[i] == nullptr || kept[i]) continue;
    bytes += kCacheNodeBytes + (nodes_[i]->block ? rows_.block_bytes() : 0);
  }
  return bytes;
}

bool CacheTree::MakeRoom(int64_t bytes) {
  if (Room() >= bytes) return true;
  // Evicting many entries only to find that it was not enough would be for nothing. One is cheaper
  // to try than to reckon.
  const bool reckon = bytes > rows_.block_bytes() + kCacheNodeBytes;
  if (!reckon || Room() + ReclaimableBytes() >= bytes) {
    if (EvictBlocksUntil(bytes)) return true;
  }
  // Blocks that wait for the disk come free as soon as they are written.
  if (store_ != nullptr) store_->Flush();
  if (reckon && Room() + ReclaimableBytes() < bytes) return false;
  if (EvictBlocksUntil(bytes)) return true;
  // What snapshots charge here is little, so they are the last resort: those below a root, for one,
  // go with no block.
  while (Room() < bytes && EvictOneSnapshot()) {
  }
  return Room() >= bytes;
}

void CacheTree::DropUnpinned() {
  while (EvictOneSnapshot()) {
  }
  for (EntryId victim = policy_->Victim(); victim != kNoEntry; victim = policy_->Victim()) {
    EvictBlock(victim);
  }
}

}  // namespace minke

// Which cached entry goes first. The same code runs in the prefix cache and in `minke simulate`.
//
// Entries form trees: an entry is useful only together with its ancestors. A policy knows entries
// by number, their parents and when they were used; it does not know what they hold. Each call
// costs O(log n) for n entries, and the order of calls alone decides the victims.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace minke {

using EntryId = int64_t;
inline constexpr EntryId kNoEntry = -1;

class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  // A new entry, as recent as if it were used now; what counts as its first use is the first
  // Touch(). `parent` is kNoEntry or an entry that is in; flat policies ignore it.
  virtual void Insert(EntryId entry, EntryId parent) = 0;
  // The entry was used. Callers touch a chain from its end to its root, so that of one chain the
  // end is the older.
  virtual void Touch(EntryId entry) = 0;
  // REQUIRES that it is not pinned and, in leaf policies, has no children. All memory of its use
  // goes with it.
  virtual void Remove(EntryId entry) = 0;
  // Pinned entries, and in leaf policies their ancestors by being parents, are never victims. Pins
  // count.
  virtual void Pin(EntryId entry) = 0;
  virtual void Unpin(EntryId entry) = 0;
  // The entry to evict next, kNoEntry if all are pinned. Does not remove it.
  virtual EntryId Victim() = 0;
  // For policies that look into the future (Belady): the time, 0 or more in any unit, at which
  // the entry will be used next; INT64_MAX for never. Others ignore it.
  virtual void SetNextUse(EntryId entry, int64_t time) = 0;
};

// Policies over leaves, which never part an entry from its children:
//   lru     the entry whose last use is the longest ago;
//   fifo    the entry that came in first;
//   lfu     the entry with the fewest uses since it came in; of equal ones the least recently used;
//   lru-2   the entry whose last use but one is the longest ago; entries used once go first;
//   belady  the entry whose next use is the furthest away: the bound that others are measured by.
// lru-flat is lru over all entries, parents or not. An unknown name is an error that lists them.
Result<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name);
std::vector<std::string> EvictionPolicyNames();

}  // namespace minke

// Which cached entry goes first. The same code runs in the prefix cache and in `minke simulate`.
//
// Entries form trees: an entry is useful only together with its ancestors. A policy knows entries
// by number, their parents and when they were used; it does not know what they hold.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
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
  // A new entry, used now. `parent` is kNoEntry or an entry that is in.
  virtual void Insert(EntryId entry, EntryId parent) = 0;
  // The entry was used. Callers touch a chain from its end to its root, so that of one chain the
  // end is the older.
  virtual void Touch(EntryId entry) = 0;
  virtual void Remove(EntryId entry) = 0;
  // Pinned entries, and in leaf policies their ancestors by being parents, are never victims. Pins
  // count.
  virtual void Pin(EntryId entry) = 0;
  virtual void Unpin(EntryId entry) = 0;
  // The entry to evict next, kNoEntry if all are pinned. Does not remove it.
  virtual EntryId Victim() = 0;
  // For policies that look into the future (Belady): the time, in any unit, at which the entry will
  // be used next; INT64_MAX for never. Others ignore it.
  virtual void SetNextUse(EntryId entry, int64_t time) = 0;
};

// "lru" (over leaves), "lru-flat", "fifo", "lfu", "belady", ...; an unknown name is an error that
// lists them.
Result<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name);
std::vector<std::string> EvictionPolicyNames();

}  // namespace minke

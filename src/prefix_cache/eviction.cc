#include "prefix_cache/eviction.h"

#include <array>
#include <cstddef>
#include <limits>
#include <tuple>
#include <unordered_map>
#include <utility>

#include <fmt/format.h>

namespace minke {
namespace {

// What a policy may know about an entry's use. Times are a count of arrivals and uses of all
// entries, which is unique and, unlike a clock of the machine, the same in every run.
struct Usage {
  int64_t inserted = 0;
  int64_t last_use = 0;      // or the arrival, before the first use
  int64_t previous_use = 0;  // the one before the last; 0: there is none
  int64_t uses = 0;
  int64_t next_use = std::numeric_limits<int64_t>::max();
};

// The entry with the smallest rank goes first.
struct Rank {
  int64_t first = 0;
  int64_t second = 0;
};

struct PolicyRule {
  std::string_view name;
  bool leaves_only;
  Rank (*rank)(const Usage& usage);
};

Rank LastUse(const Usage& usage) {
  return {.first = usage.last_use};
}
Rank Arrival(const Usage& usage) {
  return {.first = usage.inserted};
}
Rank UseCount(const Usage& usage) {
  return {.first = usage.uses, .second = usage.last_use};
}
Rank LastUseButOne(const Usage& usage) {
  return {.first = usage.previous_use, .second = usage.last_use};
}
Rank NextUse(const Usage& usage) {
  return {.first = -usage.next_use, .second = usage.last_use};
}

constexpr std::array<PolicyRule, 6> kPolicyRules = {{
    {"lru", true, LastUse},
    {"lru-flat", false, LastUse},
    {"fifo", true, Arrival},
    {"lfu", true, UseCount},
    {"lru-2", true, LastUseButOne},
    {"belady", true, NextUse},
}};

// A binary heap of the entries that may be evicted. Entries know their places in it, so that any
// of them can be taken out or moved.
class RankedPolicy final : public EvictionPolicy {
 public:
  explicit RankedPolicy(const PolicyRule& rule) : rule_(rule) {}

  void Insert(EntryId entry, EntryId parent) override {
    CHECK(entry != kNoEntry, "An entry needs a number of its own.");
    Entry* above = rule_.leaves_only && parent != kNoEntry ? &Find(parent) : nullptr;
    const auto [place, is_new] = entries_.try_emplace(entry);
    CHECK(is_new, fmt::format("Entry {} is in already.", entry));
    Entry& added = place->second;
    added.id = entry;
    added.parent = above;
    added.usage.inserted = ++time_;
    added.usage.last_use = time_;
    if (above != nullptr) {
      ++above->children;
      Settle(*above);
    }
    Settle(added);
  }

  void Touch(EntryId entry) override {
    Entry& used = Find(entry);
    if (used.usage.uses > 0) used.usage.previous_use = used.usage.last_use;
    used.usage.last_use = ++time_;
    ++used.usage.uses;
    Settle(used);
  }

  void Remove(EntryId entry) override {
    Entry& removed = Find(entry);
    CHECK(removed.pins == 0, fmt::format("Entry {} is pinned.", entry));
    CHECK(removed.children == 0, fmt::format("Entry {} has children.", entry));
    if (removed.place != kNoPlace) TakeOut(removed.place);
    if (removed.parent != nullptr) {
      --removed.parent->children;
      Settle(*removed.parent);
    }
    entries_.erase(entry);
  }

  void Pin(EntryId entry) override {
    Entry& pinned = Find(entry);
    ++pinned.pins;
    Settle(pinned);
  }

  void Unpin(EntryId entry) override {
    Entry& pinned = Find(entry);
    CHECK(pinned.pins > 0, fmt::format("Entry {} is not pinned.", entry));
    --pinned.pins;
    Settle(pinned);
  }

  EntryId Victim() override { return heap_.empty() ? kNoEntry : heap_.front().entry->id; }

  void SetNextUse(EntryId entry, int64_t time) override {
    CHECK(time >= 0, fmt::format("Entry {} cannot be used next at {}.", entry, time));
    Entry& used = Find(entry);
    used.usage.next_use = time;
    Settle(used);
  }

 private:
  static constexpr size_t kNoPlace = static_cast<size_t>(-1);

  struct Entry {
    EntryId id = kNoEntry;
    Entry* parent = nullptr;  // another value of entries_, whose addresses do not change
    int64_t children = 0;
    int64_t pins = 0;
    size_t place = kNoPlace;  // in heap_
    Usage usage;
  };

  // The rank is copied into the heap: comparisons then stay within its memory.
  struct HeapItem {
    Rank rank;
    Entry* entry = nullptr;
  };

  static bool Before(const HeapItem& a, const HeapItem& b) {
    return std::tie(a.rank.first, a.rank.second, a.entry->id) <
           std::tie(b.rank.first, b.rank.second, b.entry->id);
  }

  Entry& Find(EntryId entry) {
    const auto found = entries_.find(entry);
    CHECK(found != entries_.end(), fmt::format("Entry {} is not in.", entry));
    return found->second;
  }

  // Puts the entry where its use, its pins and its children say.
  void Settle(Entry& entry) {
    if (entry.pins > 0 || entry.children > 0) {
      if (entry.place != kNoPlace) TakeOut(entry.place);
      return;
    }
    const HeapItem item = {.rank = rule_.rank(entry.usage), .entry = &entry};
    if (entry.place == kNoPlace) {
      heap_.push_back(item);
      Place(heap_.size() - 1, item);
    } else {
      Place(entry.place, item);
    }
  }

  void TakeOut(size_t place) {
    heap_[place].entry->place = kNoPlace;
    const HeapItem last = heap_.back();
    heap_.pop_back();
    if (place < heap_.size()) Place(place, last);
  }

  void Store(size_t place, const HeapItem& item) {
    heap_[place] = item;
    item.entry->place = place;
  }

  // Stores the item at the place, or as far above or below as the order of the heap asks for.
  void Place(size_t place, const HeapItem& item) {
    while (place > 0 && Before(item, heap_[(place - 1) / 2])) {
      Store(place, heap_[(place - 1) / 2]);
      place = (place - 1) / 2;
    }
    for (;;) {
      size_t child = 2 * place + 1;
      if (child >= heap_.size()) break;
      if (child + 1 < heap_.size() && Before(heap_[child + 1], heap_[child])) ++child;
      if (!Before(heap_[child], item)) break;
      Store(place, heap_[child]);
      place = child;
    }
    Store(place, item);
  }

  const PolicyRule& rule_;
  std::unordered_map<EntryId, Entry> entries_;
  std::vector<HeapItem> heap_;
  int64_t time_ = 0;
};

}  // namespace

Result<std::unique_ptr<EvictionPolicy>> MakeEvictionPolicy(std::string_view name) {
  std::string known;
  for (const PolicyRule& rule : kPolicyRules) {
    if (rule.name == name) return std::make_unique<RankedPolicy>(rule);
    known += (known.empty() ? "" : ", ") + std::string(rule.name);
  }
  constexpr size_t kShownBytesMax = 40;
  return Fail(fmt::format("There is no eviction policy \"{}\"; the policies are {}.",
                          name.substr(0, kShownBytesMax), known));
}

std::vector<std::string> EvictionPolicyNames() {
  std::vector<std::string> names;
  names.reserve(std::size(kPolicyRules));
  for (const PolicyRule& rule : kPolicyRules) names.emplace_back(rule.name);
  return names;
}

}  // namespace minke

// Eviction policies by small cases worked out by hand, and by properties over random operations
// that a plain model of the same rules checks after every step.
#include "prefix_cache/eviction.h"

#include <gtest/gtest.h>
#include <rapidcheck.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

namespace minke {
namespace {

std::unique_ptr<EvictionPolicy> Make(const std::string& name) {
  auto policy = MakeEvictionPolicy(name);
  EXPECT_TRUE(policy.has_value()) << name;
  return std::move(*policy);
}

// Evicts until nothing may go; returns the victims in their order.
std::vector<EntryId> Drain(EvictionPolicy& policy) {
  std::vector<EntryId> victims;
  for (EntryId victim = policy.Victim(); victim != kNoEntry; victim = policy.Victim()) {
    victims.push_back(victim);
    policy.Remove(victim);
  }
  return victims;
}

using Ids = std::vector<EntryId>;

TEST(Eviction, NamesAreKnownAndOthersAreErrors) {
  const std::vector<std::string> names = EvictionPolicyNames();
  EXPECT_EQ(names, (std::vector<std::string>{"lru", "lru-flat", "fifo", "lfu", "lru-2", "belady"}));
  for (const std::string& name : names) EXPECT_EQ(Make(name)->Victim(), kNoEntry);
  const auto unknown = MakeEvictionPolicy("clock");
  ASSERT_FALSE(unknown.has_value());
  EXPECT_EQ(unknown.error().message,
            "There is no eviction policy \"clock\"; the policies are lru, lru-flat, fifo, lfu, "
            "lru-2, belady.");
}

// Two chains below one root: 1-2-3 and 1-4.
void InsertTree(EvictionPolicy& policy) {
  policy.Insert(1, kNoEntry);
  policy.Insert(2, 1);
  policy.Insert(3, 2);
  policy.Insert(4, 1);
}

TEST(Eviction, LruTakesLeavesFirst) {
  const auto policy = Make("lru");
  InsertTree(*policy);
  policy->Touch(3);  // newer than 4, and 2 and 1 are older than both but have children
  EXPECT_EQ(Drain(*policy), (Ids{4, 3, 2, 1}));
}

TEST(Eviction, FlatLruDoesNotLookAtParents) {
  const auto policy = Make("lru-flat");
  InsertTree(*policy);
  policy->Touch(1);
  EXPECT_EQ(Drain(*policy), (Ids{2, 3, 4, 1}));
}

TEST(Eviction, FlatLruTakesTheEndOfAChainTouchedBackwards) {
  const auto policy = Make("lru-flat");
  InsertTree(*policy);
  for (const EntryId entry : {3, 2, 1}) policy->Touch(entry);
  EXPECT_EQ(Drain(*policy), (Ids{4, 3, 2, 1}));
}

TEST(Eviction, FlatLruNeedsNoParent) {
  const auto policy = Make("lru-flat");
  policy->Insert(7, 6);
  EXPECT_EQ(policy->Victim(), 7);
}

TEST(Eviction, FifoIgnoresUse) {
  const auto policy = Make("fifo");
  for (const EntryId entry : {5, 6, 7}) policy->Insert(entry, kNoEntry);
  policy->Touch(5);
  EXPECT_EQ(Drain(*policy), (Ids{5, 6, 7}));
}

TEST(Eviction, LfuCountsUsesAndForgetsThemWithTheEntry) {
  const auto policy = Make("lfu");
  for (const EntryId entry : {1, 2, 3}) policy->Insert(entry, kNoEntry);
  for (const EntryId entry : {1, 1, 1, 3, 2}) policy->Touch(entry);
  EXPECT_EQ(policy->Victim(), 3);  // one use, as 2, but the older one
  policy->Remove(1);
  policy->Insert(1, kNoEntry);  // comes back without its three uses
  EXPECT_EQ(Drain(*policy), (Ids{1, 3, 2}));
}

TEST(Eviction, LruTwoComparesTheLastUseButOne) {
  const auto policy = Make("lru-2");
  for (const EntryId entry : {1, 2, 3, 4}) policy->Insert(entry, kNoEntry);
  // Used twice: 1 at places 1 and 8, 2 at places 4 and 5. Used once: 3 and 4.
  for (const EntryId entry : {1, 3, 4, 2, 2, 1}) policy->Touch(entry);
  EXPECT_EQ(Drain(*policy), (Ids{3, 4, 1, 2}));
}

TEST(Eviction, BeladyTakesTheFurthestNextUse) {
  const auto policy = Make("belady");
  for (const EntryId entry : {1, 2, 3, 4}) policy->Insert(entry, kNoEntry);
  policy->SetNextUse(1, 10);
  policy->SetNextUse(2, 30);
  policy->SetNextUse(3, 20);
  policy->SetNextUse(4, INT64_MAX);  // never
  EXPECT_EQ(Drain(*policy), (Ids{4, 2, 3, 1}));
}

TEST(Eviction, PinsCountAndProtectAncestors) {
  const auto policy = Make("lru");
  InsertTree(*policy);
  policy->Pin(3);
  policy->Pin(3);
  EXPECT_EQ(policy->Victim(), 4);
  policy->Remove(4);
  EXPECT_EQ(policy->Victim(), kNoEntry);
  policy->Unpin(3);
  EXPECT_EQ(policy->Victim(), kNoEntry);
  policy->Unpin(3);
  EXPECT_EQ(Drain(*policy), (Ids{3, 2, 1}));
}

TEST(EvictionDeathTest, BrokenCallsStopTheProgram) {
  const auto policy = Make("lru");
  InsertTree(*policy);
  policy->Pin(4);
  EXPECT_DEATH(policy->Remove(1), "Entry 1 has children");
  EXPECT_DEATH(policy->Remove(4), "Entry 4 is pinned");
  EXPECT_DEATH(policy->Unpin(3), "Entry 3 is not pinned");
  EXPECT_DEATH(policy->Touch(9), "Entry 9 is not in");
  EXPECT_DEATH(policy->Insert(2, 1), "Entry 2 is in already");
  EXPECT_DEATH(policy->Insert(8, 9), "Entry 9 is not in");
  EXPECT_DEATH(policy->SetNextUse(3, -1), "cannot be used next at -1");
}

// ---- properties ----

// The same rules without a heap: every question looks at every entry.
class PlainPolicy {
 public:
  explicit PlainPolicy(std::string name) : name_(std::move(name)) {}

  void Insert(EntryId entry, EntryId parent) {
    Entry added;
    added.parent = name_ == "lru-flat" ? kNoEntry : parent;
    added.inserted = added.last = ++time_;
    entries_[entry] = added;
  }
  void Touch(EntryId entry) {
    Entry& used = entries_.at(entry);
    if (used.uses++ > 0) used.previous = used.last;
    used.last = ++time_;
  }
  void Remove(EntryId entry) { entries_.erase(entry); }
  void Pin(EntryId entry, int64_t count) { entries_.at(entry).pins += count; }
  void SetNextUse(EntryId entry, int64_t time) { entries_.at(entry).next = time; }
  bool IsPinned(EntryId entry) const { return entries_.at(entry).pins > 0; }
  bool HasChild(EntryId entry) const {
    return std::any_of(entries_.begin(), entries_.end(),
                       [&](const auto& other) { return other.second.parent == entry; });
  }
  std::vector<EntryId> Ids() const {
    std::vector<EntryId> ids;
    for (const auto& [id, entry] : entries_) ids.push_back(id);
    return ids;
  }
  EntryId Victim() const {
    EntryId victim = kNoEntry;
    for (const auto& [id, entry] : entries_) {
      if (entry.pins > 0 || HasChild(id)) continue;
      if (victim == kNoEntry || Rank(entry) < Rank(entries_.at(victim))) victim = id;
    }
    return victim;
  }

 private:
  struct Entry {
    EntryId parent = kNoEntry;
    int64_t inserted = 0, last = 0, previous = 0, uses = 0, pins = 0, next = INT64_MAX;
  };
  std::pair<int64_t, int64_t> Rank(const Entry& entry) const {
    if (name_ == "fifo") return {entry.inserted, 0};
    if (name_ == "lfu") return {entry.uses, entry.last};
    if (name_ == "lru-2") return {entry.previous, entry.last};
    if (name_ == "belady") return {-entry.next, entry.last};
    return {entry.last, 0};
  }
  std::string name_;
  std::map<EntryId, Entry> entries_;
  int64_t time_ = 0;
};

struct Step {
  int kind = 0;
  uint32_t choice = 0;
  int64_t number = 0;
};

rc::Gen<std::vector<Step>> Steps() {
  return rc::gen::container<std::vector<Step>>(
      rc::gen::map(rc::gen::tuple(rc::gen::inRange(0, 10), rc::gen::arbitrary<uint32_t>(),
                                  rc::gen::inRange<int64_t>(0, 50)),
                   [](const std::tuple<int, uint32_t, int64_t>& values) {
                     return Step{std::get<0>(values), std::get<1>(values), std::get<2>(values)};
                   }));
}

// A policy and its model, with the same calls made to both.
class Pair {
 public:
  explicit Pair(const std::string& name) : real_(Make(name)), plain_(name) {}

  void Do(const Step& step) {
    const std::vector<EntryId> ids = plain_.Ids();
    const EntryId chosen = ids.empty() ? kNoEntry : ids[step.choice % ids.size()];
    if (step.kind <= 3 || ids.empty()) {
      const EntryId parent = step.number % 3 == 0 ? kNoEntry : chosen;
      real_->Insert(next_id_, parent);
      plain_.Insert(next_id_++, parent);
    } else if (step.kind <= 5) {
      real_->Touch(chosen);
      plain_.Touch(chosen);
    } else if (step.kind == 6) {
      real_->Pin(chosen);
      plain_.Pin(chosen, 1);
    } else if (step.kind == 7 && plain_.IsPinned(chosen)) {
      real_->Unpin(chosen);
      plain_.Pin(chosen, -1);
    } else if (step.kind == 8) {
      real_->SetNextUse(chosen, step.number);
      plain_.SetNextUse(chosen, step.number);
    } else {
      RemoveVictim();
    }
    RC_ASSERT(real_->Victim() == plain_.Victim());
  }

  // False if there is none.
  bool RemoveVictim() {
    const EntryId victim = real_->Victim();
    if (victim == kNoEntry) return false;
    RC_ASSERT(!plain_.IsPinned(victim));
    RC_ASSERT(!plain_.HasChild(victim));
    real_->Remove(victim);
    plain_.Remove(victim);
    return true;
  }

  // Without pins, all can be evicted, in the order of the model: no entry was lost.
  void DrainAll() {
    for (const EntryId id : plain_.Ids()) {
      while (plain_.IsPinned(id)) {
        real_->Unpin(id);
        plain_.Pin(id, -1);
      }
    }
    for (bool more = true; more; more = RemoveVictim()) {
      RC_ASSERT(real_->Victim() == plain_.Victim());
    }
    RC_ASSERT(plain_.Ids().empty());
  }

 private:
  std::unique_ptr<EvictionPolicy> real_;
  PlainPolicy plain_;
  EntryId next_id_ = 0;
};

TEST(Eviction, EveryPolicyFollowsItsRule) {
  for (const std::string& name : EvictionPolicyNames()) {
    EXPECT_TRUE(rc::check(name + " follows its rule", [&] {
      Pair pair(name);
      const std::vector<Step> steps = *Steps();
      for (const Step& step : steps) pair.Do(step);
      pair.DrainAll();
    }));
  }
}

// A cache of a million entries must not scan them: at O(n) a step this would take hours.
TEST(Eviction, StaysFastWithManyEntries) {
  constexpr EntryId kEntries = 200'000;
  const auto policy = Make("lru");
  for (EntryId entry = 0; entry < kEntries; ++entry) policy->Insert(entry, kNoEntry);
  const auto start = std::chrono::steady_clock::now();
  for (EntryId entry = 0; entry < kEntries; ++entry) {
    policy->Touch((entry * 7919) % kEntries);
    policy->Pin(entry);
    policy->Unpin(entry);
    const EntryId victim = policy->Victim();
    policy->Remove(victim);
    policy->Insert(victim, kNoEntry);
  }
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
}

}  // namespace
}  // namespace minke

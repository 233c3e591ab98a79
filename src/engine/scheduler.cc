#include "engine/scheduler.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "core/result.h"

namespace minke {

Scheduler::Job& Scheduler::At(uint64_t id) {
  const auto found = jobs_.find(id);
  CHECK(found != jobs_.end(), "a request that the scheduler does not know");
  return found->second;
}

const Scheduler::Job& Scheduler::At(uint64_t id) const {
  const auto found = jobs_.find(id);
  CHECK(found != jobs_.end(), "a request that the scheduler does not know");
  return found->second;
}

void Scheduler::Add(const SchedulerJob& job) {
  Tenant& tenant = tenants_[job.tenant];
  if (tenant.requests == 0) {
    std::optional<int64_t> least;
    for (const auto& [name, other] : tenants_) {
      if (other.requests > 0) least = std::min(least.value_or(other.served), other.served);
    }
    if (least.has_value()) tenant.served = std::max(tenant.served, *least);
  }
  ++tenant.requests;
  Job entry;
  entry.job = job;
  entry.waiting_since = job.submitted;
  entry.tenant = &tenant;
  const bool is_new = jobs_.emplace(job.id, std::move(entry)).second;
  CHECK(is_new, "a request was added twice");
}

void Scheduler::SetPhase(Job& job, Phase phase) {
  const int64_t was = job.phase == Phase::kWaiting ? 0 : 1;
  const int64_t is = phase == Phase::kWaiting ? 0 : 1;
  running_ += is - was;
  job.tenant->running += is - was;
  job.phase = phase;
}

void Scheduler::Remove(uint64_t id) {
  Job& job = At(id);
  if (job.phase != Phase::kWaiting) blocked_.reset();
  SetPhase(job, Phase::kWaiting);
  --job.tenant->requests;
  jobs_.erase(id);
  if (jobs_.empty() || running_ == 0) blocked_.reset();
  ForgetIdleTenants();
}

void Scheduler::ForgetIdleTenants() {
  if (jobs_.empty()) tenants_.clear();
  // Whoever is below all that are there would be lifted anyway.
  while (tenants_.size() > kIdleTenantsMax) {
    auto least = tenants_.end();
    for (auto it = tenants_.begin(); it != tenants_.end(); ++it) {
      if (it->second.requests > 0) continue;
      if (least == tenants_.end() || it->second.served < least->second.served) least = it;
    }
    if (least == tenants_.end()) return;
    tenants_.erase(least);
  }
}

std::vector<std::pair<uint64_t, Overdue>> Scheduler::FindOverdue(double now) const {
  std::vector<std::pair<uint64_t, Overdue>> overdue;
  for (const auto& [id, job] : jobs_) {
    const bool waits = job.phase == Phase::kWaiting && options_.queue_seconds_max > 0;
    if (job.job.seconds_max > 0 && now - job.job.submitted > job.job.seconds_max) {
      overdue.emplace_back(id, Overdue::kTime);
    } else if (waits && now - job.waiting_since > options_.queue_seconds_max) {
      overdue.emplace_back(id, Overdue::kQueue);
    }
  }
  return overdue;
}

// ---- memory ----

std::optional<uint64_t> Scheduler::NextAdmission() const {
  const auto order = [](const Job& job) {
    return std::make_tuple(-job.job.priority, job.tenant->running, job.tenant->served, job.job.id);
  };
  const Job* best = nullptr;
  for (const auto& [id, job] : jobs_) {
    if (job.phase != Phase::kWaiting) continue;
    if (blocked_.has_value() && job.job.priority <= *blocked_) continue;
    if (best == nullptr || order(job) < order(*best)) best = &job;
  }
  if (best == nullptr) return std::nullopt;
  if (running_ >= options_.running_max && !Victim(best->job.priority - 1).has_value()) {
    return std::nullopt;
  }
  return best->job.id;
}

void Scheduler::Admit(uint64_t id) {
  Job& job = At(id);
  CHECK(job.phase == Phase::kWaiting && running_ < options_.running_max);
  SetPhase(job, Phase::kLoading);
}

void Scheduler::Block(uint64_t id) {
  Job& job = At(id);
  CHECK(job.phase != Phase::kWaiting);
  SetPhase(job, Phase::kWaiting);
  blocked_ = std::max(blocked_.value_or(job.job.priority), job.job.priority);
  if (running_ == 0) blocked_.reset();
}

void Scheduler::Preempt(uint64_t id, bool no_room, double now) {
  At(id).waiting_since = now;
  if (no_room) return Block(id);
  SetPhase(At(id), Phase::kWaiting);
  if (running_ == 0) blocked_.reset();
}

std::optional<uint64_t> Scheduler::Victim(int priority_max) const {
  const Job* victim = nullptr;
  for (const auto& [id, job] : jobs_) {
    if (job.phase == Phase::kWaiting || job.job.priority > priority_max) continue;
    // Jobs come by age: of equals, the last one stays.
    if (victim == nullptr || job.job.priority <= victim->job.priority) victim = &job;
  }
  if (victim == nullptr) return std::nullopt;
  return victim->job.id;
}

std::optional<uint64_t> Scheduler::VictimFor(uint64_t id) const {
  return Victim(At(id).job.priority - 1);
}

std::optional<uint64_t> Scheduler::VictimOfGrowth() const {
  return Victim(std::numeric_limits<int>::max());
}

// ---- progress ----

void Scheduler::SetPrefill(uint64_t id, int64_t rows_left) {
  CHECK(rows_left > 0);
  Job& job = At(id);
  SetPhase(job, Phase::kPrefill);
  job.rows_left = rows_left;
}

void Scheduler::SetDecode(uint64_t id) {
  SetPhase(At(id), Phase::kDecode);
}

int64_t Scheduler::prefilling() const {
  return std::count_if(jobs_.begin(), jobs_.end(), [](const auto& entry) {
    return entry.second.phase == Phase::kPrefill || entry.second.phase == Phase::kLoading;
  });
}

int64_t Scheduler::decoding() const {
  return std::count_if(jobs_.begin(), jobs_.end(),
                       [](const auto& entry) { return entry.second.phase == Phase::kDecode; });
}

int64_t Scheduler::oldest_share() const {
  return std::max<int64_t>(1, options_.step_rows_max / kOldestShare);
}

std::vector<Scheduler::Candidate> Scheduler::Candidates() const {
  std::vector<Candidate> candidates;
  for (const auto& [id, job] : jobs_) {
    if (job.phase != Phase::kPrefill) continue;
    Candidate candidate;
    candidate.id = id;
    candidate.job = &job;
    candidates.push_back(candidate);
  }
  return candidates;
}

// Grants rows to candidates, which come by age.
void Scheduler::ShareRows(std::vector<Candidate>& candidates) const {
  int64_t least = std::numeric_limits<int64_t>::max();
  for (const Candidate& candidate : candidates)
    least = std::min(least, candidate.job->tenant->served);
  const int64_t burst = least + kBurstSteps * options_.step_rows_max;
  const int64_t short_rows = options_.step_rows_max - oldest_share();

  Candidate& oldest = candidates.front();
  oldest.granted = std::min(oldest.job->rows_left, oldest_share());
  oldest.job->tenant->served += oldest.granted;
  int64_t budget = options_.step_rows_max - oldest.granted;
  const auto order = [&](const Candidate& candidate) {
    const Job& job = *candidate.job;
    const bool goes_first = job.rows_left <= short_rows && candidate.job->tenant->served <= burst;
    return std::make_tuple(-job.job.priority, goes_first ? 0 : 1, candidate.job->tenant->served,
                           job.rows_left, candidate.id);
  };
  while (budget > 0) {
    Candidate* best = nullptr;
    for (Candidate& candidate : candidates) {
      if (candidate.granted == candidate.job->rows_left) continue;
      if (best == nullptr || order(candidate) < order(*best)) best = &candidate;
    }
    if (best == nullptr) return;
    const int64_t more = std::min(best->job->rows_left - best->granted, budget);
    best->granted += more;
    best->job->tenant->served += more;
    budget -= more;
  }
}

StepPlan Scheduler::Step() {
  StepPlan plan;
  for (auto& [id, job] : jobs_) {
    if (job.phase != Phase::kDecode) continue;
    plan.decode.push_back(id);
    ++job.tenant->served;
  }
  std::vector<Candidate> candidates = Candidates();
  if (candidates.empty()) return plan;
  ShareRows(candidates);
  for (const Candidate& candidate : candidates) {
    if (candidate.granted == 0) continue;
    plan.prefill.push_back({candidate.id, candidate.granted});
  }
  return plan;
}

}  // namespace minke

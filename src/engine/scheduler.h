// Who goes next: which waiting request is taken up, which rows the next step has, who gives its
// memory back. Pure decisions over what it was told: no threads, no clock, no model; so a seeded
// simulation can run it (tests/engine/scheduler_test.cc).
//
// The rules, in this order:
// - Every running answer gets one row a step; prompts share step_rows_max rows.
// - Higher priorities go first: into the machine, where they push out the lowest ones if there is
//   no slot or memory left, and into the rows of a step. But an eighth of these rows belongs to the
//   oldest prompt that is being read, so that none stands still.
// - What is left of a prompt and fits a step goes before longer ones. So the first token of a short
//   prompt comes at the latest with the step after the running one, whatever else is being read:
//   after two chunk times. A tenant that is ahead of the others by more than kBurstSteps steps has
//   to wait for its turn with short prompts, too.
// - Then tenants take turns by the rows they were served; and of a tenant's prompts the one with
//   the least left goes first, then the older one.
// Tenants that come back are lifted to the least served one that is there: rest earns no credit.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace minke {

// Steps' worth of rows that a tenant may be ahead of the least served one and still have its short
// prompts go first.
inline constexpr int64_t kBurstSteps = 16;
// The share of a step's prompt rows that belongs to the oldest prompt: one of so many parts.
inline constexpr int64_t kOldestShare = 8;
// Tenants without a request whose counters are remembered.
inline constexpr size_t kIdleTenantsMax = 4096;

struct SchedulerOptions {
  int64_t running_max = 64;        // requests with memory
  int64_t step_rows_max = 256;     // prompt rows of one step
  double queue_seconds_max = 600;  // 0: no limit
};

struct SchedulerJob {
  uint64_t id = 0;  // later requests have higher ones
  std::string tenant;
  int priority = 0;
  double submitted = 0;    // seconds of any one clock
  double seconds_max = 0;  // from then to the end; 0: no limit
};

struct StepPlan {
  struct Rows {
    uint64_t id = 0;
    int64_t rows = 0;
  };
  std::vector<uint64_t> decode;  // one row each
  std::vector<Rows> prefill;
  bool empty() const { return decode.empty() && prefill.empty(); }
};

enum class Overdue { kQueue, kTime };

class Scheduler {
 public:
  explicit Scheduler(const SchedulerOptions& options) : options_(options) {}

  // ---- coming and going ----
  void Add(const SchedulerJob& job);  // it waits
  void Remove(uint64_t id);
  // Requests over one of their limits at this time.
  std::vector<std::pair<uint64_t, Overdue>> FindOverdue(double now) const;

  // ---- memory ----
  // The waiting request that is to be taken up now, if any. Where running() is running_max already,
  // VictimFor() names the one that has to go for it.
  std::optional<uint64_t> NextAdmission() const;
  // It runs: it takes a slot. It is ready to be read when SetPrefill() says so.
  void Admit(uint64_t id);
  // There was no memory for it: it waits again, and nobody of its priority or a lower one overtakes
  // it until a running request has ended.
  void Block(uint64_t id);
  // It gave its memory back and waits again, at its old place. `no_room`: what it gave was needed
  // by one that runs; then it blocks others as Block() does, or the two would push each other out.
  void Preempt(uint64_t id, bool no_room, double now);
  // The running request of a strictly lower priority that has to go for `id`: of the lowest, the
  // youngest.
  std::optional<uint64_t> VictimFor(uint64_t id) const;
  // The running request that goes where an answer cannot grow: of the lowest priority, the
  // youngest; perhaps the one that wants to grow.
  std::optional<uint64_t> VictimOfGrowth() const;
  int64_t running() const { return running_; }
  int64_t waiting() const { return static_cast<int64_t>(jobs_.size()) - running_; }

  // ---- progress of running requests ----
  void SetPrefill(uint64_t id, int64_t rows_left);  // of its prompt
  void SetDecode(uint64_t id);
  int64_t prefilling() const;  // or loading
  int64_t decoding() const;

  // The rows of the next step, which is then run: they count as served.
  StepPlan Step();

 private:
  enum class Phase { kWaiting, kLoading, kPrefill, kDecode };
  struct Tenant {
    int64_t served = 0;    // rows
    int64_t requests = 0;  // that wait or run
    int64_t running = 0;
  };
  struct Job {
    SchedulerJob job;
    Phase phase = Phase::kWaiting;
    double waiting_since = 0;
    int64_t rows_left = 0;
    Tenant* tenant = nullptr;
  };
  struct Candidate {
    uint64_t id = 0;
    const Job* job = nullptr;
    int64_t granted = 0;
  };

  Job& At(uint64_t id);
  const Job& At(uint64_t id) const;
  void SetPhase(Job& job, Phase phase);
  void ForgetIdleTenants();
  std::optional<uint64_t> Victim(int priority_max) const;
  std::vector<Candidate> Candidates() const;
  void ShareRows(std::vector<Candidate>& candidates) const;
  int64_t oldest_share() const;

  SchedulerOptions options_;
  std::map<uint64_t, Job> jobs_;  // by age
  std::map<std::string, Tenant> tenants_;
  int64_t running_ = 0;
  std::optional<int> blocked_;  // priority up to which nobody is taken up
};

}  // namespace minke

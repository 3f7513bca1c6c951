// ShareWorld: a few processes of one host that divide a link by the real protocol
// (transport/share), interleaved at every access to the memory that they share. A Chooser picks
// where one is interrupted by another, stopped for longer than others wait for it, or killed.
//
// Properties:
//   safety    once every process that runs has polled since the last change (of a claim, a stop, a
//             death), the parts in use add up to at most the link, and stay so until the next
//             change
//   liveness  200 ms after the last change every process has at least its max-min part, less 1/32;
//             with nonsense in a slot: 2.2 s after, when a beat from the future counts no longer
//
// One thread.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/model/chooser.h"
#include "tests/model/share_steps.h"
#include "transport/share/share_link.h"

namespace pacecar::model {

struct ClaimChange {
  int round = 0;
  uint32_t process = 0;
  LinkClaim claim;
};

struct ShareScenario {
  std::string name;
  uint32_t processes = 2;
  std::vector<ClaimChange> changes;  // by round
  int faults_from = 0;               // rounds
  int faults_until = 12;
  bool nonsense = false;  // in the slot after the slots of the processes, until faults end
};

inline constexpr Rate kSharedLink = Rate::from_gbps(100);

std::vector<ShareScenario> share_scenarios();
ShareScenario wild_share_scenario(Chooser& chooser);

class ShareWorld {
 public:
  ShareWorld(const ShareScenario& scenario, Chooser& chooser);
  ~ShareWorld();

  // The property that does not hold; empty: all hold.
  std::string run();
  uint64_t polls() const { return polls_; }
  uint64_t deaths() const { return deaths_; }
  uint64_t stops() const { return stops_; }

 private:
  class Identity;
  struct Process;

  void change_claims();
  void write_nonsense();
  void run_round();
  // Asks for a fault of the process `at` of `pending`: processes that have still to poll in this
  // round. Returns the index of the process that runs next.
  size_t interrupt(std::vector<uint32_t>& pending, size_t at);
  void finish_poll(Process& process);
  void poll(Process& process);
  void pass_time();
  void check_safety();
  void check_parts();
  void changed() { ++changes_; }
  bool faults_over() const { return round_ > scenario_.faults_until; }

  const ShareScenario& scenario_;
  Chooser& chooser_;
  const std::unique_ptr<BasicShareTable<SteppedWord>> table_;
  std::vector<std::unique_ptr<Process>> processes_;
  int round_ = 0;
  Instant now_ = Instant::from_ns(1'000'000'000);
  Instant settled_at_;  // when every process must have its part
  uint64_t changes_ = 1;
  uint64_t polls_ = 0;
  uint64_t deaths_ = 0;
  uint64_t stops_ = 0;
  std::string failure_;
};

}  // namespace pacecar::model

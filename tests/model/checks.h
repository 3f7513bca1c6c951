// Checks: what must hold in every world, whatever happens to the words.
//
//   safety      what is sent towards one receiver is more than its link for no longer than a grant
//               is valid; a sender never uses more than its own link; no grant is above line rate;
//               no raise leaves before the cuts that make room for it
//   liveness    once faults are over, a flow with something to send is below a quarter of its fair
//               share, and one without others below most of the link, for a bounded time, and
//               everything arrives in bounded time; time in which loop 2 slows a flow down does not
//               count
//   repeats     once faults are over, the newest words arrive in bounded time
//   the newest  a word that is not newer than one that was heard before changes nothing, one that
//   wins        is newer counts
//   validity    a sender that hears nothing at all slows down to the least rate in bounded time;
//               one that hears acknowledgements, but no words, obeys no grant after a while
//
// Times are in steps. One thread.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "cc/allocator.h"
#include "tests/model/scenario.h"

namespace pacecar::model {

// Figures of one run, or the largest of several.
struct Result {
  std::string failure;  // empty: everything holds
  int64_t steps = 0;
  uint64_t words = 0;
  uint64_t faults = 0;
  int64_t longest_excess = 0;  // of a receiving link
  double largest_excess = 0;   // share of the link beyond it, in one step
  Bytes largest_queue = 0;
  int64_t longest_low = 0;   // of a flow, after the last fault
  int64_t longest_rest = 0;  // from the last fault to the end, beyond what the bytes need
  Duration validity;         // longest granted

  void add(const Result& other);
};

// What a flow does in one step.
struct FlowView {
  uint32_t sender = 0;
  uint32_t receiver = 0;
  Rate rate;               // that it was given
  Bytes unsent = 0;        // before this step
  Bytes rest = 0;          // after it
  Bytes room = 0;          // that window and credit leave
  bool known = false;      // its receiver knows that it will last for two round trips
  bool told = false;       // its newest grant has arrived
  bool heard = false;      // its newest demand has arrived
  bool announced = false;  // it has said any
  bool held = false;       // its credit is used up
  bool granted = false;    // is slowed down by its grant
  bool network = false;    // is slowed down by what the paths between carry: loop 2, not grants
  int64_t busy_since = 0;  // step
  bool waiting = false;    // has bytes to send or on their way
};

class Checks {
 public:
  explicit Checks(const Scenario& scenario);

  bool failed() const { return !result_.failure.empty(); }
  const Result& result() const { return result_; }
  void fail(int64_t step, std::string what);

  void on_word() { ++result_.words; }
  // A word met a fault, whose last effect is at `until`.
  void on_fault(int64_t until);
  // Each grant, when it is said, and then that this was all for now.
  void on_grant(int64_t step, uint32_t sender, uint32_t receiver, const Grant& grant);
  void on_grants(int64_t step);
  void on_queue(Bytes queued) { result_.largest_queue = std::max(result_.largest_queue, queued); }
  // At the end of each step.
  void on_step(int64_t step, const std::vector<FlowView>& flows, Bytes left, bool all_begun);

 private:
  double granted(uint32_t receiver) const;
  void check_links(int64_t step, const std::vector<FlowView>& flows);
  void check_progress(int64_t step, const std::vector<FlowView>& flows);
  void check_repeats(int64_t step, const std::vector<FlowView>& flows);
  void check_silence(int64_t step, const std::vector<FlowView>& flows);

  const Scenario& scenario_;
  Result result_;
  // What flows that send were told last, and the sums of each receiver, as shares of its link.
  std::vector<double> told_;
  std::vector<bool> sends_;  // and will for a while, as the receiver knows
  std::vector<double> before_;
  std::vector<double> most_;
  std::vector<int64_t> excess_;  // of each receiver: steps so far
  std::vector<int64_t> low_;     // of each flow
  std::vector<int64_t> untold_;  // of each flow: steps without its newest grant
  std::vector<int64_t> unheard_;
  int64_t quiet_since_ = 0;  // no fault has an effect after this step
  bool faulty_ = false;
  int64_t resting_since_ = -1;
  Bytes rest_ = 0;
};

}  // namespace pacecar::model

// Checks: what must hold in every world, whatever happens to the control words.
//
//   safety      the sum of the rates towards a receiver exceeds its link for no longer than a grant
//               is valid; a sender never uses more than its own link; no grant is above line rate;
//               no raise leaves before the cuts that make room for it
//   liveness    once faults are over, a flow with bytes to send is below a quarter of its fair
//               share, and a lone flow below most of the link, for a bounded time only, and all
//               bytes arrive in bounded time; time in which loop 2 slows a flow down does not count
//   repeats     once faults are over, the newest words arrive in bounded time
//   the newest  a word that is not newer than one received before changes nothing; a newer word
//   wins        takes effect
//   validity    in bounded time, a sender without words and acknowledgements slows down to the
//               least rate, and one with acknowledgements but no words drops its grant
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
  int64_t longest_rest = 0;  // from the last fault to the end, less the time that the bytes need
  Duration validity;         // longest granted

  void add(const Result& other);
};

// What a flow does in one step.
struct FlowView {
  uint32_t sender = 0;
  uint32_t receiver = 0;
  Rate rate;                    // by its newest decision
  Bytes unsent = 0;             // before this step
  Bytes rest = 0;               // after it
  Bytes room = 0;               // what window and credit allow
  bool known = false;           // its receiver knows of two round trips of bytes to come
  bool grant_arrived = false;   // its newest grant has arrived
  bool demand_arrived = false;  // its newest demand has arrived
  bool announced = false;       // it has sent a demand
  bool held = false;            // its credit is used up
  bool granted = false;         // its grant limits it
  bool network = false;         // loop 2 limits it: what the network between the hosts carries
  int64_t busy_since = 0;       // step
  bool waiting = false;         // it has a backlog
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
  // on_grant for each grant when it is issued, then on_grants once all grants of the step are.
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
  // The newest grant of each flow, and the sums over sending flows at each receiver, as shares of
  // its link.
  std::vector<double> newest_grant_;
  std::vector<bool> sends_;  // the flow has bytes to send, and its receiver knows that
  std::vector<double> before_;
  std::vector<double> most_;
  std::vector<int64_t> excess_;         // of each receiver: steps so far
  std::vector<int64_t> low_;            // of each flow
  std::vector<int64_t> without_grant_;  // of each flow: steps without its newest grant
  std::vector<int64_t> without_demand_;
  int64_t quiet_since_ = 0;  // no fault has an effect after this step
  bool faulty_ = false;
  int64_t resting_since_ = -1;
  Bytes rest_ = 0;
};

}  // namespace pacecar::model

// LinkBudget: the budget b, which is what one process may use of a link whose real rate and other
// users are not known. The nominal rate is an upper bound. Inputs, from ArrivalMeter: the rate that
// arrives (or is acknowledged), a, and its least queueing delay, d. While a queue stands, a is all
// that the link gives us, whatever was granted: b is cut to it. While d is small, b grows. The law
// starts when our arrivals do not fill the nominal rate and a queue has stood for three windows.
//
// The law: spec.md, section 6. T, W and P are the same here: the delay up to which b is not cut,
// the window of a measurement, a full packet; w is the process's weight.
//
// Rates are bit/s on the wire. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cc/host_link.h"
#include "cc/pace/arrival_meter.h"
#include "cc/pace/burst_use.h"
#include "cc/pace/greedy_neighbor.h"
#include "cc/pace/witnesses.h"
#include "transport/base/units.h"

namespace pacecar {

struct LinkBudgetConfig {
  Rate line;                      // nominal; never 0
  Rate first;                     // initial budget; 0: the line rate
  Bytes packet = 4096;            // a full one on the wire
  Duration round_trip;            // without queues
  Duration jitter;                // FlowEnvironment::jitter
  Duration base_memory;           // how long the least delay counts as the empty path's; not 0
  bool yields = true;             // to delays; false: the other end reacts to them
  HostLink* host_link = nullptr;  // FlowEnvironment::host_link
};

class LinkBudget {
 public:
  explicit LinkBudget(const LinkBudgetConfig& config);

  // `wire` bytes of `flow` have arrived. `excess`: their least delay (one-way or round trip) minus
  // the recent minimum; Duration::max() if unknown. Returns true if the rate has changed.
  bool on_bytes(Instant now, Bytes wire, Duration excess, uint32_t flow = 0);
  // `mean`: of the flows' weights; `share`: this process's part of the host's weights.
  void set_weight(double mean, double share);
  // Multiplies T: of two ends that see the same queue the one with the smaller value reacts first.
  void set_patience(int64_t patience) { patience_ = patience; }
  // The least round trip that was measured; one shorter than the configuration's does not count.
  void set_round_trip(Duration least) { round_trip_ = std::max(least, config_.round_trip); }
  // This process's part of the nominal rate, where processes share the link.
  void set_part(double part) { part_ = part; }

  // So many packets may arrive together by chance; only more count as a queue.
  int64_t usual_packets() const { return usual_packets_; }
  double rate() const;
  // b is the limit, not our part.
  bool learnt() const { return rate_ < part_; }
  // b is the nominal rate: without delays there is nothing to do.
  bool unconcerned() const { return rate_ >= nominal_; }
  // The start phase: no queue has been met yet, and the nominal rate has not been reached.
  bool starting() const { return starting_; }

 private:
  static constexpr int64_t kUsualPackets = 4;

  void begin(Instant now);
  Duration idle_limit() const;
  void look(Instant now);
  double held_part() const;
  // How long a change of the rate takes to show, at least.
  Duration period() const { return std::max(window_, round_trip_); }
  Duration usual() const;
  Duration agreed(double rate) const;
  Duration target() const;
  bool doubted(Instant now, bool reason);
  void slow_down(double rate);
  void cut(Instant now, Duration delay);
  void end_drain(Instant now);
  void restore(Instant now);
  void yield(double factor, Instant until);
  void note_burst(Instant now, Bytes wire, Duration excess);
  void forget_bursts();
  bool used(Instant now) const;
  void grow(Instant now, Duration delay);
  void yield_to_base(Instant now);
  void level(Instant now);

  const LinkBudgetConfig config_;
  const Duration window_;  // W
  const double nominal_;
  Duration round_trip_;
  double part_;
  double rate_;        // b
  double weight_ = 1;  // w
  int64_t usual_packets_ = kUsualPackets;
  int64_t patience_ = 1;
  ArrivalMeter meter_;
  BurstUse burst_;
  bool burst_used_ = false;  // all of the present budget
  GreedyNeighbor neighbor_;
  Witnesses witnesses_;
  Instant given_at_;         // when about what we hold against a neighbor last arrived
  Instant last_;             // arrival
  Duration delay_;           // at the last look
  bool starting_;            // no queue has been met yet
  double most_ = 0;          // highest rate that has arrived
  double bound_ = 0;         // what the link gave at the last cut
  uint32_t calm_ = 0;        // growths in a row beyond bound_, without a queue
  uint32_t late_looks_ = 0;  // in a row
  Instant next_cut_;
  Instant next_growth_;
  Instant next_level_;
  Instant doubted_since_ = Instant::never();  // doubted that the link gives its nominal rate
  Duration cut_delay_;                        // at the last cut; 0: drained since
  double yielded_ = 1;  // of b, to drain a queue, or to measure the empty path
  Instant yields_until_;
  int64_t period_ = 0;  // number of the quarter of base_memory at the last yield_to_base()
  double shown_;        // rate() when on_bytes last returned true
};

}  // namespace pacecar

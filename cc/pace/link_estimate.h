// LinkEstimate: what a receiving link gives this process, and how much of it can be granted:
//   available = eta * min(C, b) - X - drain
// C is the nominal rate; if processes share the link, our part of that rate. b, the estimate, is
// the rate that the link really gives us, where its rate and its other users are not known: while a
// queue stands, the rate that arrives is all that we get, whatever was granted, and b is cut to it;
// while there is none, b grows. X is traffic that no grant covers. A queue is drained while the
// link gives C; else b is cut. The law, with T, W, P, a and d: spec.md, sections 5 and 6.
// Rates are bit/s on the wire. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "cc/controller.h"
#include "cc/host_link.h"
#include "cc/pace/arrival_meter.h"
#include "cc/pace/constants.h"
#include "cc/pace/draining_rate.h"
#include "cc/pace/greedy_neighbor.h"
#include "cc/pace/witnesses.h"
#include "transport/base/units.h"

namespace pacecar {

class LinkEstimate {
 public:
  // environment.line_rate is that of the receiving link; `round_trip` without queues.
  LinkEstimate(const FlowEnvironment& environment, Duration round_trip,
               const PaceConstants& constants);

  // `wire` bytes of `flow` have arrived, `covered` by a grant or not. `excess`: their delay over
  // the recent minimum; Duration::max() if unknown. True if available() may have changed.
  bool on_arrival(Instant now, Bytes wire, bool covered, Duration excess, uint32_t flow);
  double available(size_t flows) const;  // The rate that `flows` flows can be granted, in all.
  // The rate that this process may use.
  double line() const { return std::min(rate_.rate(), part_); }

  // `usable`: the rate that all senders together could use. If it is less than the rate of the
  // link, queues form elsewhere, and nobody asks for more. `weight`: the mean weight of the flows,
  // times this process's part of the host's weights.
  void set_use(double usable, double weight) {
    senders_limit_ = usable < kFull * line();
    weight_ = weight;
  }
  // This process's part of the nominal rate, where processes share the link.
  void set_part(double part) { part_ = part; }
  // The least round trip that was measured; one shorter than the expected one does not count.
  void set_round_trip(Duration least) { round_trip_ = std::max(least, expected_round_trip_); }

 private:
  static constexpr double kFull = 7.0 / 8;  // of a link: it is full

  bool learnt() const { return rate_.lasting < part_; }
  void close_span(Instant now);
  Duration longest_pause() const;
  void begin(Instant now);
  void look(Instant now);
  // How long a change of the rate takes to show, at least.
  Duration period() const { return std::max(window_, round_trip_); }
  Duration agreed(double rate) const;
  Duration target() const { return std::max(agreed(rate_.lasting), neighbor_.kept()); }
  double held_part() const;
  bool doubted(Instant now, bool reason);
  void cut(Instant now, Duration delay);
  void grow(Instant now, Duration delay);
  void level(Instant now);

  const PaceConstants& constants_;
  HostLink* const host_link_;
  const double nominal_;
  const double first_;  // b at the beginning
  const double least_;  // of b
  const double packet_bits_;
  const Duration packet_time_;  // at the nominal rate
  const Duration jitter_;
  const Duration expected_round_trip_;
  const Duration span_;    // of X and drain
  const Duration window_;  // W
  Duration round_trip_;
  double part_;
  double weight_ = 1;
  bool senders_limit_ = false;

  // X and the queue at the last hop, once per span.
  Instant span_began_;
  Bytes foreign_ = 0;
  Duration least_excess_ = Duration::max();
  double uncovered_ = 0;  // X
  Duration queue_;

  DrainingRate rate_;  // b
  ArrivalMeter meter_;
  GreedyNeighbor neighbor_;
  Witnesses witnesses_;
  Instant last_;        // arrival
  double most_ = 0;     // highest rate that has arrived
  double bound_ = 0;    // what the link gave at the last cut; 0: no queue met yet
  uint32_t late_ = 0;   // looks in a row
  Duration cut_delay_;  // at the last cut; 0: grown since
  Instant next_cut_;
  Instant next_growth_;
  Instant next_level_;
  Instant doubted_since_ = Instant::never();
};

}  // namespace pacecar

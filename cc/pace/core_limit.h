// CoreLimit: c_f, what the paths between two edge links carry for one flow, as far as delays and
// marks tell. Re-routing comes first and is the NIC's work, path by path; a flow slows down only
// when the median packet of a round trip had trouble, so when most paths are bad:
//
//   c *= max(1 - 0.8 (d - T) / d, 0.5)   d: mean delay of those in trouble; T = RTT / 4
//   c += (top - c) / 4                   per clean round trip
//
// `top` is where trouble began last; it grows by an eighth of itself per clean round trip up to the
// line rate, so that a path that carries less than the line is not overrun again and again.
//
// Rates in bit/s. Same purity and thread rule as Controller.
#pragma once

#include "cc/controller.h"
#include "cc/pace/constants.h"
#include "cc/rate_law.h"

namespace pacecar {

class CoreLimit {
 public:
  CoreLimit(const FlowEnvironment& environment, const PaceConstants& constants);

  // True when the limit is another now.
  bool on_ack(const AckSample& sample);
  bool on_loss(const LossSample& sample);
  bool on_timeout();

  double rate() const { return rate_; }
  // Goes on from `bps`: nothing else limits the flow any more.
  void restart(double bps);
  Duration base_rtt() const { return base_; }

 private:
  bool judge();
  void observe_base(Instant now, Duration rtt);
  bool decrease(double factor);

  const PaceConstants& constants_;
  const double line_;
  const Duration jitter_;
  Duration base_;
  double rate_;
  double top_;
  OncePerRoundTrip round_trip_;
  // Packets heard of in this round trip, and of these in trouble.
  uint32_t heard_ = 0;
  uint32_t bad_ = 0;
  double bad_delay_ns_ = 0;  // sum
  Bytes acked_ = 0;
  Bytes lost_ = 0;
  // The least round trip of the present period; base_ is that of the one before, too.
  Duration next_base_ = Duration::max();
  Instant base_since_;
  bool measured_ = false;  // base_ is a measurement
};

}  // namespace pacecar

// CoreLimit: c_f, what the paths between two edge links carry for one flow, as far as delays,
// marks and losses tell. Re-routing comes first and is the NIC's work, path by path; a flow slows
// down only when the median packet of a round trip had trouble, so when most paths are bad:
//
//   c = min(c, r) * max(1 - 0.8 (d - T) / d, 0.5)   d: mean delay of those in trouble; T = RTT / 4
//   c += (top - c) / 2                              per clean round trip
//
// A delay that all packets of a round trip share is that of the last hop, which is loop 1's work:
// it does not count here, as long as it is below a round trip. `top` is where trouble began, until
// it is reached again; then the line rate, or a little less while the paths show queues: at 100%
// they would only grow. A flow begins below the line rate, too, unless others on the NIC have just
// found the network clear. Round trips in which the NIC looks for a better path say nothing.
//
// Rates in bit/s. Same purity and thread rule as Controller.
#pragma once

#include <algorithm>
#include <array>

#include "cc/controller.h"
#include "cc/pace/constants.h"
#include "cc/rate_law.h"

namespace pacecar {

class CoreLimit {
 public:
  CoreLimit(const FlowEnvironment& environment, const PaceConstants& constants);

  // `rate` is what the flow sends at. True when the limit is another now.
  bool on_ack(const AckSample& sample, double rate);
  void on_loss(const LossSample& sample) { lost_ += sample.lost; }
  void on_timeout(double rate) { decrease(std::max(fastest_, rate), kTimeoutFactor); }
  // Goes on from `rate`: nothing else limits the flow any more.
  void restart(double rate);
  // Something else does again: what was known of the paths before counts, unless less was found.
  void resume() { rate_ = std::max(rate_, before_); }

  // Nothing has been heard yet, but other flows have found the network clear.
  void trust() {
    if (!measured_) rate_ = line_;
  }
  // The last round trip showed no trouble and no queues.
  bool clear() const { return clear_; }
  double rate() const { return rate_; }
  Duration base_rtt() const { return base_; }

 private:
  static constexpr size_t kBins = 32;
  static constexpr double kTimeoutFactor = 0.5;

  struct Delays {
    uint32_t late = 0;  // packets, by more than T
    double mean_ns = 0;
    double mean_late_ns = 0;
  };

  Duration target() const;
  void observe_base(Instant now, Duration rtt);
  Delays delays() const;
  void judge(Instant now);
  void recover(double mean_delay_ns);
  void decrease(double from, double factor);

  const PaceConstants& constants_;
  const double line_;
  const Duration jitter_;
  Duration base_;
  double rate_;
  double top_;
  double before_ = 0;             // rate_ at the last restart
  uint32_t bad_round_trips_ = 0;  // in a row
  bool clear_ = false;
  bool reroutes_ = false;  // the NIC has looked for better paths
  bool troubled_ = false;  // so was the last round trip
  OncePerRoundTrip round_trip_;
  // Packets heard of since the last judgement, by their delay in quarters of T.
  std::array<uint32_t, kBins> delays_{};
  uint32_t heard_ = 0;
  Duration least_ = Duration::max();
  Instant began_;       // the first of them
  double fastest_ = 0;  // that the flow has been
  Bytes acked_ = 0;
  Bytes lost_ = 0;
  // The least round trip of the present period; base_ is that of the one before, too.
  Duration next_base_ = Duration::max();
  Instant base_since_;
  bool measured_ = false;  // base_ is a measurement
};

}  // namespace pacecar

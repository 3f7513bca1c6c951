// CoreLimit: c_f, what the paths between two edge links carry for one flow, estimated from delays,
// marks and losses. The NIC reacts first, by re-routing, path by path; a flow slows down only when
// the median packet of a round trip was late or many were lost, that is when most paths are bad.
// The law: spec.md, section 7; c, C, d, T and x are the same here. Not counted are packets sent
// before the last cut, whose delay does not show its effect; a delay that all packets of a round
// trip share, which is the last hop's queue and loop 1's work; and, on hosts with jitter, few
// packets over a longer time. Rates in bit/s. Same purity and thread rule as Controller.
#pragma once

#include <algorithm>
#include <array>

#include "cc/controller.h"
#include "cc/pace/constants.h"
#include "cc/pace/draining_rate.h"
#include "cc/rate_law.h"

namespace pacecar {

class CoreLimit {
 public:
  CoreLimit(const FlowEnvironment& environment, const PaceConstants& constants);

  // `rate`: at which the flow sends. True if the limit has changed.
  bool on_ack(Instant now, const FlowSignal& ack, double rate);
  bool on_loss(Instant now, const Loss& loss);
  void on_timeout(double rate);  // Consecutive timeouts without an acknowledgement count once.
  void restart(double rate);     // Continues from `rate`: nothing else limits the flow any more.
  // Something else limits the flow again: returns to the limit before restart(), unless the paths
  // were found to carry less since, or more.
  void resume() { rate_.lasting = std::max(rate_.lasting, before_); }

  // The flow begins again after it was idle. `found_clear`: other flows of the NIC have just found
  // the network clear, which counts until this flow has measured a round trip.
  void begin(Instant now, bool found_clear) {
    rate_.poll(now);
    if (found_clear && !measured_) rate_.lasting = line_;
  }
  // The last round trip showed no trouble and no queues.
  bool clear() const { return clear_; }
  double rate() const { return rate_.rate(); }
  Duration base_rtt() const { return base_; }

 private:
  static constexpr size_t kBins = 32;
  static constexpr double kTimeoutFactor = 0.5;

  struct Delays {
    uint32_t late = 0;  // packets, by more than T
    double mean_ns = 0;
    double mean_late_ns = 0;
  };

  void set_base(Duration base);
  double least() const;
  Duration target() const;
  void observe_base(Instant now, Duration rtt);
  bool awaits_effect(Bytes sent, Bytes in_flight) const;
  Delays delays() const;
  void judge(Instant now, Bytes sent);
  void cut(Instant now, double through, Duration delay, Bytes sent);
  void forget();
  void recover(double mean_delay_ns, bool counts_delay);

  const PaceConstants& constants_;
  const double line_;
  const double wire_;  // bytes on the wire for a byte of payload
  const Bytes trims_believed_;
  const Duration least_unit_;
  const Duration jitter_;
  const bool base_known_;  // the environment knows the round trip
  Duration base_;
  Duration unit_;             // T of a flow at line rate
  const bool last_hop_seen_;  // by the receiver, which drains its queue
  DrainingRate rate_;
  double before_ = 0;             // rate_ at the last restart; 0: cut since
  uint32_t bad_round_trips_ = 0;  // in a row
  uint32_t calm_ = 0;             // round trips in a row without queues
  bool clear_ = false;
  bool silent_ = false;    // no acknowledgement since the last timeout
  bool reroutes_ = false;  // the NIC searches for better paths
  Bytes sent_at_cut_ = 0;  // by the flow since it began; 0: never cut
  double arrived_ = 0;     // rate of the last round trip
  OncePerRoundTrip round_trip_;
  // Packets acknowledged since the last judgement, by their delay in quarters of T at line rate.
  std::array<uint32_t, kBins> delays_{};
  uint32_t samples_ = 0;
  Duration least_ = Duration::max();
  Instant began_;       // when the first of these was acknowledged
  double fastest_ = 0;  // highest rate of the flow
  Bytes acked_ = 0;
  Bytes lost_ = 0;
  // Since a packet was trimmed.
  Instant trimmed_since_;
  Bytes trimmed_ = 0;
  Bytes passed_ = 0;
  // The least round trip of the present period; base_ covers the previous one, too.
  Duration next_base_ = Duration::max();
  Instant base_since_;
  bool measured_ = false;  // base_ is a measurement
};

}  // namespace pacecar

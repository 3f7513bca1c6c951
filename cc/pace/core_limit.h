// CoreLimit: c_f, what the paths between two edge links carry for one flow, as far as delays,
// marks and losses tell. Re-routing comes first and is the NIC's work, path by path; a flow slows
// down only when the median packet of a round trip had trouble, so when most paths are bad:
//
//   c = min(c, a) (1 - x / 4), and 3/4 x less of it for two round trips, in which the queue drains;
//       x = (d - T) / 8 (RTT + d)
//   c += (1 - m / T) C / 64 per round trip without trouble; more and more while paths are empty
//
// a is the most that arrived in either of the last two round trips: while there is a queue, all
// that the paths carry for this flow. It counts as c / 2 at least. d is the mean delay of the
// packets in trouble, m that of all. T = (C / c)^2 / 2 times RTT / 4, between one and three times
// RTT / 4: of flows behind one queue the slower ones bear more of it, so that they become alike.
// Where switches trim, the part of what was sent that passes a full queue is known before a round
// trip is over, and c becomes that part of itself. What had been sent before a cut says nothing
// about it, and is not counted.
//
// A delay that all packets of a round trip share is that of the last hop, which is loop 1's work:
// it does not count here, as long as it is below a round trip. While the paths show queues, c stays
// a little below the line rate: at 100% they would only grow. A flow begins below the line rate,
// too, unless others on the NIC have just found the network clear. Round trips in which the NIC
// looks for a better path say nothing; nor, where hosts are late by chance, do few packets over a
// longer time. c is not cut below C / 256: a flow must be able to find out that things are better.
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
  bool on_loss(const LossSample& sample);
  // Timeouts without an acknowledgement in between are one sign.
  void on_timeout(double rate);
  // Goes on from `rate`: nothing else limits the flow any more.
  void restart(double rate);
  // Something else does again: what was known of the paths before counts, unless less was found.
  void resume() { rate_ = std::max(rate_, before_); }

  // The flow begins anew. `found_clear`: others of the NIC have just found the network so, which
  // counts while the flow itself knows nothing of it.
  void begin(Instant now, bool found_clear) {
    if (now >= yields_until_) yielded_ = 1;
    if (found_clear && !measured_) rate_ = line_;
  }
  // The last round trip showed no trouble and no queues.
  bool clear() const { return clear_; }
  double rate() const { return rate_ * yielded_; }
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
  bool awaits_effect(Bytes sent, Bytes in_flight);
  Delays delays() const;
  void judge(Instant now, Bytes sent);
  void cut(Instant now, double through, Duration delay, Bytes sent);
  void forget();
  void recover(double mean_delay_ns, bool heeds);

  const PaceConstants& constants_;
  const double line_;
  const double wire_;  // bytes on the wire for a byte of payload
  const Bytes trims_believed_;
  const Duration least_unit_;
  const Duration jitter_;
  Duration base_;
  Duration unit_;  // T of a flow at line rate
  double rate_;
  double yielded_ = 1;  // of it, until then
  Instant yields_until_;
  double before_ = 0;             // rate_ at the last restart
  uint32_t bad_round_trips_ = 0;  // in a row
  uint32_t calm_ = 0;             // round trips in a row without queues
  bool clear_ = false;
  bool silent_ = false;    // nothing has come since the last timeout
  bool reroutes_ = false;  // this NIC looks for better paths
  Bytes sent_at_cut_ = 0;  // by the flow since it began; 0: what is heard of is newer
  double arrived_ = 0;     // rate of the last round trip
  OncePerRoundTrip round_trip_;
  // Packets heard of since the last judgement, by their delay in quarters of T at line rate.
  std::array<uint32_t, kBins> delays_{};
  uint32_t samples_ = 0;
  Duration least_ = Duration::max();
  Instant began_;       // the first of them
  double fastest_ = 0;  // that the flow has been
  Bytes acked_ = 0;
  Bytes lost_ = 0;
  // Since a packet was trimmed.
  Instant trimmed_since_;
  Bytes trimmed_ = 0;
  Bytes passed_ = 0;
  // The least round trip of the present period; base_ is that of the one before, too.
  Duration next_base_ = Duration::max();
  Instant base_since_;
  bool measured_ = false;  // base_ is a measurement
};

}  // namespace pacecar

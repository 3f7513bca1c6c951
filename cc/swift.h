// `swift`: holds the round trip at a target delay. After Kumar et al., "Swift: Delay is Simple and
// Effective for Congestion Control in the Datacenter", SIGCOMM 2020; papers.md maps its sections
// to the functions here and gives the reason for every deviation.
// The window is counted in packets of environment.mtu bytes, as a fraction where it is below one.
// Invariants: kSwift.min_cwnd <= window <= max_cwnd(); 0 < rate <= line rate.
#pragma once

#include "cc/constants.h"
#include "cc/controller.h"
#include "cc/grant_limit.h"

namespace pacecar {

// Every constant of the algorithm. "Ours": not in the paper.
struct SwiftConstants {
  // Name and default                 Unit, range, source.
  double additive_increase = 1.0;  // packets per round trip, (0, 16]; ai, section 3.2
  double beta = 0.8;               // share of the excess delay, (0, 1]; section 3.2
  double max_mdf = 0.5;            // largest decrease at once, (0, 1); section 3.2
  int retransmit_reset = 5;        // timeouts in a row, >= 1; section 3.6
  double min_cwnd = 0.01;          // packets, (0, 1); section 3.4
  double fs_min_cwnd = 0.1;        // packets, (0, fs_max_cwnd); section 3.5
  double fs_max_cwnd = 100.0;      // packets; section 3.5
  double fs_range = 1.0;           // allowances, >= 0; section 3.5 (there a time)
  Duration assumed_base_rtt = Duration::from_us(100);  // where unknown, > 0; ours
  Duration base_rtt_memory = Duration::from_s(1);      // >> round trip; ours
  Duration min_allowance = Duration::from_us(25);      // above the base round trip, > 0; ours
  Bytes allowance_bursts = 4;                          // bursts at line rate, >= 1; ours
  Bytes initial_bursts = 8;                            // bursts, >= 1; ours
  double max_window_targets = 2.0;                     // line rate x target delay, >= 1; ours
  double pacing_gain = 1.25;                           // of window / round trip, >= 1; ours
  double loss_tolerance = 0.05;                        // share of bytes lost, [0, 1); ours
  double loss_memory = 512.0;                          // packets, >> 1 / loss_tolerance; ours
};
inline constexpr SwiftConstants kSwift;

class SwiftController final : public GrantedController {
 public:
  using Constants = NoConstants;

  explicit SwiftController(const FlowEnvironment& environment, const Constants& = {});

  std::string_view name() const override { return "swift"; }
  void on_ack(Instant now, const FlowSignal& ack) override;
  void on_loss(Instant now, const Loss& loss) override;
  void on_timeout(Instant now) override;

  double cwnd_packets() const { return cwnd_; }
  Duration target_delay() const { return target_; }

 private:
  void observe_round_trip(Instant now, Duration rtt);
  double flow_scaling() const;
  void increase(const FlowSignal& ack);
  void decrease(Instant now, double factor);
  void count_delivery(Bytes acked, Bytes lost);
  double max_cwnd() const;
  void refresh_decision();

  FlowEnvironment environment_;
  Duration least_base_rtt_;  // given or assumed
  Duration base_rtt_;        // of the empty path, as estimated now
  Duration allowance_;       // of delay above it
  double cwnd_;              // packets
  Duration rtt_;             // newest sample; 0 before the first
  Duration smoothed_rtt_;
  Duration target_;
  Instant last_decrease_;
  Instant last_below_target_;      // newest sample below the target
  Duration min_rtt_above_target_;  // smallest sample since then
  double recently_acked_ = 0;      // packets, fading
  double recently_lost_ = 0;       // packets, fading
  int retransmits_ = 0;            // timeouts since the last acknowledgement
  bool slow_start_ = true;
};

}  // namespace pacecar

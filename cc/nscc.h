// `nscc`: the network signal congestion control of UEC 1.0, a window steered by two signals of each
// packet, ECN mark and delay. Rules that the specification leaves open, and all values, are those
// of UEC's reference simulator. papers.md maps rules to functions.
// Inside, bytes are bytes on the wire, as in the constants' definitions; the window of a decision
// is payload. Packets are not paced. A window outlasts messages: the next message begins with it.
// `mnscc` (arXiv 2509.07907) reacts to the median of the newest delays in place of the newest one:
// packets of a flow take many paths, and one congested path does not speak for them. Invariant: one
// packet <= window <= max(one packet, window_max()). Purity and thread rule as for Controller.
#pragma once

#include <array>
#include <optional>

#include "cc/constants.h"
#include "cc/controller.h"
#include "cc/grant_limit.h"

namespace pacecar {

struct NsccConstants {
  double target_trimming = 0.75;
  double target_dropping = 1.0;
  double window_round_trips = 1.5;
  double fair_increase = 5;
  double proportional_increase = 4;
  double steady_increase = 0.15;
  double fast_increase = 0.25;
  Duration fast_below = Duration::from_us(1);
  double decrease = 0.8;
  double decrease_most = 0.5;
  double delay_weight = 0.0125;
  double stale_delay = 0.25;
  double adapt_delay = 4;
  double adapt_share = 0.125;
  double update_packets = 8;
  double scale_bytes = 150'000;
  Duration scale_delay = Duration::from_us(12);

  static constexpr auto table() {
    using C = NsccConstants;
    return std::to_array<Constant<C>>({
        {"target_trimming", "base round trips", 0.01, 100, &C::target_trimming,
         "target queueing delay where switches trim"},
        {"target_dropping", "base round trips", 0.01, 100, &C::target_dropping,
         "target queueing delay where switches drop"},
        {"window_round_trips", "base round trips", 1, 100, &C::window_round_trips,
         "largest window, at line rate; also the first one"},
        {"fair_increase", "packets x a", 0, 1000, &C::fair_increase,
         "per window acknowledged without marks but late"},
        {"proportional_increase", "packets x a x b", 0, 1000, &C::proportional_increase,
         "per window acknowledged without marks or delay; less as the delay nears the target"},
        {"steady_increase", "packets x a", 0, 1000, &C::steady_increase, "per base round trip"},
        {"fast_increase", "bytes x a", 0, 100, &C::fast_increase,
         "per byte, once a whole window came back with next to no delay"},
        {"fast_below", "us", 0, 1e6, &C::fast_below, "delay that is next to none"},
        {"decrease", "1", 0, 1, &C::decrease, "gamma, of the share of the delay beyond the target"},
        {"decrease_most", "1", 0, 1, &C::decrease_most, "of the window at once"},
        {"delay_weight", "1", 1e-6, 1, &C::delay_weight, "of a sample in the average delay"},
        {"stale_delay", "base round trips", 0, 100, &C::stale_delay,
         "sample in place of a delay beyond the target without a mark"},
        {"adapt_delay", "targets", 1, 1000, &C::adapt_delay,
         "delay that asks for quick adapt, one large cut of the window"},
        {"adapt_share", "1", 0, 1, &C::adapt_share,
         "quick adapt only where less of the largest window arrived in a period"},
        {"update_packets", "packets", 0, 1e6, &C::update_packets,
         "acknowledged between applications of increases, unless a base round trip passes"},
        {"scale_bytes", "bytes", 1, 1e12, &C::scale_bytes,
         "a = bandwidth-delay product / this; 12 us at 100 Gb/s"},
        {"scale_delay", "us", 0.001, 1e6, &C::scale_delay, "b = target delay / this"},
    });
  }
};

class NsccController : public GrantedController {
 public:
  using Constants = NsccConstants;

  explicit NsccController(const FlowEnvironment& environment, const Constants& constants = {});

  std::string_view name() const override { return "nscc"; }
  void on_ack(Instant now, const FlowSignal& ack) override;
  void on_loss(Instant now, const Loss& loss) override;
  void on_timeout(Instant) override {}  // its packets are reported as losses
  FlowLimits decide(Instant now) override;

  // For tests; windows on the wire.
  double window() const { return window_; }
  double window_max() const;
  double target_delay_ns() const { return target_; }
  double average_delay_ns() const { return average_delay_; }

 protected:
  // The most delays in a median: MNSCC's H is max(min(W / 2, 4), 1), W the window in packets.
  static constexpr size_t kMedianOf = 4;

  NsccController(const FlowEnvironment& environment, const Constants& constants, size_t median_of);

 private:
  struct Signal {
    Instant now;
    bool marked = false;
    bool lost = false;
    double delay = 0;      // ns
    double in_flight = 0;  // after an acknowledgement, before a loss
  };

  double on_wire(Bytes payload) const;
  double observe_delay(const FlowSignal& ack);
  void observe_least(Duration rtt);
  void average_in(double delay);
  double median(double newest);
  bool quick_adapt(const Signal& signal);  // True when the signal has no further effect.
  void react(const Signal& signal, double acked);
  void increase(double delay, double acked);
  void decrease(Instant now);
  void apply_increases(Instant now);
  void clip();

  FlowEnvironment environment_;
  NsccConstants constants_;
  double packet_;        // bytes on the wire
  double line_;          // bytes per ns
  double round_trip_;    // ns, as given; constants are scaled by it
  double least_rtt_;     // ns, seen or given; delays are measured from it
  double target_;        // ns of delay
  double fair_;          // bytes per window acknowledged
  double proportional_;  // bytes per window acknowledged and ns below the target
  double steady_;        // bytes per round trip
  double fast_;          // bytes per byte acknowledged
  size_t median_of_;     // delays at most, 1 to kMedianOf

  double window_;
  std::array<double, kMedianOf> delays_{};  // ns, the newest first
  size_t delays_seen_ = 0;                  // of delays_
  double average_delay_ = 0;                // ns
  double increases_ = 0;                    // bytes x window, not applied yet
  double acked_ = 0;                        // since increases were applied
  double fast_acked_ = 0;                   // in a row with next to no delay
  bool growing_fast_ = false;
  std::optional<Instant> last_update_;  // steady increase
  std::optional<Instant> last_decrease_;
  std::optional<Instant> adapt_end_;  // of the period that quick adapt judges
  double achieved_ = 0;               // acknowledged in this period
  double settling_ = 0;               // bytes whose signals quick adapt has already answered
  bool adapt_wanted_ = false;         // a packet was trimmed since the last quick adapt
};

class MnsccController final : public NsccController {
 public:
  explicit MnsccController(const FlowEnvironment& environment, const Constants& constants = {})
      : NsccController(environment, constants, kMedianOf) {}

  std::string_view name() const override { return "mnscc"; }
};

}  // namespace pacecar

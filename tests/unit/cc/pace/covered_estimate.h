// CoveredEstimate: a LinkEstimate on a link of 1 Gb/s, all of whose arrivals are covered by grants:
// its rate is b, or this process's part of the link. Virtual time; one thread.
#pragma once

#include <algorithm>

#include "cc/pace/constants.h"
#include "cc/pace/link_estimate.h"

namespace pacecar::test {

inline constexpr double kNominal = 1e9;
inline constexpr Bytes kWirePacket = 4200;
inline constexpr Duration kTrip = Duration::from_us(100);
// W: 16 packets at the nominal rate.
inline constexpr Duration kWindow = Duration::from_us(540);
// Longer than every delay that is tolerated, but too short for a greedy neighbour.
inline constexpr Duration kQueue = Duration::from_us(500);

inline FlowEnvironment slow_link(double first = 0) {
  return {.line_rate = Rate::from_bps(static_cast<uint64_t>(kNominal)),
          .mtu = 4096,
          .overhead = kWirePacket - 4096,
          .jitter = Duration::from_us(10),
          .first_rate = Rate::from_bps(static_cast<uint64_t>(first))};
}

class CoveredEstimate {
 public:
  explicit CoveredEstimate(const FlowEnvironment& environment = slow_link(),
                           Duration round_trip = kTrip)
      : link_(environment, round_trip, kConstants),
        packet_(environment.mtu + environment.overhead),
        part_(static_cast<double>(environment.line_rate.bps())) {}

  LinkEstimate& link() { return link_; }
  void set_part(double part) { link_.set_part(part_ = part); }

  // A packet arrives. True if the rate may have changed.
  bool on_packet(Instant now, Duration late, uint32_t flow = 0) {
    return link_.on_arrival(now, packet_, /*covered=*/true, late, flow);
  }
  // Packets at `bps`, all with this delay.
  void arrive(Instant& now, double bps, Duration late, Duration span, uint32_t flow = 0) {
    const Duration gap = time_at(bps);
    for (const Instant end = now + span; now < end; now = now + gap) on_packet(now, late, flow);
  }
  // Packets at this share of the rate, however it changes.
  void use(Instant& now, double share, Duration late, Duration span, uint32_t flow = 0) {
    for (const Instant end = now + span; now < end;) {
      now = now + time_at(rate() * share);
      on_packet(now, late, flow);
    }
  }

  // Bit/s.
  double rate() const { return link_.line(); }
  bool learnt() const { return rate() < part_; }
  Duration time_at(double bps) const {
    return Duration::from_ns(static_cast<int64_t>(static_cast<double>(packet_) * 8e9 / bps));
  }

 private:
  static constexpr PaceConstants kConstants{};

  LinkEstimate link_;
  Bytes packet_;
  double part_;
};

}  // namespace pacecar::test

// InbandSignal: how loaded a path is, from the telemetry of its switches: the load of the most
// loaded hop, by the algorithm's measure, averaged over one base round trip. HPCC (algorithm 1,
// MeasureInflight) and PowerTCP (algorithm 1, NormPower) differ only in the measure.
// InbandController: what their controllers share.
// Differences between two acknowledgements are meaningful only for the same ports: a flow has one
// path. A hop whose clock stands still or goes back, or that seems to send faster than it can, is
// another port or an acknowledgement out of order, and is ignored.
// Telemetry comes from a peer: any content is accepted. Purity as for Controller.
#pragma once

#include <algorithm>
#include <array>
#include <optional>
#include <span>

#include "cc/rate_law.h"
#include "transport/base/telemetry.h"
#include "transport/base/units.h"

namespace pacecar {

// A port between two acknowledgements.
struct HopChange {
  double seconds = 0;
  double line_bps = 0;
  double sent_bps = 0;
  double queue_bits = 0;
  double queue_bits_before = 0;
};

class InbandSignal {
 public:
  explicit InbandSignal(Duration base_rtt) : base_rtt_(base_rtt) {}

  // Takes an acknowledgement's telemetry; `measure` returns the load of a HopChange, 1 for a link
  // that is just full. False: no hop could be compared with the acknowledgement before.
  template <typename Measure>
  bool update(std::span<const TelemetryHop> hops, Measure&& measure) {
    hops = hops.first(std::min(hops.size(), before_.size()));
    if (hops.empty()) return false;
    double load = 0;
    double seconds = 0;
    for (size_t i = 0; i < hops.size() && hops.size() == count_; ++i) {
      const auto change = difference(hops[i], before_[i]);
      if (!change) continue;
      if (const double hop_load = measure(*change); seconds == 0 || hop_load > load) {
        load = hop_load;
        seconds = change->seconds;
      }
    }
    std::ranges::copy(hops, before_.begin());
    count_ = hops.size();
    const double weight = std::min(seconds / base_rtt_.seconds(), 1.0);
    load_ += weight * (load - load_);
    return weight > 0;
  }

  // Never 0: rates are divided by it.
  double load() const { return std::max(load_, 1e-6); }

  // No telemetry yet.
  bool empty() const { return count_ == 0; }
  // Makes the first update, with these `hops`, assume that one base round trip ago every link was
  // full and had no queue.
  void assume_full_links_before(std::span<const TelemetryHop> hops) {
    count_ = std::min(hops.size(), before_.size());
    for (size_t i = 0; i < count_; ++i) {
      const Rate line = Rate::from_bps(uint64_t{hops[i].rate_mbps} * 1'000'000);
      before_[i] = hops[i];
      before_[i].time_ns -= static_cast<uint32_t>(base_rtt_.ns());
      before_[i].sent_bytes -= static_cast<uint32_t>(line.bytes_in(base_rtt_));
      before_[i].queue_bytes = 0;
    }
  }

 private:
  static std::optional<HopChange> difference(const TelemetryHop& now, const TelemetryHop& before) {
    const auto ns = static_cast<int32_t>(now.time_ns - before.time_ns);
    if (ns <= 0 || now.rate_mbps == 0) return std::nullopt;
    const uint32_t sent = now.sent_bytes - before.sent_bytes;
    const double seconds = static_cast<double>(ns) * 1e-9;
    const HopChange change{.seconds = seconds,
                           .line_bps = static_cast<double>(now.rate_mbps) * 1e6,
                           .sent_bps = static_cast<double>(sent) * 8 / seconds,
                           .queue_bits = static_cast<double>(now.queue_bytes) * 8,
                           .queue_bits_before = static_cast<double>(before.queue_bytes) * 8};
    // Twice the line: between a small packet and a large one the counter runs ahead of the clock.
    if (change.sent_bps > 2 * change.line_bps) return std::nullopt;
    return change;
  }

  Duration base_rtt_;
  double load_ = 1;  // a flow starts at line rate
  size_t count_ = 0;
  std::array<TelemetryHop, kMaxTelemetryHops> before_{};
};

// A law that moves a rate by the load of the path. It needs telemetry in every acknowledgement, an
// acknowledgement for every packet, and one path per flow; made for lossless networks, it does not
// react to losses. Without telemetry it sends at line rate with a window of one bandwidth-delay
// product. Invariants: the rate is between min_rate and the line rate, the window always rate * T.
template <typename LawConstants>
class InbandController : public RateController<LawConstants> {
 public:
  FlowLimits decide(Instant now) override {
    const Bytes window = window_for(this->rate_bps_, base_rtt_, this->environment_);
    return this->capped(now, rate_limits(this->rate_bps_, window, this->environment_));
  }

 protected:
  InbandController(const FlowEnvironment& environment, const LawConstants& constants)
      : RateController<LawConstants>(environment, constants),
        base_rtt_(base_round_trip(environment)),
        signal_(base_rtt_),
        reference_bps_(this->line_bps_) {}

  const Duration base_rtt_;  // T of the papers
  InbandSignal signal_;
  OncePerRoundTrip once_per_round_trip_;
  double reference_bps_;  // the rate one round trip ago
};

}  // namespace pacecar

#include "cc/swift.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace pacecar {
namespace {

constexpr int64_t kSmoothing = 8;  // the smoothed round trip moves by 1/8 of each sample's distance

}  // namespace

// The allowance is the delay above the empty path that a well-used one may have. A fixed time for
// interrupts and polls; bursts, because a software NIC moves tens of kilobytes at once and needs
// several bursts in flight to keep sender, kernel and receiver busy together; and one round trip,
// because randomly late end hosts cause decreases up to one half, and a queue of one
// bandwidth-delay product keeps the path busy after a halving.
SwiftController::SwiftController(const FlowEnvironment& environment, const Constants&)
    : GrantedController(environment),
      environment_(environment),
      last_decrease_(Instant::from_ns(std::numeric_limits<int64_t>::min() / 2)) {
  environment_.burst_bytes = std::max(environment.burst_bytes, environment.mtu);
  environment_.base_rtt = std::clamp(environment.base_rtt, Duration(), kMaxRtt);
  least_base_rtt_ =
      environment_.base_rtt > Duration() ? environment_.base_rtt : kSwift.assumed_base_rtt;
  base_rtt_ = least_base_rtt_;
  const Duration bursts =
      environment_.line_rate.time_for(environment_.burst_bytes * kSwift.allowance_bursts);
  allowance_ = std::max({kSwift.min_allowance, std::min(bursts, kMaxRtt), least_base_rtt_});
  target_ = base_rtt_ + allowance_;
  const Bytes window = std::max(kSwift.initial_bursts * environment_.burst_bytes,
                                environment_.line_rate.bytes_in(environment_.base_rtt));
  cwnd_ = static_cast<double>(window) / static_cast<double>(environment_.mtu);
  refresh_decision();
}

void SwiftController::on_ack(Instant now, const FlowSignal& ack) {
  if (ack.acked > 0) retransmits_ = 0;
  count_delivery(ack.acked, 0);
  if (ack.rtt <= Duration()) return;
  observe_round_trip(now, std::min(ack.rtt, kMaxRtt));
  if (rtt_ < target_) {
    increase(ack);
  } else {
    const double excess = (rtt_ - target_).real_ns() / rtt_.real_ns();
    decrease(now, 1.0 - kSwift.beta * excess);
  }
  refresh_decision();
}

// A loss is a sign of congestion when it comes with a queue, or when losses are many: a few losses
// on a path without a queue come from the cable, and a lower rate would not help.
void SwiftController::on_loss(Instant now, const Loss& loss) {
  retransmits_ = 0;
  count_delivery(0, loss.lost);
  const double share = recently_lost_ / std::max(recently_acked_ + recently_lost_, 1.0);
  if (rtt_ < target_ && share <= kSwift.loss_tolerance) return;
  decrease(now, 1.0 - kSwift.max_mdf);
  refresh_decision();
}

void SwiftController::count_delivery(Bytes acked, Bytes lost) {
  recently_acked_ += static_cast<double>(acked) / static_cast<double>(environment_.mtu);
  recently_lost_ += static_cast<double>(lost) / static_cast<double>(environment_.mtu);
  if (recently_acked_ + recently_lost_ < kSwift.loss_memory) return;
  recently_acked_ /= 2;
  recently_lost_ /= 2;
}

void SwiftController::on_timeout(Instant now) {
  retransmits_ = std::min(retransmits_ + 1, kSwift.retransmit_reset);
  decrease(now, 1.0 - kSwift.max_mdf);
  if (retransmits_ == kSwift.retransmit_reset) cwnd_ = kSwift.min_cwnd;
  refresh_decision();
}

// Sets the target from the newest round trip. The base is a given, as in the paper: flows share a
// queue fairly only under equal targets, and a flow that joins a busy path would measure the
// others' queue as its base. Only if no sample has been below the target for base_rtt_memory is the
// path longer than assumed; its base is then the smallest sample of that time.
void SwiftController::observe_round_trip(Instant now, Duration rtt) {
  const bool first = rtt_ == Duration();
  rtt_ = rtt;
  smoothed_rtt_ = first ? rtt : smoothed_rtt_ + (rtt - smoothed_rtt_) / kSmoothing;
  base_rtt_ = std::max(std::min(base_rtt_, rtt), least_base_rtt_);
  if (first || rtt < target_) {
    last_below_target_ = now;
    min_rtt_above_target_ = kMaxRtt;
  } else {
    min_rtt_above_target_ = std::min(min_rtt_above_target_, rtt);
    if (now - last_below_target_ >= kSwift.base_rtt_memory) base_rtt_ = min_rtt_above_target_;
  }
  target_ = base_rtt_ + allowance_.scaled(1.0 + kSwift.fs_range * flow_scaling());
}

// 0 for large windows, 1 for very small ones: n flows that collide by chance queue about sqrt(n)
// packets, and each window is 1/n of the path's bandwidth-delay product.
double SwiftController::flow_scaling() const {
  const double at_max = 1.0 / std::sqrt(kSwift.fs_max_cwnd);
  const double at_min = 1.0 / std::sqrt(kSwift.fs_min_cwnd);
  return std::clamp((1.0 / std::sqrt(cwnd_) - at_max) / (at_min - at_max), 0.0, 1.0);
}

// A window that was less than half used does not measure the path: it is not increased.
void SwiftController::increase(const FlowSignal& ack) {
  const double mtu = static_cast<double>(environment_.mtu);
  const double acked = static_cast<double>(ack.acked) / mtu;
  const double used = acked + static_cast<double>(ack.in_flight) / mtu;
  if (2.0 * used < cwnd_) return;
  const double counted = std::min(acked, std::max(cwnd_, 1.0));  // at most one window's worth
  if (slow_start_) {
    cwnd_ += counted;
  } else {
    cwnd_ += kSwift.additive_increase * counted / std::max(cwnd_, 1.0);
  }
}

// At most once per round trip, and per target delay, because hosts add delay that the round trip
// does not show: only a packet sent after the last decrease shows its effect.
void SwiftController::decrease(Instant now, double factor) {
  slow_start_ = false;
  if (now - last_decrease_ < std::max(rtt_, target_)) return;
  last_decrease_ = now;
  cwnd_ *= std::max(factor, 1.0 - kSwift.max_mdf);
}

double SwiftController::max_cwnd() const {
  const double line_bytes_per_ns = environment_.line_rate.real_bps() / 8e9;
  const double targets = kSwift.max_window_targets * target_.real_ns();
  const double bursts = static_cast<double>(kSwift.initial_bursts * environment_.burst_bytes);
  return std::max(line_bytes_per_ns * targets, bursts) / static_cast<double>(environment_.mtu);
}

// A window of one packet or more is enforced as a window. The pace only spreads it: with a gain, so
// that it never limits a growing window, and over at most the target, so that one late end host
// does not slow the flow down afterwards. A smaller window is enforced by the pace alone, from the
// newest round trip: the flow must slow down while its own packets queue.
void SwiftController::refresh_decision() {
  cwnd_ = std::clamp(cwnd_, kSwift.min_cwnd, max_cwnd());
  const double mtu = static_cast<double>(environment_.mtu);
  own_.window = static_cast<Bytes>(std::max(cwnd_, 1.0) * mtu);
  own_.rate = environment_.line_rate;
  own_.limited_by = limit_at_line(environment_);
  if (rtt_ == Duration()) return;
  const bool whole_packets = cwnd_ >= 1.0;
  const double gain = whole_packets ? kSwift.pacing_gain : 1.0;
  const Duration spread = whole_packets ? std::min(smoothed_rtt_, target_) : rtt_;
  const double bps = gain * cwnd_ * mtu * 8e9 / spread.real_ns();
  if (bps < environment_.line_rate.real_bps()) {
    const Rate paced = std::max(Rate::from_bps(static_cast<uint64_t>(bps)), kMinRate);
    own_.rate = std::min(paced, environment_.line_rate);
    own_.limited_by = LimitedBy::kNetwork;
  }
}

}  // namespace pacecar

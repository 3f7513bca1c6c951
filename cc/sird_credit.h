// What both halves of `sird` share: constants, the credit bucket that adapts as DCTCP's window
// does, and the fields of a demand word next to the wish. Credit is counted as in credit.h, but
// here it is an offset: a flow may send its first `credit` payload bytes. Granted bytes that have
// not arrived are outstanding; a retransmission needs no new credit.
// Marked bytes shrink a bucket; others let it grow, by a packet for as many bytes as it holds.
// Invariant: one packet <= bytes() <= the bandwidth-delay product, or one packet where that is
// larger. Purity and thread rule as for Controller.
#pragma once

#include <algorithm>

#include "cc/credit.h"

namespace pacecar {

struct SirdConstants {
  // Name and default             Unit, range, source: NSDI 2025; "sim": its authors' simulator.
  double outstanding = 1.5;  // B: outstanding at a receiver, bandwidth-delay products (BDPs), > 0
  double unscheduled = 1;    // UnschT: BDPs; the longest message that starts without credit, [0, 1]
  double accumulated = 0.5;  // SThr: BDPs; unused credit of a sender beyond which it sets csn
  double gain = 0.08;        // g, of a bucket's worth in the average share of marks, (0, 1]; sim
  double cut_every = 1.5;    // buckets' worth of bytes, > 0; sim
  Bytes pull_packets = 2;    // granted at once, >= 1; one there
};
inline constexpr SirdConstants kSird;

// The bandwidth-delay product in payload bytes; at least one packet, and less than wraps a count.
inline double sird_bdp(const FlowEnvironment& environment) {
  const double bps = environment.line_rate.real_bps();
  const Bytes most = std::max(kCredit.limit_max, environment.mtu);
  return static_cast<double>(
      std::min(window_for(bps, base_round_trip(environment), environment), most));
}

// Demand::epoch of a flow under sird: the part of a bandwidth-delay product that may be outstanding
// for it, in steps, and whether all of its wish is unscheduled: sent without credit.
inline constexpr uint16_t kSirdSteps = 64;
inline constexpr uint16_t kSirdUnscheduled = 0x8000;

class SirdBucket {
 public:
  explicit SirdBucket(const FlowEnvironment& environment)
      : packet_(static_cast<double>(environment.mtu)),
        most_(sird_bdp(environment)),
        bytes_(most_) {}

  double bytes() const { return bytes_; }

  // `marked` of the flow's next `all` payload bytes were marked.
  void on_bytes(Bytes all, Bytes marked) {
    const auto clean = static_cast<double>(all - std::min(marked, all));
    seen_ += static_cast<double>(all);
    since_cut_ += static_cast<double>(all);
    marked_ += static_cast<double>(all) - clean;
    if (seen_ >= bytes_) {
      share_ += kSird.gain * (marked_ / seen_ - share_);
      seen_ = marked_ = 0;
    }
    bytes_ += std::min(packet_ * clean / bytes_, most_);
    if (marked > 0 && since_cut_ >= cut_after_) {
      bytes_ *= 1 - share_ / 2;
      since_cut_ = 0;
      cut_after_ = kSird.cut_every * bytes_;
    }
    bytes_ = std::clamp(bytes_, packet_, most_);
  }

 private:
  double packet_;
  double most_;
  double bytes_;
  double share_ = 0;      // of marked bytes, average
  double seen_ = 0;       // bytes since share_ was updated
  double marked_ = 0;     // marked bytes since then
  double since_cut_ = 0;  // bytes
  double cut_after_ = 0;
};

}  // namespace pacecar

// PolicerWatch: whether the link has a policer, which drops what exceeds a rate without a queue,
// and that rate.
//
// A policer drops in every window in which more is sent than it passes; random losses hit only some
// windows. If losses have not fallen to 3/4 after 16 windows of cuts, the cable loses the packets:
// the cuts are undone, and only twice as many losses are suspicious again. What the cable loses is
// forgotten with a time constant of 1,024 windows, as a policer may have been added.
//
// Rates are bit/s. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

class PolicerWatch {
 public:
  explicit PolicerWatch(Duration window) : window_(window) {}

  void begin(Instant now) {
    *this = PolicerWatch(window_);
    since_ = now;
  }
  void on_bytes(Bytes wire) { arrived_ += wire; }
  void on_loss(Bytes wire) { lost_ += wire; }

  // Nothing was lost in this window, and the last one was not lossy.
  bool quiet() const { return lost_ == 0 && lossy_windows_ == 0; }

  // `arriving`: the arrival rate. True at the end of the third or a later lossy window in a row, if
  // about the usual amount still arrives.
  bool look(Instant now, double arriving) {
    if (now - since_ < window_) return false;
    const double few = std::max(known_ ? kFew : kMany, kSuspicious * usual_);
    const auto arrived = static_cast<double>(arrived_);
    const auto lost = static_cast<double>(lost_);
    const bool lossy = lost > few * (arrived + lost);
    lossy_windows_ = lossy ? lossy_windows_ + 1 : 0;
    run_arrived_ = lossy ? run_arrived_ + arrived : 0;
    run_lost_ = lossy ? run_lost_ + lost : 0;
    lasted_ += (now - since_).seconds() - lasted_ / kTimeout;
    arrived_lately_ += arrived - arrived_lately_ / kTimeout;
    lost_lately_ += lost - lost_lately_ / kTimeout;
    usual_ -= usual_ / kMemory;
    since_ = now;
    arrived_ = lost_ = 0;
    return lossy_windows_ >= kLossyWindows &&
           arriving * lasted_ > kGoesOn * arrived_lately_ * kBitsPerByte;
  }

  // The new value of `budget` after such a window; `allowed`: the part of it that may be used.
  double judge(Instant now, double arriving, double allowed, double budget) {
    const double part = lost_lately_ / (arrived_lately_ + lost_lately_);
    if (!suspected_ || now - last_cut_ >= window_ * kTimeout * 2) {
      suspected_ = true;
      before_ = budget;
      part_before_ = part;
      first_cut_ = now;
    }
    last_cut_ = now;
    known_ = true;
    if (now - first_cut_ >= window_ * kTimeout * 2 && part > kHelped * part_before_) {
      usual_ = part;
      suspected_ = known_ = false;
      return before_;
    }
    const double through = allowed * run_arrived_ / (run_arrived_ + run_lost_);
    return std::min(budget, std::max(arriving, through)) * kBelow;
  }

 private:
  // A window is lossy above this share of what was sent; below it the cable may be the cause.
  static constexpr double kMany = 0.05;
  static constexpr double kFew = 0.01;          // the same once a policer is known
  static constexpr double kSuspicious = 2;      // the same, times the cable's usual losses
  static constexpr uint32_t kLossyWindows = 3;  // in a row
  static constexpr double kGoesOn = 0.75;       // of the usual arrivals; below, the sender waits
  static constexpr double kBitsPerByte = 8;
  static constexpr double kBelow = 0.98;
  static constexpr double kHelped = 0.75;
  static constexpr double kMemory = 1024;  // windows for which a cable's losses are remembered
  // Windows after which losses are found by timeouts: the averages last so long, and cuts are on
  // trial for twice as long.
  static constexpr int64_t kTimeout = 8;

  Duration window_;
  // The present window, in bytes.
  Instant since_;
  Bytes arrived_ = 0;
  Bytes lost_ = 0;
  // The lossy windows in a row.
  uint32_t lossy_windows_ = 0;
  double run_arrived_ = 0;
  double run_lost_ = 0;
  // Recent windows: kTimeout times the average.
  double lasted_ = 0;  // s
  double arrived_lately_ = 0;
  double lost_lately_ = 0;

  bool suspected_ = false;
  bool known_ = false;
  Instant first_cut_;
  Instant last_cut_;
  double before_ = 0;       // budget, at the first cut
  double part_before_ = 0;  // share that was lost then
  double usual_ = 0;        // share that the cable loses
};

}  // namespace pacecar

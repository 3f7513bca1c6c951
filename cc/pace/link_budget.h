// LinkBudget: what one process may use of a link whose real rate, and whose other users, nobody has
// told. The told rate is an upper bound. The law looks at what arrives (or is acknowledged) and at
// the least queueing delay of a window's packets, d, several times in a window W:
//
//   d > T     b = min(b, a) max(1 - (d - T) / 2 (W + d), 1/2)   once per W + d
//   d <= T    b += w P / 4 W                                    once per W + d
//   d < T/2   faster: b *= 3/2 before the first queue, 5/4 far below what the link gave at the last
//             cut, and more and more than w P / 4 W where that is exceeded without a queue
//
// a is what arrives: while a queue stands it is what the link gives us, whatever was granted. W is
// a round trip, or what measuring takes; P a packet, w the process's weight. T = usual + w P / b:
// the delay at which each user has a packet of its own in the queue, so that n of them agree on
// equal parts, and the one with less than its part is the last to yield.
//
// A neighbor that keeps a queue whatever we do is recognized by yielding in vain for 8 round trips:
// then T is the delay that it keeps, for a second. T follows the delay down, never up: users of
// this law that took each other for such neighbors free themselves.
//
// The law is idle while own arrivals fill the told rate, and until a queue has stood for a window
// although they do not.
//
// Rates are bit/s on the wire. Pure; one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "transport/base/units.h"

namespace pacecar {

struct LinkBudgetConfig {
  Rate line;             // told; never 0
  Rate first;            // until anything is known; 0: the line rate
  Bytes packet = 4096;   // a full one on the wire
  Duration round_trip;   // without queues
  Duration jitter;       // FlowEnvironment::jitter
  Duration base_memory;  // how long the least delay counts as that of an empty path; not 0
};

class LinkBudget {
 public:
  explicit LinkBudget(const LinkBudgetConfig& config);

  // `wire` bytes have come; `excess` is how much longer the fastest of them took than the fastest
  // lately, Duration::max() if that is not known. True when the rate is another.
  bool on_bytes(Instant now, Bytes wire, Duration excess);
  // Some of what was sent is lost.
  void on_loss(Bytes wire) { lost_ += wire; }
  // Of the flows that use the budget, on average.
  void set_weight(uint32_t weight) { weight_ = weight; }
  // T is so many times as long: of two who see the same queue, one acts first.
  void set_patience(int64_t patience) { patience_ = patience; }
  // The told rate, or this process's part of it, has changed.
  void set_line(double line);

  double rate() const;
  // No queue has been met yet, and the told rate has not been reached.
  bool starting() const { return starting_; }
  // The link gives less than was told.
  bool learnt() const { return rate_ < line_; }

 private:
  static constexpr size_t kServed = 2;  // round trips of which the most that arrived is kept

  struct Greedy {
    bool suspected = false;
    Instant since;
    Duration delay;     // when the suspicion arose
    double rate = 0;    // likewise
    double sum_ns = 0;  // of the delays seen since
    uint32_t looks = 0;
    Duration kept;  // that the neighbor keeps; 0: there is none
    Instant until;  // `kept` counts
  };

  // The least delay of a part of the window.
  struct Seen {
    Instant at;
    Duration least = Duration::max();
  };
  static constexpr size_t kLooks = 4;

  void begin(Instant now);
  Duration least_lately(Instant now);
  void look(Instant now);
  Duration target() const;
  double arriving() const;
  double served() const;
  void remember(double arriving);
  bool doubted(Instant now, bool reason);
  bool policed_lately(Instant now);
  void police(Instant now);
  void cut(Instant now, Duration delay, double arriving);
  void grow(Instant now, Duration delay, double arriving);
  void watch_neighbors(Instant now, Duration delay);
  void yield_to_base(Instant now, Duration delay);

  const LinkBudgetConfig config_;
  const Duration window_;  // W
  const Duration look_;
  double line_;
  double rate_;
  uint32_t weight_ = 1;
  int64_t patience_ = 1;
  bool starting_;      // no queue has been met yet
  double bound_ = 0;   // what the link gave at the last cut
  uint32_t calm_ = 0;  // growths in a row that met no queue
  Instant next_cut_;
  Instant next_growth_;
  Instant doubted_since_ = Instant::never();  // that the link is as told
  Duration cut_delay_;  // at the last cut; 0 since the delay has been below T
  Greedy greedy_;
  Instant empty_at_;    // the path was last seen (nearly) empty
  Instant dip_until_;   // sends less, to see how long an empty path takes
  int64_t period_ = 0;  // half of base_memory, in which it was last asked whether to
  double shown_ = 0;    // rate() when it was last said to be another
  // The present look.
  Instant began_;
  Instant first_;  // arrival, of `first_bytes_`
  Instant last_;
  Bytes bytes_ = 0;
  Bytes first_bytes_ = 0;
  Duration least_ = Duration::max();
  std::array<Seen, kLooks> seen_{};  // of the last looks
  size_t seeing_ = 0;
  // The present window of losses.
  Instant loss_since_;
  Bytes sent_ = 0;
  Bytes lost_ = 0;
  uint32_t lossy_windows_ = 0;  // in a row
  // The most that arrived in each of the last round trips, bit/s.
  std::array<double, kServed> served_{};
  size_t serving_ = 0;
  Instant served_since_;
};

}  // namespace pacecar

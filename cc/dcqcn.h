// `dcqcn`: cuts the rate on ECN marks by a moving average of their frequency, and recovers by a
// timer. After Zhu et al., "Congestion Control for Large-Scale RDMA Deployments", SIGCOMM 2015,
// section 3.1; papers.md names the deviations. Three clocks start with the first marked
// acknowledgement (alpha, cut) and with each cut (increase). They are evaluated in order when the
// controller is next called, so the rate at every call is as if they had fired.
// Made for lossless networks: it has no window and does not react to losses.
// Invariants: the rate is between min_rate and the line rate; 0 <= alpha <= 1.
#pragma once

#include <array>

#include "cc/constants.h"
#include "cc/controller.h"
#include "cc/rate_law.h"

namespace pacecar {

struct DcqcnConstants {
  double gain = 1.0 / 256;
  Duration alpha_period = Duration::from_us(1);
  Duration cut_period = Duration::from_us(4);
  Duration increase_period = Duration::from_us(300);
  int fast_recovery = 1;
  Rate additive_increase = Rate::from_bps(5'000'000);
  Rate hyper_increase = Rate::from_bps(50'000'000);
  Rate min_rate = Rate::from_bps(100'000'000);

  static constexpr auto table() {
    using C = DcqcnConstants;
    return std::to_array<Constant<C>>({
        {"gain", "1", 1e-6, 1, &C::gain, "g, the weight of a mark in alpha; section 3.1"},
        {"alpha_period", "us", 0.1, 1e6, &C::alpha_period,
         "between updates of alpha; evaluation of HPCC (55 in the paper)"},
        {"cut_period", "us", 0.1, 1e6, &C::cut_period,
         "between cuts at most one; evaluation of HPCC (50 in the paper)"},
        {"increase_period", "us", 1, 1e6, &C::increase_period,
         "between increases; evaluation of HPCC (55 in the paper)"},
        {"fast_recovery", "increases", 0, 1000, &C::fast_recovery,
         "F, half-way back to the target; evaluation of HPCC (5 in the paper)"},
        {"additive_increase", "Mb/s per 25 Gb/s of line", 1, 10'000, &C::additive_increase,
         "R_AI; evaluation of HPCC"},
        {"hyper_increase", "Mb/s per 25 Gb/s of line", 1, 100'000, &C::hyper_increase,
         "R_HAI, after the first additive one; evaluation of HPCC"},
        {"min_rate", "Mb/s", 1, 100'000, &C::min_rate, "evaluation of HPCC"},
    });
  }
};

class DcqcnController final : public RateController<DcqcnConstants> {
 public:
  explicit DcqcnController(const FlowEnvironment& environment, const Constants& constants = {});

  std::string_view name() const override { return "dcqcn"; }
  void on_ack(Instant now, const FlowSignal& ack) override;
  FlowLimits decide(Instant now) override;

  double alpha() const { return alpha_; }  // as of the newest call

 private:
  void catch_up(Instant now);
  void update_alpha(Instant now);
  void cut(Instant at);
  void increase();

  double additive_bps_;
  double hyper_bps_;

  double target_bps_;                         // R_T
  double alpha_ = 1;                          // share of time with marks
  int stage_ = 0;                             // increases since the last cut
  bool started_ = false;                      // the first mark has come
  bool marked_ = false;                       // since alpha's newest tick
  Instant started_at_;                        // origin of the clocks of alpha and cuts
  int64_t alpha_ticks_ = 0;                   // done
  Instant next_cut_ = Instant::never();       // the tick at which a pending mark cuts
  Instant next_increase_ = Instant::never();  // never: before the first cut
};

}  // namespace pacecar

// PaceController: the sender's half of `pace` for one flow; PaceSenders: for all flows of a NIC.
//
//   r_f = min(w_f * lambda, g_f, c_f)
//
// lambda is the water level of our own link (link_share.h), g_f the receiver's grant, c_f what the
// core carries (core_limit.h). Demands advertise what the flow could use, u_f, and how much it
// wants to send in all. Packets of a flow that is limited by its grant leave in the receiver's
// grid. When a grant is not renewed the rate falls, and it is left out if only the receiver's
// software is late (method.md, "When things go wrong"). A grant comes from a peer: any content is
// bounded here.
//
// Purity and thread rule as for Controller and ControllerSet.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "cc/controller_set.h"
#include "cc/pace/arrival_order.h"
#include "cc/pace/constants.h"
#include "cc/pace/core_limit.h"
#include "cc/pace/link_share.h"

namespace pacecar {

class PaceController final : public Controller {
 public:
  // Shares `link` with other flows, as number `flow`; `link` outlives it.
  PaceController(const FlowEnvironment& environment, const PaceConstants& constants,
                 LinkShare& link, uint32_t flow);
  ~PaceController() override;

  std::string_view name() const override { return "pace"; }
  void on_ack(Instant now, const FlowSignal& ack) override;
  void on_loss(Instant now, const Loss& loss) override;
  void on_timeout(Instant now) override;
  void on_grant(Instant now, const Grant& grant) override;
  FlowLimits decide(Instant now) override;
  std::optional<Demand> demand(Instant now, const FlowStats& stats) override;
  Explanation explain(Instant now) override;

  void set_weight(Instant now, uint32_t weight);

 private:
  struct Choice {
    double rate = 0;
    LimitedBy limited_by = LimitedBy::kLine;
  };

  void report_to_link(Instant now, const FlowSignal& ack);
  bool outranks(const Grant& grant) const;
  bool has_backlog() const { return stats_.backlog > 0; }
  // Backlog that is not in flight yet, by the newest signal.
  Bytes unsent() const { return stats_.backlog - std::min(stats_.in_flight, stats_.backlog); }
  // Whether the flow needs a part of our link: more than leaves at once is not in flight. A long
  // message keeps its part to its end: what it left free for a round trip would become a queue when
  // others begin.
  bool has_unsent() const { return brief_ ? unsent() > at_once_ : has_backlog(); }
  // Whether its messages leave after those that began before; flows with a weight share.
  bool queues() const { return brief_ && weight_ == 1; }
  bool beginning(Instant now) const;
  bool negligible(Bytes message) const;
  double overcommitted() const;
  double queueing() const;
  bool limited_by_own_link(double granted) const;
  double rate_in_turn() const;
  double granted(Instant now) const;
  Choice choose(Instant now) const;
  void refresh(Instant now);
  double least_change(Instant now, double usable) const;
  bool worth_advertising(Instant now, double usable) const;
  Duration halving() const;
  void align(Instant now, Rate rate, Bytes burst);
  void begin(Instant now);

  const FlowEnvironment environment_;
  const PaceConstants constants_;
  LinkShare& link_;
  const uint32_t flow_;
  const Bytes ahead_parts_;  // of a round trip, in 64ths: in flight in addition to it
  const Duration window_jitter_;
  const Bytes brief_message_;
  uint32_t weight_ = 1;
  CoreLimit core_;
  ArrivalOrder echoes_;  // of acknowledged packets
  FlowStats stats_;
  FlowLimits decision_;
  Bytes at_once_ = 0;  // bytes that leave within the hosts' jitter

  // The newest grant.
  Grant grant_;
  Instant granted_at_;
  bool has_grant_ = false;
  bool grant_overdue_ = false;  // the receiver is late: g_f is left out
  Instant last_ack_;            // of the last acknowledgement
  Instant busy_since_;
  bool brief_ = false;            // this backlog was never more than a brief message in all
  bool own_link_limits_ = false;  // as found at the newest grant for this backlog
  bool opening_ = false;          // only guessed grants have arrived since this backlog began
  bool short_ = false;            // this backlog is too short to wait for an answer
  Bytes brief_until_ = 0;         // FlowStats::acked up to which it is brief
  Bytes first_limit_ = 0;         // FlowStats::sent up to which a flow may begin on a busy link

  bool begins_ = false;             // the flow was idle
  size_t backlogged_at_begin_ = 0;  // LinkShare::backlogged() when this flow began
  bool align_wanted_ = false;       // to the grid of the newest grant

  // What was advertised last.
  Demand advertised_;
  Instant advertised_at_;
  Bytes advertised_wanted_ = 0;    // not modulo 2^32
  bool announced_ = false;         // a demand for this backlog was sent
  int unanswered_ = 0;             // times that it was sent without a grant since
  bool final_demand_due_ = false;  // a demand of 0, when the flow has been idle for a while
  bool ever_advertised_ = false;
};

class PaceSenders final : public ControllerSet {
 public:
  using Constants = PaceConstants;

  PaceSenders(const FlowEnvironment& environment, const PaceConstants& constants,
              uint32_t max_flows);

  Controller& add_flow(Instant now, uint32_t flow) override;
  void remove_flow(Instant now, uint32_t flow) override;
  void set_weight(Instant now, uint32_t flow, uint32_t weight) override;
  size_t poll_changed(Instant now, std::span<uint32_t> flows) override;
  Instant next_deadline() const override;

 private:
  const FlowEnvironment environment_;
  const PaceConstants constants_;
  const Duration sweep_;  // interval at which all active flows are visited
  LinkShare link_;
  std::vector<std::unique_ptr<PaceController>> controllers_;
  Instant next_sweep_;
};

}  // namespace pacecar

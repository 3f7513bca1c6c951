// PaceController: the sender's half of `pace` for one flow; PaceSenders: for all flows of a NIC.
//
//   r_f = min(w_f * lambda, g_f, c_f)
//
// lambda is the flow's part of our own link (link_share.h), g_f the receiver's grant, c_f what the
// core carries (core_limit.h). Demands advertise what the flow could use, u_f, and how much it
// wants to send in all. Packets of a flow that is limited by its grant leave in the
// receiver's grid.
//
// A grant holds for its validity V; then the rate halves per round trip down to 1/256 of the line
// rate. A receiver that acknowledges but has been silent for 2 V is alive, and only late: then c_f
// alone counts until its next grant. A grant comes from a peer: any content is made harmless here.
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
  using Constants = PaceConstants;

  // Shares `link`, which outlives it, with other flows, as number `flow`.
  PaceController(const FlowEnvironment& environment, const Constants& constants, LinkShare& link,
                 uint32_t flow);
  // Has the link for itself.
  PaceController(const FlowEnvironment& environment, const Constants& constants);
  ~PaceController() override;

  std::string_view name() const override { return "pace"; }
  void on_send(Instant, Bytes) override {}
  void on_ack(const AckSample& sample) override;
  void on_loss(const LossSample& sample) override;
  void on_timeout(Instant now) override;
  void on_grant(Instant now, const Grant& grant) override;
  Decision decide(Instant now) override;
  std::optional<Demand> demand(Instant now, const FlowStats& stats) override;
  Explanation explain(Instant now) override;

  void set_weight(Instant now, uint32_t weight);

 private:
  PaceController(const FlowEnvironment& environment, const Constants& constants,
                 std::unique_ptr<LinkShare> link);
  struct Choice {
    double rate = 0;
    LimitedBy limited_by = LimitedBy::kLine;
  };

  Bytes on_wire(Bytes payload) const;
  void report_to_link(const AckSample& sample);
  bool outranks(const Grant& grant) const;
  bool has_backlog() const { return stats_.backlog > 0; }
  // Not on its way yet, as far as signals show.
  Bytes unsent() const { return stats_.backlog - std::min(stats_.in_flight, stats_.backlog); }
  // More than leaves at once is not on its way, so that the flow needs a part of our link.
  // A long message keeps it: what it leaves for a round trip would be a queue when others begin.
  bool has_unsent() const { return brief_ ? unsent() > at_once_ : has_backlog(); }
  // Its messages leave after those that began before them; flows with a weight share.
  bool queues() const { return brief_ && weight_ == 1; }
  bool beginning(Instant now) const;
  bool next_to_nothing(Bytes message) const;
  double overcommitted() const;
  double queueing() const;
  bool unhindered(double granted) const;
  double in_its_turn() const;
  double granted(Instant now) const;
  Choice choose(Instant now) const;
  void refresh(Instant now);
  double worthy_change(Instant now, double usable) const;
  bool worth_advertising(Instant now, double usable) const;
  Duration halving() const;
  void align(Instant now, Rate rate, Bytes burst);
  void begin(Instant now);

  const FlowEnvironment environment_;
  const Constants constants_;
  std::unique_ptr<LinkShare> own_link_;
  LinkShare& link_;
  const uint32_t flow_;
  const Rate gathered_rate_;  // above which a NIC's burst is sent before it is acknowledged
  const Bytes ahead_parts_;   // of a round trip: in flight beside it
  const Duration window_jitter_;
  const Bytes brief_message_;
  uint32_t weight_ = 1;
  CoreLimit core_;
  ArrivalOrder echoes_;  // of packets that are acknowledged
  FlowStats stats_;
  Decision decision_;
  Bytes at_once_ = 0;  // leaves within the hosts' jitter

  // The newest grant.
  Grant grant_;
  Instant granted_at_;
  bool has_grant_ = false;
  bool alone_ = false;  // the receiver is late: c_f alone counts
  Instant last_ack_;    // an acknowledgement, last
  Instant busy_since_;
  bool brief_ = false;       // this backlog was never more than such a message, in all
  bool unhindered_ = false;  // by the newest grant for this backlog
  bool opening_ = false;     // no grant but guesses has come since this backlog began
  bool short_ = false;       // this backlog is too short to wait for an answer
  Bytes brief_until_ = 0;    // FlowStats::acked up to which it is
  Bytes first_limit_ = 0;    // FlowStats::sent up to which a flow may begin on a busy link

  bool begins_ = false;        // the flow was idle
  size_t begun_beside_ = 0;    // flows with a backlog
  bool align_wanted_ = false;  // to the grid of the newest grant

  // What was advertised last.
  Demand advertised_;
  Instant advertised_at_;
  Bytes advertised_wanted_ = 0;  // not modulo anything
  bool announced_ = false;       // the receiver knows of this backlog
  int unanswered_ = 0;           // times that this was advertised and no grant has come
  bool farewell_due_ = false;
  bool ever_advertised_ = false;
};

class PaceSenders final : public ControllerSet {
 public:
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
  const Duration sweep_;  // how often all active flows are looked at
  LinkShare link_;
  std::vector<std::unique_ptr<PaceController>> controllers_;
  Instant next_sweep_;
};

}  // namespace pacecar

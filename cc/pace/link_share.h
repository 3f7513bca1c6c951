// LinkShare: the sender's half of the division of edge links. The flows of one NIC that have
// something to send share its link by weighted max-min, each up to its grant and core limit:
//   sum of min(w_f * lambda, limit_f) = C;  limit_f = min(g_f, c_f)
// C is the nominal rate; if processes share the link, our part of that rate. If the link gives
// less, the receivers see its queue (link_estimate.h), or the core limits of the flows do. Queued
// flows get the same total share but use it one after another, each up to its limit: brief messages
// that shared a link would end together and leave it idle until the next ones begin. Cost: O(log)
// per limit change, O(active flows) if lambda moves beyond tolerance. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/controller.h"
#include "cc/host_link.h"
#include "cc/pace/water_fill.h"
#include "transport/base/units.h"
#include "transport/base/work_list.h"

namespace pacecar {

class LinkShare {
 public:
  LinkShare(const FlowEnvironment& environment, uint32_t max_flows, double tolerance);

  // Agrees with the host's other processes on our part of the link. Call it every turn.
  void poll(Instant now);
  Instant next_deadline() const;  // When poll() has something to do even if nothing happens.

  void set(uint32_t flow, Rate limit, uint32_t weight);  // `limit` 0: the flow has nothing to send.

  double line() const { return line_; }
  // The rate that we might use if our flows could use the whole link. Our claim may depend on it,
  // but not on line(), which depends on the claim.
  double reach() const { return reach_; }
  // The flow's share, and its share if its limit were higher; in bit/s.
  double share(uint32_t flow) const;
  double usable(uint32_t flow) const;

  // The flow is served after those already in the queue; or it shares again.
  void set_queued(uint32_t flow, bool queued) {
    if (members_[flow].queued != queued) queued ? queue(flow) : leave_queue(flow);
  }

  // When the rest of a queued flow will have left.
  void leaves_at(uint32_t flow, Instant at) {
    members_[flow].leaves = at;
    set_next_leaves(at);
  }

  // Flows with something to send, not only with unacknowledged data.
  size_t active() const { return active_.size(); }
  // A flow's backlog begins; ends, when all is acknowledged.
  void begin() { ++backlogged_; }
  void end() { --backlogged_; }
  size_t backlogged() const { return backlogged_; }
  // A flow of this NIC is added; removed.
  void join() { ++flows_; }
  void leave() { --flows_; }
  // The number of all flows over the number with a backlog.
  double spare_fan_out() const {
    return static_cast<double>(flows_) / static_cast<double>(std::max<size_t>(backlogged_, 1));
  }
  // The network was found clear.
  void note_clear(Instant now) { clear_ = now; }
  Instant clear_since() const { return clear_; }
  void touch_all();  // All active flows must be visited.
  size_t poll_changed(std::span<uint32_t> flows);

 private:
  static constexpr uint32_t kInactive = UINT32_MAX;
  struct Member {
    Rate limit;
    uint32_t weight = 1;
    uint32_t position = kInactive;
    bool queued = false;
    double served = 0;                  // its share while it is queued, in bit/s
    Instant leaves = Instant::never();  // leaves_at()
  };

  void set_next_leaves(Instant at) { next_leaves_ = std::min(next_leaves_, at); }
  void visit_leaving(Instant now);
  void look(uint32_t causer);  // The flow that caused the change needs no visit.
  void queue(uint32_t flow);
  void leave_queue(uint32_t flow);
  void divide_queue(uint32_t causer);

  const double nominal_;
  HostLink* const host_link_;
  LinkClaim claim_;
  double line_ = nominal_;   // our part
  double reach_ = nominal_;  // our part if our flows could use the whole link
  const double tolerance_;
  WaterFill fill_;
  std::vector<Member> members_;
  std::vector<uint32_t> active_;
  std::vector<uint32_t> queue_;
  Instant next_leaves_ = Instant::never();  // the earliest of Member::leaves, or before it
  WorkList changed_;
  Instant clear_;  // when the network was last found clear
  size_t backlogged_ = 0;
  size_t flows_ = 0;
  double level_ = WaterFill::kNoLevel;
  double reach_level_ = WaterFill::kNoLevel;  // at reach()
  double spare_ = 0;                          // of reach(), when all limits are met
  double shown_ = 0;                          // reach_level_, or reach() + spare_, last reported
  double shown_given_ = 0;                    // level_, or line(), last reported
};

}  // namespace pacecar

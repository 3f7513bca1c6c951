// LinkShare: the sender's half of the division of edge links. The flows of one NIC that have
// something to send share its link by weighted max-min, each up to what its receiver and the core
// let it have:
//
//   sum of min(w_f * lambda, limit_f) = min(C, b);  limit_f = min(g_f, c_f)
//
// C is the nominal rate, or this process's part of it; b what the link really gives us, from what
// is acknowledged on all flows (link_budget.h).
//
// Flows in the queue have the same in all, but use it one after another, each up to its limit:
// where brief messages share a link, they end together and leave it idle until the next ones begin.
//
// Cost: O(log) per change of a limit; O(active flows) when lambda has moved by more than the
// tolerance. Pure; one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "cc/controller.h"
#include "cc/host_link.h"
#include "cc/pace/link_budget.h"
#include "cc/pace/water_fill.h"
#include "transport/base/units.h"
#include "transport/base/work_list.h"

namespace pacecar {

class LinkShare {
 public:
  LinkShare(const FlowEnvironment& environment, uint32_t max_flows, double tolerance);

  // Agrees with the host's other processes on our part of the link, where there are any. Every
  // turn.
  void poll(Instant now);
  // When poll() has something to do by the passing of time.
  Instant next_deadline() const;

  // `limit` 0: the flow has nothing to send.
  void set(uint32_t flow, Rate limit, uint32_t weight);

  // Whether on_acked has a use for acknowledgements.
  bool listens() const { return !receivers_look_ || !budget_.unconcerned(); }
  // Of all flows: `wire` bytes are acknowledged, after the time that the path takes and `excess`.
  void on_acked(Instant now, Bytes wire, Duration excess, bool overtaken, uint32_t flow);
  Duration spread() const { return budget_.spread(); }
  void on_lost(Bytes wire) { budget_.on_loss(wire); }

  // The budget is still in its start phase.
  bool starting() const { return budget_.starting(); }
  // Of the link, what may be used.
  double line() const { return std::min(line_, budget_.rate()); }
  // Likewise, if our flows could use all of it. What this process claims may depend on it, but not
  // on the part that the claim leads to.
  double reach() const { return budget_.learnt() ? line() : reach_; }
  // What the link gives the flow, and what it would give if its limit were higher; in bit/s.
  double share(uint32_t flow) const;
  double usable(uint32_t flow) const;

  // The flow is served after those that are queued already; or it shares again.
  void set_queued(uint32_t flow, bool queued) {
    if (members_[flow].queued != queued) queued ? queue(flow) : leave_queue(flow);
  }

  // Flows that have something to send, not only something that is not acknowledged.
  size_t active() const { return active_.size(); }
  // A flow has a backlog, or all of it is acknowledged.
  void begin() {
    ++begun_;
    ++backlogged_;
  }
  void end() { --backlogged_; }
  size_t backlogged() const { return backlogged_; }
  // A flow of this NIC is there, or no longer.
  void join() { ++flows_; }
  void leave() { --flows_; }
  // Of all flows to those that have a backlog.
  double spare_fan_out() const {
    return static_cast<double>(flows_) / static_cast<double>(std::max<size_t>(backlogged_, 1));
  }
  // The network was found clear lately.
  void note_clear(Instant now) { clear_ = now; }
  Instant clear_since() const { return clear_; }
  // How many times a flow has begun.
  uint32_t turns() const { return begun_; }
  // All that are active have to be looked at.
  void touch_all();
  size_t poll_changed(std::span<uint32_t> flows);

 private:
  static constexpr uint32_t kInactive = UINT32_MAX;
  struct Member {
    Rate limit;
    uint32_t weight = 1;
    uint32_t position = kInactive;
    bool queued = false;
    double served = 0;  // what the link gives it while it is queued, in bit/s
  };

  // The one that caused it knows already.
  void look(uint32_t causer);
  void queue(uint32_t flow);
  void leave_queue(uint32_t flow);
  void divide_queue(uint32_t causer);

  const double nominal_;
  const bool receivers_look_;
  HostLink* const host_link_;
  LinkClaim claim_;
  double weight_share_ = 1;  // of those of the host's processes
  double line_;              // our part of the host's
  double reach_;             // our part if our flows could use the whole link
  const double tolerance_;
  LinkBudget budget_;
  WaterFill fill_;
  std::vector<Member> members_;
  std::vector<uint32_t> active_;
  std::vector<uint32_t> queue_;
  WorkList changed_;
  Instant clear_;  // when the network was found so last
  uint32_t begun_ = 0;
  size_t backlogged_ = 0;
  size_t flows_ = 0;
  double level_ = WaterFill::kNoLevel;
  double reach_level_ = WaterFill::kNoLevel;  // with all of what our part could be
  double spare_ = 0;                          // of that, when all limits are met
  double shown_ = 0;                          // level or spare of that when all were touched last
  double shown_given_ = 0;                    // level or line of our part likewise
};

}  // namespace pacecar

// PaceController: the sender's half of `pace` for one flow; PaceSenders: for all flows of a NIC.
//   r_f = min(w_f * lambda, g_f, c_f)
// lambda is the water level of our own link (link_share.h), g_f the receiver's grant as this file
// takes it, c_f what the core carries (core_limit.h). Demands advertise what the flow could use,
// u_f, and how much it wants to send in all. Packets of a flow that is limited by its grant leave
// in the receiver's grid. A grant comes from a peer: any content is bounded here.
//   kIdle --backlog--> kOpening   on an idle link, a brief message or a guessed hold
//                      kAsking    on a busy link
//                      kObeying   otherwise
//                      kUngoverned  no grant has come, or the receiver's software is late
//   kOpening, kAsking, kUngoverned --a grant for the active flow--> kObeying
//   kObeying --a grant of at least 0.6 of its demand--> kLeading --a lower grant--> kObeying
//   any but kIdle --acknowledgements, but no grant for two validities--> kUngoverned
//   any --all is acknowledged--> kIdle
// Purity and thread rule as for Controller and ControllerSet.
#pragma once

#include <algorithm>
#include <memory>
#include <optional>
#include <vector>

#include "cc/controller_set.h"
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
  enum class Phase : uint8_t {
    kIdle,
    kOpening,     // has the hold of an idle flow, and takes more
    kAsking,      // has sent a first share, and waits for its grant
    kObeying,     // the grant is for an active flow
    kLeading,     // and our own link is the limit
    kUngoverned,  // no grant counts
  };
  enum class Held : uint8_t {
    kNothing,
    kGrant,
    kOverdue,  // the receiver's software is late: the grant does not count
  };
  // What the next decision does about the place of the next packet.
  enum class Place : uint8_t {
    kKeep,
    kAlign,  // to the grid of a new grant
    kBegin,  // the flow was idle: at once, or in the grid of its hold
  };
  struct Choice {
    double rate = 0;
    LimitedBy limited_by = LimitedBy::kLine;
  };

  bool outranks(const Grant& grant) const;
  bool has_backlog() const { return phase_ != Phase::kIdle; }
  void count_sent(Instant now, const FlowStats& stats);
  // Whether the flow needs a part of our link. A long message keeps its part to its end: a part
  // left free for a round trip would become a queue when others begin.
  bool has_unsent() const { return brief_ ? unsent_ > at_once_ : has_backlog(); }
  // Whether its messages queue behind earlier messages of other flows; flows with a weight share.
  bool queues() const { return brief_ && weight_ == 1; }
  Phase governed() const;
  Phase obeying() const;
  bool announced() const;
  void start(Instant now);
  bool waits(Instant now) const;
  double overcommitted() const;
  double rate_in_turn(double granted) const;
  double granted(Instant now) const;
  Choice choose(Instant now) const;
  void refresh(Instant now);
  void limit_window(Rate rate, Bytes burst);
  bool worth_advertising(Instant now, double usable) const;
  Duration halving() const;
  void align(Instant now, Rate rate, Bytes burst);
  void begin(Instant now);

  const FlowEnvironment environment_;
  const PaceConstants constants_;
  LinkShare& link_;
  const uint32_t flow_;
  const Duration round_trip_;  // without queues, as known when the flow was made
  const Bytes brief_message_;
  uint32_t weight_ = 1;
  CoreLimit core_;
  FlowStats stats_;
  FlowLimits decision_;
  Phase phase_ = Phase::kIdle;
  Place place_ = Place::kKeep;
  Bytes at_once_ = 0;  // bytes that leave within the hosts' jitter
  // Backlog that has not left: by the last signal; before the first, less what the rate has sent.
  Bytes unsent_ = 0;
  bool leaving_ = false;  // nothing is acknowledged yet, and no credit or window holds back any
  Instant counted_at_;
  Instant last_ack_;
  Instant busy_since_;
  bool brief_ = false;     // this backlog was never more than a brief message in all
  Bytes brief_until_ = 0;  // FlowStats::acked up to which it is brief
  Bytes first_limit_ = 0;  // FlowStats::sent up to which a flow may begin on a busy link

  Grant grant_;  // the newest
  Instant granted_at_;
  Held held_ = Held::kNothing;

  // The newest demand.
  std::optional<Demand> advertised_;
  Instant advertised_at_;
  Bytes advertised_wanted_ = 0;  // not modulo 2^32
  int unanswered_ = 0;           // times that it was sent without a grant since
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

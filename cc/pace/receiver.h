// PaceReceiver: the receiver's half of `pace`. Divides one receiving link among the flows that have
// announced a backlog, by weighted max-min, in grants of rate and phase.
//   sum over active flows of min(w_f * mu, u_f) = available
//   g_f = min(w_f * mu, u_f)
// mu is the water level (water_fill.h), u_f what the sender can use; `available` comes from
// LinkEstimate. A flow that will be done within a round trip keeps its grant but is charged
// nothing: its rate is free when a grant that leaves now takes effect. An idle flow with posted
// receives holds an equal part among the flows that are expected to wake up together (fan_in.h).
// Invariants: within a pass, cuts leave before raises. Every grant sent has a new epoch. A grant
// that is not repeated expires at the sender. Cost: O(log) per event; O(active flows) when the
// level has moved by more than 1/64, at most once per microsecond.
// Purity and thread rule as for Allocator.
#pragma once

#include <utility>
#include <vector>

#include "cc/allocator.h"
#include "cc/grant_word.h"
#include "cc/host_link.h"
#include "cc/pace/constants.h"
#include "cc/pace/empty_path.h"
#include "cc/pace/fan_in.h"
#include "cc/pace/link_estimate.h"
#include "cc/pace/slot_map.h"
#include "cc/pace/water_fill.h"
#include "transport/base/work_list.h"

namespace pacecar {

class PaceReceiver final : public Allocator {
 public:
  // environment.line_rate is that of the receiving link.
  PaceReceiver(const FlowEnvironment& environment, uint32_t max_flows,
               const PaceConstants& constants = {});

  void add_flow(Instant now, uint32_t flow) override;
  void remove_flow(Instant now, uint32_t flow) override;
  void on_posted(Instant now, uint32_t flow, Bytes bytes) override;
  void on_finished(Instant now, uint32_t flow, Bytes bytes) override;
  void on_demand(Instant now, uint32_t flow, const Demand& demand) override;
  void on_arrival(Instant now, uint32_t flow, Bytes bytes, const Transit& transit) override;
  void on_foreign_arrival(Instant now, Bytes bytes) override;
  bool wants_arrivals() const override { return true; }
  void on_round_trip(Duration least) override { link_.set_round_trip(least); }
  void set_weight(Instant now, uint32_t flow, uint32_t weight) override;
  void on_hint(Instant now, const TrafficHint& hint) override;
  size_t poll_grants(Instant now, std::span<GrantUpdate> updates) override;
  Instant next_deadline() const override;
  Grant grant(uint32_t flow) const override;

  size_t active_flows() const { return active_.size(); }

 private:
  static constexpr uint32_t kInactive = UINT32_MAX;

  // How long an active flow lasts at its rate: only ever shorter, until the sender wants more.
  enum class Phase : uint8_t {
    kLasting,
    kEnding,  // ends soon after one round trip: could not use a raise
    kDone,    // ends within one, before a grant that leaves now takes effect: charged nothing
  };
  struct Flow {
    Bytes posted = 0;    // and not finished
    Bytes received = 0;  // since the flow began
    Bytes wanted = 0;    // since the flow began, by the newest demand
    Rate usable;
    Rate charged;                         // its limit in fill_; 0: not in fill_
    Rate granted;                         // newest grant sent; 0: none yet
    Rate granted_before;                  // by the previous grant
    Instant sent;                         // when the newest grant was sent
    Instant last_seen;                    // last sign of the flow
    Instant woke = Instant::from_ns(-1);  // when it was last counted in fan_in_; below 0: never
    Instant busy_period_began;            // of arrivals without a pause of a round trip
    Bytes busy_period_bytes = 0;          // payload that has arrived since
    uint32_t weight = 1;
    uint32_t position = kInactive;  // in active_
    uint32_t home = 0;              // slot while idle
    uint32_t slot = 0;              // in use
    uint32_t sent_slot = kInactive;
    EmptyPath path;
    uint16_t epoch = 0;  // of the newest grant sent
    uint16_t demand_epoch = 0;
    bool present = false;
    bool sent_busy = false;  // Grant::busy of the newest grant
    bool sent_guessed = false;
    bool has_demand = false;  // ever
    bool newcomer = false;    // woke up in the present episode
    Phase phase = Phase::kLasting;

    bool active() const { return position != kInactive; }
    // Less than a unit may be rounding of `wanted`.
    Bytes remaining() const { return wanted >= received + kWantedUnit ? wanted - received : 0; }
  };
  // One pass sends the grants that are due, in this order.
  enum class Stage : uint8_t { kCuts, kRaises, kRepeats, kDone };

  Flow& at(uint32_t flow) { return const_cast<Flow&>(std::as_const(*this).at(flow)); }
  const Flow& at(uint32_t flow) const;
  void wake(Instant now, Flow& flow);
  void activate(Instant now, uint32_t flow);
  void deactivate(uint32_t flow);
  void update(Instant now, uint32_t flow);
  Rate limit(const Flow& flow) const;
  Bytes arrives_in_time(Instant now, const Flow& flow) const;
  void advance(Instant now, Flow& flow) const;
  void charge(Flow& flow, Rate limit);

  Rate target(const Flow& flow) const;
  uint32_t expected(uint32_t posted) const;
  Rate hold(uint32_t posted) const;
  Duration validity() const;
  Duration words_take(size_t flows) const;
  Instant repeat_at(const Flow& flow) const;
  uint32_t first_slot() const;
  bool guesses(const Flow& flow) const;
  bool differs(const Flow& flow, double tolerance) const;
  GrantUpdate send(Instant now, uint32_t flow);
  void start_pass(Instant now);
  void claim_part(Instant now);
  bool others_may_begin() const;
  bool in_use() const;
  void end_episode();
  void look_at_busyness(Instant now);
  bool is_due(Instant now, const Flow& flow) const;
  bool next_stage(Instant now);
  size_t serve_pass(Instant now, std::span<GrantUpdate> updates);
  size_t serve_due(Instant now, std::span<GrantUpdate> updates);
  size_t serve_holds(Instant now, std::span<GrantUpdate> updates);

  const FlowEnvironment environment_;
  const PaceConstants constants_;
  HostLink* const host_link_;
  LinkClaim claim_;
  Instant claimed_since_ = Instant::never();  // since flows are active
  const Duration round_trip_;
  const bool phases_;           // the hosts keep them
  const Duration base_memory_;  // of shortest transits
  LinkEstimate link_;
  WaterFill fill_;
  FanIn fan_in_;
  std::vector<Flow> flows_;
  std::vector<uint32_t> active_;  // in no particular order
  SlotMap homes_;
  SlotMap slots_;
  WorkList due_;            // flows to serve between passes
  uint32_t hinted_ = 0;     // senders at once, by the application's hint; 0: unknown
  uint32_t present_ = 0;    // flows
  uint32_t posted_ = 0;     // flows with receives posted
  uint32_t charged_ = 0;    // flows in fill_
  bool newcomers_ = false;  // some flows woke up in the present episode
  double level_ = WaterFill::kNoLevel;
  double spare_ = 0;          // per weight, when all limits are met
  double passed_level_ = 0;   // level_, or minus the unused rate, at the last pass
  bool changed_ = false;      // level_ may have moved
  bool raise_waits_ = false;  // all could be raised, but the grants would take too much of the link
  Instant next_raise_;
  bool serving_ = false;  // some grants of a pass, or of due_, have not been taken yet
  Stage stage_ = Stage::kDone;
  size_t cursor_ = 0;                      // next index of active_ in this stage
  Instant busy_since_ = Instant::never();  // since when flows that last use the link
  bool busy_ = false;                      // and have for a while
  Instant next_look_;
  Instant next_repeat_ = Instant::never();
  uint32_t hold_cursor_ = 0;  // next flow whose hold is checked
  uint32_t hold_left_ = 0;    // flows left to check in this round
  uint32_t used_ = 0;         // all flows ever added are below this number
  uint32_t holding_for_ = 0;  // fan-in that the holds were sent for
  double holding_line_ = 0;   // the line rate that was divided for them
  Instant next_hold_;
};

}  // namespace pacecar

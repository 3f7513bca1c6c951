// EqualShare: every flow with demand gets the same share of the link: eta * C / |A|.
//
// A flow has demand (is in A) while receives are posted and not finished, unless its sender has
// announced that it has nothing to send. eta is 1 for a flow alone, else 0.98: the rest absorbs the
// bursts of flows that meet. Shares change only when A does.
//
// Invariants: a raise leaves poll_grants only after every cut, so the grants of A never add up to
// more than the link once the cuts before are applied. Every grant sent, repeats included, has an
// epoch of its own: in a table that is polled, the same word twice would look like silence.
//
// Cost: O(1) per event; O(|A|) per change of A inside poll_grants, at most once per microsecond.
// Same purity and thread rule as Allocator.
#pragma once

#include <vector>

#include "cc/allocator.h"

namespace pacecar {

class EqualShare final : public Allocator {
 public:
  // How long a grant holds without a repeat. Software end hosts are descheduled for tens of
  // milliseconds; a shorter time would slow flows down for no fault of the network. A grant is
  // repeated every quarter of it, so three repeats may be lost.
  static constexpr Duration kValidity = Duration::from_ms(100);
  static constexpr Duration kRepeatInterval = kValidity / 4;
  static constexpr Duration kMinRecomputeInterval = Duration::from_us(1);
  static constexpr uint64_t kSharedPercent = 98;  // eta for two and more flows

  EqualShare(Rate line_rate, uint32_t max_flows);

  void add_flow(Instant now, uint32_t flow) override;
  void remove_flow(Instant now, uint32_t flow) override;
  void on_posted(Instant now, uint32_t flow, Bytes bytes) override;
  void on_finished(Instant now, uint32_t flow, Bytes bytes) override;
  void on_demand(Instant now, uint32_t flow, const Demand& demand) override;
  size_t poll_grants(Instant now, std::span<GrantUpdate> updates) override;
  Instant next_deadline() const override;
  Grant grant(uint32_t flow) const override;

 private:
  static constexpr uint32_t kInactive = UINT32_MAX;

  struct Flow {
    Bytes outstanding = 0;             // posted and not finished
    Rate granted;                      // newest grant sent; 0: none yet
    Instant sent;                      // when it was
    uint32_t active_slot = kInactive;  // index in active_
    uint16_t epoch = 0;                // of the newest grant sent
    bool present = false;
    bool idle = false;  // the sender announced an empty backlog
  };
  // One pass sends what the active flows are due, in this order.
  enum class Stage : uint8_t { kCuts, kRaises, kRepeats, kDone };

  Flow& at(uint32_t flow);
  Rate share_of(size_t flows) const;
  void update_membership(uint32_t flow);
  void start_pass(Instant now);
  void next_stage();
  bool is_due(const Flow& flow, Instant now) const;

  Rate line_rate_;
  std::vector<Flow> flows_;
  std::vector<uint32_t> active_;  // A, in no particular order
  bool changed_ = false;          // A has changed since the pass began
  Stage stage_ = Stage::kDone;
  size_t cursor_ = 0;  // next index of active_ in this stage
  Rate share_;         // of each active flow in this pass
  Instant pass_started_;
  Instant next_recompute_;
  Instant next_repeat_ = Instant::never();
};

}  // namespace pacecar

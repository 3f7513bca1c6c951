// SirdShare: the receiver's half of `sird`, after SIRD (NSDI 2025).
// Flows whose senders ask for more than they were granted take turns. Each turn grants two packets,
// at kCredit.rate_percent of line rate, while less than B is outstanding for all flows together and
// less than its bucket for this one. Unscheduled bytes count as granted when they are announced.
// Credit that brings nothing for kCredit.ask_again is taken back.
// Invariant: grants in turn let outstanding credit exceed B, or a bucket, by less than one
// turn's credit. Cost: O(1) per event and grant; O(max_flows) when credit is taken back, and in
// remove_flow. Purity and thread rule as for Allocator.
#pragma once

#include <optional>
#include <vector>

#include "cc/allocator.h"
#include "cc/credit_pacer.h"
#include "cc/sird_credit.h"
#include "transport/base/work_list.h"

namespace pacecar {

class SirdShare final : public Allocator {
 public:
  // environment.line_rate is that of the receiving link.
  SirdShare(const FlowEnvironment& environment, uint32_t max_flows);

  void add_flow(Instant now, uint32_t flow) override;
  void remove_flow(Instant now, uint32_t flow) override;
  void on_posted(Instant, uint32_t flow, Bytes bytes) override { flows_[flow].posted += bytes; }
  void on_finished(Instant now, uint32_t flow, Bytes bytes) override;
  void on_demand(Instant now, uint32_t flow, const Demand& demand) override;
  void on_arrival(Instant now, uint32_t flow, Bytes bytes, const Transit&) override;
  bool wants_arrivals() const override { return true; }
  size_t poll_grants(Instant now, std::span<GrantUpdate> updates) override;
  Instant next_deadline() const override;
  Grant grant(uint32_t flow) const override;

  Bytes outstanding() const { return outstanding_; }

 private:
  // Payload bytes. The first three are offsets.
  struct Flow {
    Bytes granted = 0;
    Bytes wished = 0;
    Bytes arrived = 0;
    Bytes posted = 0;  // and not finished
    Bytes bucket = 0;

    Bytes outstanding() const { return granted - std::min(granted, arrived); }
  };

  void advance(Instant now, Flow& flow, Bytes granted, Bytes arrived);
  void offer(Instant now, uint32_t flow);
  std::optional<uint32_t> pull(Instant now);
  void take_back(Instant now);
  bool full() const { return outstanding_ >= most_; }

  const Bytes mtu_;
  const Bytes bdp_;
  const Bytes most_;  // B
  const Bytes pull_;
  CreditPacer pacer_;
  std::vector<Flow> flows_;
  WorkList asking_;  // granted < wished; without those whose bucket was full at their turn
  Bytes outstanding_ = 0;
  Instant next_pull_;
  Instant moved_;  // when a flow's counts were last changed
};

}  // namespace pacecar

// CreditShare: the pull pacer of a receiver, after UEC 1.0 (receiver credit congestion control).
// Flows whose senders ask for more than they were granted take turns. Each turn grants one pull of
// at most four packets, and the next turn comes when those packets have passed the link at 99% of
// line rate. While no flow asks, flows that once did get unasked pulls, up to credit_limit beyond
// their wish: packets lost at the end of a message are then retransmitted without waiting for
// another round trip. Every constant is in credit.h. Where the core of the network is
// oversubscribed pulls come more slowly (core_rate.h).
// Invariants: the credit granted to all flows together never runs ahead of the pacer by more than
// one pull; no flow is granted more than one pull beyond its wish and credit_limit. Cost: O(1) per
// event and per pull; O(max_flows) in remove_flow. Purity and thread rule as for Allocator.
#pragma once

#include <optional>
#include <vector>

#include "cc/allocator.h"
#include "cc/core_rate.h"
#include "cc/credit_pacer.h"
#include "transport/base/work_list.h"

namespace pacecar {

class CreditShare final : public Allocator {
 public:
  // environment.line_rate is that of the receiving link.
  CreditShare(const FlowEnvironment& environment, uint32_t max_flows);

  void add_flow(Instant now, uint32_t flow) override;
  void remove_flow(Instant now, uint32_t flow) override;
  void on_posted(Instant, uint32_t, Bytes) override {}
  void on_finished(Instant, uint32_t, Bytes) override {}
  void on_demand(Instant now, uint32_t flow, const Demand& demand) override;
  void on_counts(Instant now, const ArrivalCounts& counts) override {
    core_.on_counts(now, counts);
  }
  size_t poll_grants(Instant now, std::span<GrantUpdate> updates) override;
  Instant next_deadline() const override;
  Grant grant(uint32_t flow) const override;

 private:
  // Units of credit since the flow was added.
  struct Flow {
    uint64_t granted = 0;
    uint64_t wished = 0;
  };

  // Grants one pull to the flow whose turn it is; none: no flow takes one.
  std::optional<uint32_t> pull();
  bool may_have_unasked(const Flow& flow) const { return flow.granted < flow.wished + limit_; }
  void advance(uint64_t units) {
    next_pull_ = next_pull_ + pacer_.time_of(units * kCreditUnit, core_.rate());
  }

  uint64_t pull_units_;
  uint64_t limit_;  // units beyond a wish
  CreditPacer pacer_;
  std::vector<Flow> flows_;
  WorkList asking_;  // granted < wished
  WorkList met_;     // granted >= wished; may also list flows that have wished since
  Instant next_pull_;
  CoreRate core_;
};

}  // namespace pacecar

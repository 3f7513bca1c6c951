// `sird`: sends on credit from the receiver, after SIRD (NSDI 2025). The sender's half; the
// receiver's half is sird_share.h. papers.md maps rules to functions.
// A message of at most UnschT on an idle flow is sent at once; others ask for credit first. The
// flow sees both signs of congestion: credit that accumulates at its sender, over all receivers,
// and marks of the network. It keeps a bucket for each; the smaller one is how much credit its
// receiver may have outstanding for it, and travels in the demand word.
// A receiver that grants rates is obeyed instead. Purity and thread rule as for Controller; the
// flows of a SirdSenders are used by one thread.
#pragma once

#include <memory>
#include <vector>

#include "cc/constants.h"
#include "cc/controller_set.h"
#include "cc/grant_limit.h"
#include "cc/sird_credit.h"

namespace pacecar {

class SirdController final : public GrantedController {
 public:
  // `accumulated`: the unused credit of all flows of the sender, payload bytes; outlives it.
  SirdController(const FlowEnvironment& environment, Bytes& accumulated);
  ~SirdController() override { accumulated_ -= unused_; }
  SirdController(const SirdController&) = delete;
  SirdController& operator=(const SirdController&) = delete;

  std::string_view name() const override { return "sird"; }
  void on_ack(Instant, const FlowSignal& ack) override { core_.on_bytes(ack.acked, ack.marked); }
  void on_grant(Instant now, const Grant& grant) override;
  FlowLimits decide(Instant now) override;
  std::optional<Demand> demand(Instant now, const FlowStats& stats) override;

 private:
  Bytes credit_left() const;
  void count_unused();

  const Bytes mtu_;
  const double bdp_;
  Bytes& accumulated_;
  SirdBucket host_;         // by credit that accumulates here
  SirdBucket core_;         // by marks of the network
  uint64_t granted_ = 0;    // units, as an offset
  uint64_t announced_ = 0;  // units, in the last demand
  Bytes wanted_ = 0;        // offset of the end of all that there is to send
  Bytes covered_ = 0;       // offset of the next new byte to send; less what must be sent again
  Bytes sent_ = 0;          // retransmissions included
  Bytes dropped_ = 0;       // will never arrive
  Bytes unscheduled_ = 0;   // offset up to which nothing needs credit
  Bytes unused_ = 0;        // of credit, as counted in accumulated_
  bool idle_ = true;
  bool on_credit_ = true;
};

class SirdSenders final : public ControllerSet {
 public:
  using Constants = NoConstants;

  SirdSenders(const FlowEnvironment& environment, const Constants&, uint32_t max_flows)
      : environment_(environment), controllers_(max_flows) {}

  Controller& add_flow(Instant, uint32_t flow) override {
    controllers_[flow] = std::make_unique<SirdController>(environment_, accumulated_);
    return *controllers_[flow];
  }
  void remove_flow(Instant, uint32_t flow) override { controllers_[flow].reset(); }

 private:
  const FlowEnvironment environment_;
  Bytes accumulated_ = 0;
  std::vector<std::unique_ptr<SirdController>> controllers_;
};

}  // namespace pacecar

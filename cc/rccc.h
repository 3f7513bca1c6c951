// `rccc`: sends on credit from the receiver, after the receiver credit congestion control of UEC
// 1.0. The sender's half; the receiver's half is credit_share.h; all constants are in credit.h.
// A message on an idle flow starts at once with a blind credit of credit_limit. The first
// acknowledgement, loss or grant withdraws the rest of that credit; from then on only granted
// credit may be used. Retransmissions need credit like new packets.
// With every packet the flow asks for the credit that its unsent bytes lack. Flows that compete for
// their sender's link each ask for their part.
// Invariant: a flow with something to send and no credit asks for some in the first demand() after
// kCredit.ask_again, so demand() must be called from time to time without other events. A receiver
// that grants rates is obeyed instead. Purity and thread rule as for Controller.
#pragma once

#include "cc/constants.h"
#include "cc/controller.h"
#include "cc/grant_limit.h"

namespace pacecar {

class RcccController final : public GrantedController {
 public:
  using Constants = NoConstants;

  explicit RcccController(const FlowEnvironment& environment, const Constants& = {});

  std::string_view name() const override { return "rccc"; }
  void on_ack(Instant, const FlowSignal& ack) override { on_signal(ack.sent); }
  void on_loss(Instant now, const Loss& loss) override;
  void on_grant(Instant now, const Grant& grant) override;
  FlowLimits decide(Instant now) override;
  std::optional<Demand> demand(Instant now, const FlowStats& stats) override;

 private:
  void start_blind(Bytes sent);
  void on_signal(Bytes sent);
  void ask(const FlowStats& stats);

  const Bytes mtu_;
  const Bytes limit_;     // the most credit, and the largest wish
  Bytes sent_ = 0;        // by the newest signal
  Bytes may_send_ = 0;    // in all, as sent_ counts
  Bytes blind_from_ = 0;  // value of sent_ when the blind credit was taken
  bool blind_ = true;
  bool on_credit_ = true;
  uint64_t granted_ = 0;    // units since the flow began
  uint64_t wished_ = 0;     // the largest wish, in units since the flow began
  uint64_t announced_ = 0;  // the wish in the last demand
  bool may_ask_ = true;     // even without having sent
  Bytes asked_at_ = 0;      // value of sent_ when it asked last
  Instant asked_;
};

}  // namespace pacecar

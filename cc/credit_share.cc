#include "cc/credit_share.h"

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar {

CreditShare::CreditShare(const FlowEnvironment& environment, uint32_t max_flows)
    : pull_units_(credit_units(kCredit.pull_packets * environment.mtu)),
      limit_(credit_limit(environment) / kCreditUnit),
      pacer_(environment),
      flows_(max_flows),
      asking_(max_flows),
      met_(max_flows),
      core_(base_round_trip(environment), environment.oversubscription) {}

void CreditShare::add_flow(Instant, uint32_t flow) {
  PACECAR_CHECK(flow < flows_.size());
  flows_[flow] = Flow{};
}

void CreditShare::remove_flow(Instant, uint32_t flow) {
  asking_.remove(flow);
  met_.remove(flow);
}

// A wish that is not ahead of the last one is a late word, and is ignored.
void CreditShare::on_demand(Instant now, uint32_t flow, const Demand& demand) {
  PACECAR_CHECK(flow < flows_.size());
  if (!demand.is_credit) return;  // the sender does not run on credit
  Flow& f = flows_[flow];
  const int64_t ahead = credit_ahead(demand.credit, f.wished);
  if (ahead <= 0) return;
  if (asking_.empty()) next_pull_ = std::max(next_pull_, now);
  f.wished += static_cast<uint64_t>(ahead);
  (f.granted < f.wished ? asking_ : met_).add(flow);
}

size_t CreditShare::poll_grants(Instant now, std::span<GrantUpdate> updates) {
  next_pull_ = std::max(next_pull_, now - kCredit.max_lateness);
  size_t count = 0;
  while (count < updates.size() && now >= next_pull_) {
    const std::optional<uint32_t> flow = pull();
    if (!flow) break;
    updates[count++] = {*flow, grant(*flow)};
  }
  return count;
}

std::optional<uint32_t> CreditShare::pull() {
  if (!asking_.empty()) {
    const uint32_t flow = asking_.take();
    Flow& f = flows_[flow];
    const uint64_t units = std::min(pull_units_, f.wished - f.granted);
    f.granted += units;
    (f.granted < f.wished ? asking_ : met_).add(flow);
    advance(units);
    return flow;
  }
  while (!met_.empty()) {
    const uint32_t flow = met_.take();
    if (!may_have_unasked(flows_[flow])) continue;
    flows_[flow].granted += pull_units_;
    met_.add(flow);
    advance(pull_units_);
    return flow;
  }
  return std::nullopt;
}

Instant CreditShare::next_deadline() const {
  return asking_.empty() && met_.empty() ? Instant::never() : next_pull_;
}

Grant CreditShare::grant(uint32_t flow) const {
  PACECAR_CHECK(flow < flows_.size());
  Grant grant;
  grant.is_credit = true;
  grant.credit = flows_[flow].granted * kCreditUnit;
  return grant;
}

}  // namespace pacecar

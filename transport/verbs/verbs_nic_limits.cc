// The part of VerbsNic that sets the lanes' rate limits at the device.
//
// RateLimits decides the limits. A command to the device takes some tens of microseconds, during
// which this thread does nothing else. So there is at most one command per turn and per kBetween;
// meanwhile the flow's lanes keep their old limits.
#include <fmt/format.h>

#include "transport/verbs/verbs_nic.h"

namespace pacecar {
namespace {

constexpr Duration kBetween = Duration::from_ms(2);
// In a row; a single one may come from a connection whose failure has not been reported yet.
constexpr uint32_t kMostRefused = 3;

}  // namespace

void VerbsNic::apply_rate_limits(Instant now) {
  rate_limits_.on_time(now);
  if (now < next_limit_) return;
  for (; rate_limits_.any_unequal(); rate_limits_.pop_unequal()) {
    const FlowId flow = rate_limits_.unequal();
    const Rate limit = rate_limits_.limit(flow);
    QueuePair* qp = nullptr;
    Lane* const lane = lane_to_limit(flow, limit, &qp);
    if (lane == nullptr) continue;
    next_limit_ = now + kBetween;
    return limit_lane(*qp, *lane, limit);
  }
}

Lane* VerbsNic::lane_to_limit(FlowId flow, Rate limit, QueuePair** of) {
  for (const uint32_t slot : flows_.slots(flow)) {
    QueuePair& qp = *queue_pairs_[slot];
    if (qp.state != QueuePair::State::kConnected) continue;
    for (Lane& lane : std::span(qp.lanes).first(qp.lanes_used)) {
      if (!lane.up() || lane.limit.rate() == limit) continue;
      *of = &qp;
      return &lane;
    }
  }
  return nullptr;
}

void VerbsNic::limit_lane(QueuePair& qp, Lane& lane, Rate limit) {
  ibv_qp_rate_limit_attr wanted{};  // the burst and packet sizes stay the device's
  wanted.rate_limit = static_cast<uint32_t>((limit.bps() + kBpsPerKbps - 1) / kBpsPerKbps);
  const int error = ibv_modify_qp_rate_limit(lane.queue_pair.get(), &wanted);
  if (error == 0) {
    limits_refused_ = 0;
    return lane.limit.set(limit);
  }
  const std::string fault =
      verbs_error(Call::kOther, "ibv_modify_qp_rate_limit", error, device_.name).message;
  if (limit == Rate()) {
    // The old limit would slow the flow down: replace the connection, and with it the limit.
    lane.limit.set({});
    if (qp.recovers()) fail_lane(qp, lane, CompletionStatus::kLocalError, fault);
  } else {
    rate_limits_.pop_unequal();  // until it changes
  }
  if (++limits_refused_ == kMostRefused) {
    config_.log(LogLevel::kWarn,
                fmt::format("{}; from here on it has no rate limits: the packets of a chunk "
                            "leave at line rate",
                            fault));
    rate_limits_.stop();
  }
}

}  // namespace pacecar

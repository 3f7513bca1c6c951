#include "transport/sim/sim_link.h"

#include "transport/base/check.h"

namespace pacecar {
namespace {

constexpr uint64_t kBitNsPerByte = 8'000'000'000U;  // 8 bits x 1e9 ns/s

using Wide = unsigned __int128;

}  // namespace

SimLink::SimLink(const SimLinkConfig& config) : config_(config) {
  PACECAR_CHECK(config.rate.bps() > 0);
}

SimLink::Offer SimLink::offer(Bytes size, Instant now) {
  const Bytes backlog_after = backlog(now) + size;
  if (backlog_after > config_.queue_bytes) return Offer{};
  if (now > idle_at_) {
    idle_at_ = now;
    idle_remainder_ = 0;
  }
  const Wide work = Wide{size} * kBitNsPerByte + idle_remainder_;
  const uint64_t rate = config_.rate.bps();
  idle_at_ = idle_at_ + Duration::from_ns(static_cast<int64_t>(work / rate));
  idle_remainder_ = static_cast<uint64_t>(work % rate);

  const Duration round_up = Duration::from_ns(idle_remainder_ > 0 ? 1 : 0);
  const Bytes threshold = config_.ecn_threshold_bytes;
  return Offer{.accepted = true,
               .marked = threshold > 0 && backlog_after > threshold,
               .arrival = idle_at_ + round_up + config_.delay};
}

Bytes SimLink::backlog(Instant now) const {
  if (now > idle_at_) return 0;
  const auto busy_ns = static_cast<uint64_t>((idle_at_ - now).ns());
  const Wide work = Wide{busy_ns} * config_.rate.bps() + idle_remainder_;
  return static_cast<Bytes>((work + kBitNsPerByte - 1) / kBitNsPerByte);
}

Instant SimLink::room_at(Bytes size) const {
  PACECAR_CHECK(size <= config_.queue_bytes);
  // Bytes that may still wait; rounding their time down rounds the answer up.
  const Wide spare = Wide{config_.queue_bytes - size} * kBitNsPerByte;
  const uint64_t rate = config_.rate.bps();
  const Duration early = Duration::from_ns(static_cast<int64_t>(spare / rate));
  const bool short_of_it = idle_remainder_ > static_cast<uint64_t>(spare % rate);
  return idle_at_ - early + Duration::from_ns(short_of_it ? 1 : 0);
}

}  // namespace pacecar

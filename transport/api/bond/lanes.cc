#include "transport/api/bond/lanes.h"

#include <algorithm>
#include <utility>

namespace pacecar {
namespace {

// A longer gap between updates means that this process was stopped: BondKeeper drives every 50 ms.
constexpr Duration kOwnPause = Duration::from_ms(200);

}  // namespace

LaneMask alive_lanes(std::span<const BondLane> lanes) {
  LaneMask mask = 0;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if (lanes[i].alive) mask |= bit_of(i);
  }
  return mask;
}

bool slot_done(const LaneNote& resume, uint64_t slot) {
  if (slot >= resume.next) return false;
  if (resume.next - slot > kCtsSlots) return true;
  const uint64_t bit = slot % kCtsSlots;
  return (resume.done[bit / 64] >> bit % 64 & 1) != 0;
}

void LaneWatch::skip_own_pause(Instant now) {
  const Duration pause = now - std::exchange(looked_at_, now);
  if (pause < kOwnPause) return;
  probed_ = probed_ + pause;
  alive_ = alive_ + pause;
  for (Seen& seen : seen_) {
    seen.until = seen.until + pause;
    if (seen.suspect != Instant::never()) seen.suspect = seen.suspect + pause;
  }
}

bool LaneWatch::update(size_t lane, const Sight& sight, Instant now) {
  skip_own_pause(now);
  Seen& seen = seen_[lane];
  if (sight.life != seen.life) on_peer_alive(now);
  if (sight.life != seen.life || !sight.waits) seen = {.life = sight.life, .until = now};
  seen.waits = sight.waits;
  return seen.suspect != Instant::never() && alive_ - seen.suspect >= limit_;
}

bool LaneWatch::should_probe(Instant now) {
  const Duration patience = limit_ / 4;
  if (now - std::max(probed_, alive_) < patience) return false;
  const bool probe = std::ranges::any_of(
      seen_, [&](const Seen& seen) { return seen.waits && now - seen.until >= patience; });
  if (probe) probed_ = now;
  return probe;
}

void LaneWatch::on_peer_alive(Instant now) {
  const bool paused = now - std::exchange(alive_, now) > limit_ / 2;
  for (Seen& seen : seen_) {
    if (paused) seen.suspect = Instant::never();
    if (seen.waits && now > seen.until) seen.suspect = std::min(seen.suspect, now);
  }
}

}  // namespace pacecar

#include "transport/api/bond/lane_split.h"

#include <algorithm>

#include "transport/base/check.h"

namespace pacecar {
namespace {

constexpr Bytes kGrain = 4096;
constexpr Bytes kSmallest = Bytes{16} << 10;  // Smaller parts are not worth a packet on each lane.
// One sample of a lane's rate, and how much the newest one counts.
constexpr Bytes kSample = Bytes{1} << 20;
constexpr double kNewest = 0.25;
// The least assumed rate, as a share of the fastest lane's rate: even a slow lane gets some bytes,
// so that an improvement is measured.
constexpr double kLeastShare = 1.0 / 16;

using Rates = std::array<double, kMaxLanes>;

// A lane of unknown rate is assumed to be as fast as the fastest.
Rates assumed_rates(std::span<const LaneMeter> lanes) {
  double fastest = 1;
  for (const LaneMeter& lane : lanes) fastest = std::max(fastest, lane.rate());
  Rates rates{};
  for (size_t i = 0; i < lanes.size(); ++i) {
    rates[i] = lanes[i].rate() == 0 ? fastest : std::max(lanes[i].rate(), fastest * kLeastShare);
  }
  return rates;
}

}  // namespace

void LaneMeter::on_posted(Bytes bytes, Instant now) {
  if (outstanding_ == 0) busy_since_ = now;
  outstanding_ += bytes;
}

void LaneMeter::on_done(Bytes bytes, Instant now) {
  if (bytes == 0) return;
  outstanding_ -= bytes;
  sample_ += bytes;
  worked_ = worked_ + (now - busy_since_);
  busy_since_ = now;
  if (sample_ < kSample || worked_ <= Duration()) return;
  const double measured = static_cast<double>(sample_) / worked_.seconds();
  rate_ = rate_ == 0 ? measured : rate_ + kNewest * (measured - rate_);
  sample_ = 0;
  worked_ = Duration();
}

std::array<Bytes, kMaxLanes> split(Bytes size, std::span<const LaneMeter> lanes, LaneMask usable) {
  PACECAR_CHECK(usable != 0 && lanes.size() <= kMaxLanes);
  const Rates rates = assumed_rates(lanes);
  std::array<Bytes, kMaxLanes> parts{};
  // When the lane's backlog will be done.
  const auto free_at = [&](size_t lane) {
    return static_cast<double>(lanes[lane].outstanding()) / rates[lane];
  };
  // By free_at(). An insertion sort: for std::ranges::sort GCC 12 warns of impossible indices.
  std::array<size_t, kMaxLanes> order{};
  size_t count = 0;
  for (size_t i = 0; i < lanes.size(); ++i) {
    if ((usable & bit_of(i)) == 0) continue;
    size_t place = count++;
    for (; place > 0 && free_at(order[place - 1]) > free_at(i); --place) {
      order[place] = order[place - 1];
    }
    order[place] = i;
  }
  if (size < kSmallest) {
    parts[order[0]] = size;
    return parts;
  }
  // All lanes that get a part finish at `end`; a lane with a longer backlog gets none.
  double rate = 0;
  double work = static_cast<double>(size);
  double end = 0;
  LaneMask taking = 0;
  for (const size_t lane : std::span(order).first(count)) {
    if (taking != 0 && free_at(lane) >= end) break;
    taking |= bit_of(lane);
    rate += rates[lane];
    work += static_cast<double>(lanes[lane].outstanding());
    end = work / rate;
  }
  Bytes left = size;
  for (size_t lane = 0; lane < lanes.size(); ++lane) {
    if ((taking & bit_of(lane)) == 0) continue;
    const bool last = taking >> lane == 1;  // it gets the rest
    const double share = end * rates[lane] - static_cast<double>(lanes[lane].outstanding());
    const Bytes whole = static_cast<Bytes>(std::max(share + kGrain / 2.0, 0.0)) / kGrain * kGrain;
    parts[lane] = last ? left : std::min(left, whole);
    left -= parts[lane];
  }
  return parts;
}

}  // namespace pacecar

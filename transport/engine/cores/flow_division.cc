#include "transport/engine/cores/flow_division.h"

#include <algorithm>
#include <span>

#include "transport/base/check.h"

namespace pacecar {
namespace {

// The sum of shares, and the least: a slow core gets some work, so that an improvement is measured.
constexpr uint32_t kShares = 1 << 12;
constexpr uint32_t kLeastShare = kShares / 64;
// Periods in which a share follows a core's rate, and in which it returns to the default if idle.
constexpr uint64_t kAdapting = 4;
constexpr uint64_t kForgetting = 32;

uint64_t scale(uint64_t value, uint64_t part, uint64_t whole) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(value) * part / whole);
}

}  // namespace

FlowDivision::FlowDivision(uint32_t cores, uint32_t home) : count_(cores), home_(home % cores) {
  PACECAR_CHECK(cores > 0 && cores <= kMaxCores);
  for (Core& core : std::span(cores_).first(count_)) core.share = kShares / count_;
}

uint32_t FlowDivision::choose(Bytes bytes, Rate rate, uint32_t cores) const {
  if (bytes < kSmallWrite && cores_[0].backlog < kSmallBacklog) return 0;
  const uint32_t home = home_ % cores;
  const uint64_t wanted = std::max<uint64_t>(rate.bps() / kCoreRate.bps(), 1);
  uint32_t best = home;
  for (uint32_t i = 1; i < std::min<uint64_t>(wanted, cores); ++i) {
    const uint32_t other = (home + i) % cores;
    // Compares backlog / share without dividing.
    if ((cores_[other].backlog + bytes) * cores_[best].share <
        (cores_[best].backlog + bytes) * cores_[other].share) {
      best = other;
    }
  }
  return best;
}

bool FlowDivision::on_posted(uint32_t index, Bytes bytes) {
  Core& core = cores_[index];
  core.backlog += bytes;
  return core.writes++ == 0;
}

bool FlowDivision::on_done(uint32_t index, Bytes bytes) {
  Core& core = cores_[index];
  core.backlog -= bytes;
  if (--core.writes > 0) return false;
  core.rested = true;
  return true;
}

void FlowDivision::on_acked(uint32_t index, Bytes bytes, Instant now) {
  cores_[index].acked += bytes;
  if (now < period_end_) return;
  period_end_ = now + kPeriod;
  adapt();
}

// Only the rates of cores that were busy for the whole period count.
void FlowDivision::adapt() {
  const auto cores = std::span(cores_).first(count_);
  uint64_t shares = 0;
  Bytes acked = 0;
  uint32_t measured = 0;
  for (const Core& core : cores) {
    if (core.rested) continue;
    ++measured;
    shares += core.share;
    acked += core.acked;
  }
  uint64_t sum = 0;
  for (Core& core : cores) {
    const bool shows = !core.rested && measured > 1 && acked > 0;
    const uint64_t aim = shows ? shares * core.acked / acked : kShares / count_;
    const uint64_t weight = shows ? kAdapting : kForgetting;
    core.share = static_cast<uint32_t>((core.share * (weight - 1) + aim) / weight);
    sum += core.share = std::max(core.share, kLeastShare);
    core.acked = 0;
    core.rested = core.writes == 0;
  }
  for (Core& core : cores) core.share = static_cast<uint32_t>(core.share * uint64_t{kShares} / sum);
}

uint32_t FlowDivision::part(uint32_t index) const {
  uint64_t shares = 0;
  for (const Core& core : std::span(cores_).first(count_)) {
    if (core.writes > 0) shares += core.share;
  }
  return static_cast<uint32_t>(uint64_t{kWhole} * cores_[index].share / shares);
}

FlowLimits FlowDivision::limits(uint32_t index, const FlowLimits& flow) const {
  const uint32_t part = this->part(index);
  FlowLimits limits = flow;
  if (part == kWhole && flow.credit == kNoCredit) return limits;
  limits.rate = Rate::from_bps(scale(flow.rate.bps(), part, kWhole));
  limits.window = scale(flow.window, part, kWhole);
  // 0 would mean no limit.
  if (flow.burst != 0) limits.burst = std::max<Bytes>(scale(flow.burst, part, kWhole), 1);
  if (part != kWhole) limits.grid = {};  // the grid is for packets at the whole rate
  if (flow.credit == kNoCredit) return limits;
  Bytes sent = 0;
  for (const Core& core : cores_) sent += core.sent;
  const Bytes left = flow.credit > sent ? flow.credit - sent : 0;
  limits.credit = cores_[index].sent + scale(left, part, kWhole);
  return limits;
}

}  // namespace pacecar

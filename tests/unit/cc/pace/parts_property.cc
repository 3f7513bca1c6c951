// The parts of `pace` that divide links, against brute-force references.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>
#include <array>
#include <numeric>
#include <set>
#include <utility>
#include <vector>

#include "cc/pace/link_estimate.h"
#include "cc/pace/link_share.h"
#include "cc/pace/slot_map.h"
#include "cc/pace/water_fill.h"
#include "transport/base/prng.h"

namespace pacecar::parts_property {
namespace {

struct Member {
  Rate limit;
  uint32_t weight = 1;
  double bps() const { return static_cast<double>(limit.bps()); }
  double level() const { return bps() / weight; }
};

// The sum of all rates at `level`.
double sum_at(const std::vector<Member>& members, double level) {
  double sum = 0;
  for (const Member& m : members) sum += std::min(m.bps(), level * m.weight);
  return sum;
}

// The level at which the rates add up to `capacity`; infinity when all limits fit.
double exact_level(std::vector<Member> members, double capacity) {
  std::ranges::sort(members, {}, &Member::level);
  double weight = 0;
  for (const Member& m : members) weight += m.weight;
  for (const Member& m : members) {
    if (m.level() * weight > capacity) return capacity / weight;
    capacity -= m.bps();
    weight -= m.weight;
  }
  return WaterFill::kNoLevel;
}

Rate any_limit() {
  return Rate::from_bps(*rc::gen::inRange<uint64_t>(1, 1000) *
                        *rc::gen::element<uint64_t>(1000, 1'000'000, 1'000'000'000));
}
uint32_t any_weight() { return *rc::gen::element<uint32_t>(1, 1, 2, 3, 64); }

RC_GTEST_PROP(CcPaceProperty, WaterFillIsMaxMin, ()) {
  constexpr double kLeastLevel = 2e6;  // one class holds all limits below 1 Mb/s
  WaterFill fill;
  std::vector<Member> members;
  for (int i = *rc::gen::inRange(0, 100); i > 0; --i) {
    if (!members.empty() && *rc::gen::inRange(0, 3) == 0) {
      const auto which = *rc::gen::inRange<size_t>(0, members.size());
      fill.remove(members[which].limit, members[which].weight);
      members[which] = members.back();
      members.pop_back();
    } else {
      members.push_back({any_limit(), any_weight()});
      fill.add(members.back().limit, members.back().weight);
    }
    const double limits = sum_at(members, WaterFill::kNoLevel);
    RC_ASSERT(std::abs(fill.limits() - limits) <= 1.0);
    const double capacity = limits * *rc::gen::inRange(1, 120) / 100.0;
    const double exact = exact_level(members, capacity);
    const double level = fill.level(capacity);
    RC_ASSERT((level == WaterFill::kNoLevel) == (exact == WaterFill::kNoLevel));
    if (level == WaterFill::kNoLevel || exact < kLeastLevel) continue;
    RC_ASSERT(sum_at(members, level) <= capacity * (1 + 1e-9));
    RC_ASSERT(sum_at(members, level) >= capacity * 0.989);
    RC_ASSERT(level <= exact * (1 + 1e-9));
  }
}

RC_GTEST_PROP(CcPaceProperty, RemovedMembersDoNotAffectWaterFill, ()) {
  WaterFill fill;
  WaterFill fresh;
  const Member stays{any_limit(), any_weight()};
  fill.add(stays.limit, stays.weight);
  fresh.add(stays.limit, stays.weight);
  Prng random(*rc::gen::arbitrary<uint64_t>());
  for (int rounds = 0; rounds < 20; ++rounds) {
    std::vector<Member> members(500);
    for (Member& m : members) {
      m = {Rate::from_bps(random.next_u64() >> (22 + random.below(20))),
           static_cast<uint32_t>(1 + random.below(64))};
      fill.add(m.limit, m.weight);
    }
    for (const Member& m : members) fill.remove(m.limit, m.weight);
  }
  RC_ASSERT(fill.weights() == fresh.weights());
  RC_ASSERT(fill.limits() == fresh.limits());
  for (const double part : {0.01, 0.5, 0.99, 1.0, 2.0}) {
    RC_ASSERT(fill.level(fill.limits() * part) == fresh.level(fresh.limits() * part));
  }
}

RC_GTEST_PROP(CcPaceProperty, LowestFreeSlotIsTaken, ()) {
  const auto slots = *rc::gen::inRange<uint32_t>(1, 200);
  SlotMap map(slots);
  std::set<uint32_t> free;
  for (uint32_t slot = 0; slot < slots; ++slot) free.insert(slot);
  for (int i = *rc::gen::inRange(0, 300); i > 0; --i) {
    const auto slot = *rc::gen::inRange<uint32_t>(0, slots);
    if (free.contains(slot)) {
      RC_ASSERT(map.is_free(slot));
      if (*rc::gen::arbitrary<bool>()) {
        map.take(slot);
        free.erase(slot);
      } else {
        RC_ASSERT(map.take_lowest() == *free.begin());
        free.erase(free.begin());
      }
    } else {
      RC_ASSERT(!map.is_free(slot));
      map.release(slot);
      free.insert(slot);
    }
  }
}

class LinkShareModel {
 public:
  static constexpr uint32_t kFlows = 12;
  static constexpr double kLine = 400e9;
  static constexpr double kTolerance = 1.0 / 64;

  void step() {
    const auto flow = *rc::gen::inRange<uint32_t>(0, kFlows);
    if (*rc::gen::inRange(0, 3) == 0) {
      queued_[flow] = *rc::gen::arbitrary<bool>();
      share_.set_queued(flow, queued_[flow]);
      last_shares_[flow] = share_.share(flow);
      return;
    }
    Member& m = members_[flow];
    m.limit = *rc::gen::inRange(0, 3) == 0
                  ? Rate()
                  : Rate::from_bps(*rc::gen::inRange<uint64_t>(1, 401) * 1'000'000'000);
    m.weight = any_weight();
    share_.set(flow, m.limit, m.weight);
    // A flow that changes its own limit is not in poll_changed: it asks for its share.
    last_shares_[flow] = share_.share(flow);
  }

  void check() {
    std::array<uint32_t, 3> changed;
    for (size_t count = 3; count == 3;) {
      count = share_.poll_changed(changed);
      for (size_t i = 0; i < count; ++i) {
        RC_ASSERT(members_[changed[i]].limit > Rate());
        last_shares_[changed[i]] = share_.share(changed[i]);
      }
    }
    std::vector<Member> active;
    for (const Member& m : members_) {
      if (m.limit > Rate()) active.push_back(m);
    }
    RC_ASSERT(share_.active() == active.size());
    const double wanted = std::min(sum_at(active, WaterFill::kNoLevel), kLine);
    double sum = 0;
    for (uint32_t flow = 0; flow < kFlows; ++flow) {
      const Member& m = members_[flow];
      if (m.limit == Rate()) continue;
      sum += std::min(share_.share(flow), m.bps());
      check_usable(flow);
      // A single flow gets no change from poll_changed.
      if (active.size() == 1) continue;
      const double used = std::min(share_.share(flow), kLine);
      RC_ASSERT(std::abs(std::min(last_shares_[flow], kLine) - used) <= 2 * kTolerance * kLine);
    }
    RC_ASSERT(sum <= wanted * (1 + 1e-9));
    RC_ASSERT(sum >= wanted * 0.989);
  }

 private:
  // The usable rate is what the flow would get with the line as its limit; at most its limit and
  // what all limits leave of the line, where they leave something.
  void check_usable(uint32_t flow) {
    double left = kLine;
    std::vector<Member> wishing;
    for (uint32_t f = 0; f < kFlows; ++f) {
      if (members_[f].limit == Rate()) continue;
      left -= members_[f].bps();
      wishing.push_back(members_[f]);
      if (f == flow) wishing.back().limit = Rate::from_gbps(400);
    }
    const double exact = std::min(exact_level(wishing, kLine) * members_[flow].weight, kLine);
    const double least = left >= 0 ? std::min(exact, members_[flow].bps() + left) : exact;
    RC_ASSERT(share_.usable(flow) >= 0.988 * least);
    RC_ASSERT(queued_[flow] || share_.usable(flow) <= std::max(kLine, share_.share(flow)));
  }

  LinkShare share_{{.line_rate = Rate::from_gbps(400)}, kFlows, kTolerance};
  std::array<Member, kFlows> members_{};
  std::array<bool, kFlows> queued_{};
  std::array<double, kFlows> last_shares_{};
};

// Flows that change one by one get the same shares as flows set all at once.
RC_GTEST_PROP(CcPaceProperty, LinkShareIsMaxMinUpToTheLimits, ()) {
  LinkShareModel model;
  for (int i = *rc::gen::inRange(0, 60); i > 0; --i) {
    model.step();
    if (*rc::gen::arbitrary<bool>()) model.check();
  }
  model.check();
}

// For any arrivals and delays, what can be granted is at most the line and never zero.
RC_GTEST_PROP(CcPaceProperty, AvailableRateStaysInBounds, ()) {
  const PaceConstants constants;
  const FlowEnvironment link{
      .line_rate = Rate::from_gbps(*rc::gen::inRange<uint64_t>(1, 800)),
      .mtu = 4096,
      .overhead = 64,
      .jitter = Duration::from_ns(*rc::gen::inRange(0, 10'000)),
      .first_rate = Rate::from_gbps(*rc::gen::inRange<uint64_t>(0, 10)),
  };
  const Duration round_trip = Duration::from_ns(*rc::gen::inRange<int64_t>(1, 1'000'000));
  LinkEstimate estimate(link, round_trip, constants);
  Instant now = Instant::from_ns(*rc::gen::inRange<int64_t>(0, 1'000'000'000'000));
  for (int i = *rc::gen::inRange(0, 200); i > 0; --i) {
    now = now + Duration::from_ns(*rc::gen::element<int64_t>(0, 1, 100, 10'000, 1'000'000'000));
    estimate.on_arrival(
        now, *rc::gen::element<Bytes>(0, 64, 4160, 1'000'000'000), *rc::gen::arbitrary<bool>(),
        *rc::gen::element(Duration(), Duration::from_us(5), Duration::from_s(2), Duration::max()),
        *rc::gen::inRange<uint32_t>(0, 100));
    const size_t flows = *rc::gen::inRange<size_t>(0, 5000);
    RC_ASSERT(estimate.available(flows) <= estimate.line());
    RC_ASSERT(estimate.available(flows) >= 0.5 * constants.least_share * estimate.line());
  }
}

}  // namespace
}  // namespace pacecar::parts_property

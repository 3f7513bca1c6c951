// Processes of a host that divide a link, against weighted max-min, with random claims and a random
// order of polls.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <numeric>

#include "tests/support/max_min.h"
#include "transport/share/division.h"
#include "transport/share/share_link.h"

namespace pacecar::share_link_property {
namespace {

constexpr Rate kLink = Rate::from_gbps(400);

LinkClaim any_claim() {
  const auto demand =
      *rc::gen::weightedOneOf<uint64_t>({{1, rc::gen::just(uint64_t{0})},
                                         {2, rc::gen::just(kLink.bps())},
                                         {4, rc::gen::inRange<uint64_t>(1, kLink.bps())},
                                         {2, rc::gen::inRange<uint64_t>(1, kLink.bps() / 64)}});
  return {.demand = Rate::from_bps(demand),
          .weight = *rc::gen::inRange<uint32_t>(1, 65),
          .ready = *rc::gen::arbitrary<bool>()};
}

std::vector<double> reference(const std::vector<LinkClaim>& claims) {
  std::vector<test::MaxMinFlow> flows;
  std::vector<double> capacities = {static_cast<double>(kLink.bps())};
  for (const LinkClaim& claim : claims) {
    capacities.push_back(std::max(static_cast<double>(claim.demand.bps()), 1.0));
    flows.push_back({.source = 0,
                     .destination = static_cast<uint32_t>(capacities.size() - 1),
                     .weight = static_cast<double>(claim.weight)});
  }
  return test::max_min_rates(flows, capacities);
}

RC_GTEST_PROP(Share, PartsConvergeToMaxMinAndNeverExceedTheLink, ()) {
  const auto count = *rc::gen::inRange<size_t>(1, 13);
  const auto table = std::make_unique<ShareTable>();
  std::vector<std::unique_ptr<ShareProcess>> processes;
  std::vector<std::unique_ptr<ShareMember>> members;
  for (size_t i = 0; i < count; ++i) {
    processes.push_back(std::make_unique<ShareProcess>(i + 1));
    members.push_back(std::make_unique<ShareMember>(*table, *processes[i], "", kLink));
  }
  std::vector<LinkClaim> claims(count);
  Instant now = Instant::from_ns(1'000'000'000);
  const uint64_t floors = count * (kLink.bps() / BasicShareLink<std::atomic<uint64_t>>::kLeastPart);
  const auto poll = [&](size_t i) {
    now = now + Duration::from_us(1);
    members[i]->outgoing().claim(now, claims[i]);
    uint64_t sum = 0;
    for (size_t j = 0; j < count; ++j) {
      const bool active = claims[j].demand.bps() > 0;
      if (active) sum += members[j]->outgoing().part().bps();
    }
    RC_ASSERT(sum <= kLink.bps() + floors);
  };
  for (int change = 0; change < 4; ++change) {
    // A process that changes its claim polls next. Until then its part is that of the old claim.
    const auto changing =
        *rc::gen::container<std::vector<size_t>>(rc::gen::inRange<size_t>(0, count));
    for (const size_t i : changing) {
      claims[i] = any_claim();
      poll(i);
    }
    for (int round = 0; round < 4; ++round) {
      std::vector<size_t> order(count);
      std::iota(order.begin(), order.end(), 0);
      const auto first = *rc::gen::inRange<size_t>(0, count);
      std::rotate(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(first), order.end());
      for (const size_t i : order) poll(i);
    }
    const std::vector<double> fair = reference(claims);
    for (size_t i = 0; i < count; ++i) {
      if (claims[i].demand.bps() == 0) continue;
      const auto part = static_cast<double>(members[i]->outgoing().part().bps());
      RC_ASSERT(part >= fair[i] * (1 - 1.0 / 32) - 64);
    }
  }
}

RC_GTEST_PROP(Share, DivisionIsMaxMin, ()) {
  const auto count = *rc::gen::inRange<size_t>(1, kShareSlots + 1);
  std::vector<LinkClaim> claims;
  std::vector<ShareOfLink> shares;
  for (size_t i = 0; i < count; ++i) {
    claims.push_back(any_claim());
    shares.push_back({.demand = claims[i].demand.bps(), .weight = claims[i].weight});
  }
  divide_link(kLink.bps(), shares);
  const std::vector<double> fair = reference(claims);
  uint64_t sum = 0;
  uint64_t demands = 0;
  for (const LinkClaim& claim : claims) demands += claim.demand.bps();
  for (size_t i = 0; i < count; ++i) {
    sum += shares[i].fair;
    RC_ASSERT(static_cast<double>(shares[i].fair) >= fair[i] * (1 - 1e-9) - 2);
    if (demands > kLink.bps()) RC_ASSERT(shares[i].fair <= claims[i].demand.bps());
  }
  RC_ASSERT(sum <= kLink.bps());
  if (demands > 0) RC_ASSERT(sum + count >= kLink.bps());
}

}  // namespace
}  // namespace pacecar::share_link_property

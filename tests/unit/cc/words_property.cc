// Grant and demand words keep their fields, and any word decodes.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <algorithm>

#include "cc/credit.h"
#include "cc/grant_word.h"

namespace pacecar::words_property {
namespace {

uint64_t log_uniform(int most_bits) {
  return *rc::gen::arbitrary<uint64_t>() >> (64 - *rc::gen::inRange(1, most_bits + 1));
}

void check_rounded_down(uint64_t value, uint64_t decoded, double error) {
  RC_ASSERT(decoded <= value);
  RC_ASSERT(static_cast<double>(value - decoded) <= error * static_cast<double>(value));
}

RC_GTEST_PROP(CcWordProperty, GrantWordKeepsItsFields, ()) {
  const Grant in{.rate = Rate::from_bps(log_uniform(42)),
                 .guessed = *rc::gen::arbitrary<bool>(),
                 .validity = Duration::from_us(static_cast<int64_t>(log_uniform(33))),
                 .epoch = *rc::gen::arbitrary<uint16_t>()};
  const Grant out = wire::decode_grant(wire::encode_grant(in));
  check_rounded_down(in.rate.bps(), out.rate.bps(), 0x1p-18);
  RC_ASSERT(!out.is_credit);
  check_rounded_down(static_cast<uint64_t>(in.validity.ns()),
                     static_cast<uint64_t>(out.validity.ns()), 1.0 / 9);
  RC_ASSERT(out.guessed == in.guessed);
  RC_ASSERT(out.epoch == in.epoch);
}

// A phase that does not fit becomes the largest one. A grant that is not aligned has no phase, and
// a busy grant is not aligned.
RC_GTEST_PROP(CcWordProperty, GrantWordKeepsThePhase, ()) {
  Grant in{.rate = Rate::from_gbps(1)};
  in.phase = Duration::from_ns(*rc::gen::inRange<int64_t>(0, 2 * 65'533 * 64));
  in.aligned = *rc::gen::arbitrary<bool>();
  in.busy = *rc::gen::arbitrary<bool>();
  const Grant out = wire::decode_grant(wire::encode_grant(in));
  RC_ASSERT(out.busy == in.busy);
  RC_ASSERT(out.aligned == (in.aligned && !in.busy));
  const int64_t expected = std::min<int64_t>(in.phase.ns() / 64, 65'533) * 64;
  RC_ASSERT(out.phase.ns() == (out.aligned ? expected : 0));
}

RC_GTEST_PROP(CcWordProperty, DemandWordKeepsItsFields, ()) {
  const Demand in{.usable = Rate::from_bps(log_uniform(42)),
                  .wanted = log_uniform(50),
                  .epoch = *rc::gen::arbitrary<uint16_t>()};
  const Demand out = wire::decode_demand(wire::encode_demand(in));
  RC_ASSERT(!out.is_credit);
  check_rounded_down(in.usable.bps(), out.usable.bps(), 0x1p-11);
  RC_ASSERT((out.usable == Rate()) == (in.usable == Rate()));
  const auto more = static_cast<uint32_t>(out.wanted) - static_cast<uint32_t>(in.wanted);
  RC_ASSERT(more < kWantedUnit);
  RC_ASSERT(out.wanted < Bytes{1} << 32);
  RC_ASSERT(out.epoch == in.epoch);
}

// Any grant word decodes and encodes to itself. So does any demand word, but its unused bits become
// zero.
RC_GTEST_PROP(CcWordProperty, AnyWordDecodesAndEncodesBack, (uint64_t word)) {
  RC_ASSERT(wire::encode_grant(wire::decode_grant(word)) == word);
  const Demand demand = wire::decode_demand(word);
  const uint64_t unused = demand.is_credit ? 0 : uint64_t{0xFF} << 40;
  RC_ASSERT(wire::encode_demand(demand) == (word & ~unused));
}

RC_GTEST_PROP(CcWordProperty, CreditWordsKeepTheCountModulo24Bits, ()) {
  const uint64_t units = log_uniform(58);
  Grant grant;
  grant.is_credit = true;
  grant.credit = units * kCreditUnit + *rc::gen::inRange<Bytes>(0, kCreditUnit);
  const Grant granted = wire::decode_grant(wire::encode_grant(grant));
  RC_ASSERT(granted.is_credit);
  RC_ASSERT(credit_ahead(granted.credit, units) == 0);
  Demand demand;
  demand.is_credit = true;
  demand.credit = grant.credit;
  const Demand wished = wire::decode_demand(wire::encode_demand(demand));
  RC_ASSERT(wished.is_credit);
  RC_ASSERT(credit_ahead(wished.credit, units) == (grant.credit % kCreditUnit == 0 ? 0 : 1));
}

TEST(CcDemandWord, OversizedTotalLeavesOtherFieldsUnchanged) {
  for (const Bytes wanted : {~Bytes{0}, Bytes{1} << 32, (Bytes{1} << 40) - kWantedUnit}) {
    const Demand out = wire::decode_demand(wire::encode_demand({.wanted = wanted, .epoch = 7}));
    EXPECT_EQ(out.usable, Rate());
    EXPECT_EQ(out.epoch, 7);
    EXPECT_LT(static_cast<uint32_t>(out.wanted - wanted), kWantedUnit);
  }
}

TEST(CcGrantWord, OutOfRangeValuesSaturate) {
  const Grant out = wire::decode_grant(wire::encode_grant({.rate = Rate::from_bps(UINT64_MAX),
                                                           .phase = Duration::max(),
                                                           .aligned = true,
                                                           .validity = Duration::max(),
                                                           .epoch = 0xFFFF}));
  EXPECT_EQ(out.rate.bps(), uint64_t{(1U << 19) - 2} << 30);
  EXPECT_FALSE(out.is_credit);
  EXPECT_EQ(out.phase.ns(), 0xFFFD * 64);
  EXPECT_EQ(out.validity.ns(), (int64_t{15} << 30) * 1000);
  const Grant low = wire::decode_grant(wire::encode_grant({.rate = Rate(),
                                                           .phase = Duration::from_ns(-1),
                                                           .aligned = true,
                                                           .validity = Duration::from_ns(-5000)}));
  EXPECT_EQ(low.phase, Duration());
  EXPECT_EQ(low.validity, Duration());
}

}  // namespace
}  // namespace pacecar::words_property

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <vector>

#include "cc/equal_share.h"

namespace pacecar {
namespace {

using ::testing::DoubleNear;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::UnorderedElementsAre;

constexpr Rate kLine = Rate::from_gbps(100);

// One allocator, a clock that moves 1 us before each poll, and grants as "flow:rate in Gb/s".
class CcEqualShare : public ::testing::Test {
 protected:
  CcEqualShare() {
    for (uint32_t flow = 0; flow < 4; ++flow) allocator_.add_flow(now_, flow);
  }

  std::vector<std::pair<uint32_t, double>> poll(Duration wait = Duration::from_us(1)) {
    now_ = now_ + wait;
    std::array<GrantUpdate, 16> updates;
    const size_t count = allocator_.poll_grants(now_, updates);
    std::vector<std::pair<uint32_t, double>> result;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(updates[i].grant.validity, EqualShare::kValidity);
      EXPECT_EQ(updates[i].grant.rate, allocator_.grant(updates[i].flow).rate);
      result.emplace_back(updates[i].flow, updates[i].grant.rate.gbps());
    }
    return result;
  }
  void post(uint32_t flow, Bytes bytes = 1000) { allocator_.on_posted(now_, flow, bytes); }
  void finish(uint32_t flow, Bytes bytes = 1000) { allocator_.on_finished(now_, flow, bytes); }
  void demand(uint32_t flow, Bytes backlog) {
    allocator_.on_demand(now_, flow, {.usable = kLine, .backlog = backlog, .epoch = 0});
  }

  Instant now_ = Instant::from_ns(5000);
  EqualShare allocator_{kLine, 4};
};

TEST_F(CcEqualShare, CutsComeBeforeTheRaise) {
  EXPECT_THAT(poll(), IsEmpty());
  post(0);
  EXPECT_THAT(poll(), ElementsAre(std::pair(0, 100.0)));
  post(1);
  EXPECT_THAT(poll(), ElementsAre(std::pair(0, 49.0), std::pair(1, 49.0)));
  post(2);
  const auto grants = poll();
  ASSERT_EQ(grants.size(), 3U);
  EXPECT_EQ(grants.back().first, 2U) << "the newcomer last";
  EXPECT_NEAR(grants.back().second, 98.0 / 3, 1e-6);
  finish(0);
  finish(2);
  EXPECT_THAT(poll(), ElementsAre(std::pair(1, 100.0)));
  EXPECT_THAT(poll(), IsEmpty());
}

TEST_F(CcEqualShare, ActiveSetFollowsPostedBytesAndAnnouncements) {
  post(0, 3000);
  post(1);
  poll();
  finish(0, 2000);
  EXPECT_THAT(poll(), IsEmpty()) << "still 1000 bytes to come";
  demand(0, 0);
  EXPECT_THAT(poll(), ElementsAre(std::pair(1, 100.0))) << "posted, but its sender has nothing";
  demand(0, 1);
  EXPECT_THAT(poll(), ElementsAre(std::pair(1, 49.0)))
      << "flow 0 kept its grant and needs no new one";
  finish(0, 9999);
  EXPECT_THAT(poll(), ElementsAre(std::pair(1, 100.0))) << "more finished than posted is nothing";
  post(0);
  allocator_.remove_flow(now_, 1);
  EXPECT_THAT(poll(), ElementsAre(std::pair(0, 100.0)));
}

TEST_F(CcEqualShare, OneRecomputationPerMicrosecond) {
  post(0);
  poll();
  post(1);
  EXPECT_THAT(poll(Duration::from_ns(999)), IsEmpty());
  EXPECT_EQ(allocator_.next_deadline(), now_ + Duration::from_ns(1));
  EXPECT_THAT(poll(Duration::from_ns(1)),
              UnorderedElementsAre(std::pair(0, 49.0), std::pair(1, 49.0)));
}

TEST_F(CcEqualShare, NoRaiseToAShareThatIsOutOfDate) {
  for (uint32_t flow = 0; flow < 3; ++flow) post(flow);
  poll();
  finish(2);
  now_ = now_ + Duration::from_us(1);
  std::array<GrantUpdate, 1> one;
  ASSERT_EQ(allocator_.poll_grants(now_, one), 1U) << "one of the two raises to 49 Gb/s";
  post(2);
  EXPECT_EQ(allocator_.poll_grants(now_, one), 0U) << "the other would overfill the link";
  EXPECT_THAT(poll(), ElementsAre(Pair(one[0].flow, DoubleNear(98.0 / 3, 1e-6))));
}

TEST_F(CcEqualShare, RepeatsBeforeValidityEndsWithANewEpoch) {
  post(0);
  poll();
  const uint16_t epoch = allocator_.grant(0).epoch;
  const Instant sent = now_;
  ASSERT_EQ(allocator_.next_deadline(), sent + EqualShare::kValidity / 4);
  EXPECT_THAT(poll(EqualShare::kRepeatInterval - Duration::from_ns(1)), IsEmpty());
  EXPECT_THAT(poll(Duration::from_ns(1)), ElementsAre(std::pair(0, 100.0)));
  EXPECT_EQ(allocator_.grant(0).epoch, epoch + 1);
  finish(0);
  EXPECT_THAT(poll(EqualShare::kValidity), IsEmpty()) << "an idle flow needs no repeats";
  EXPECT_EQ(allocator_.next_deadline(), Instant::never());
}

TEST_F(CcEqualShare, GrantForTheFirstCtsIsTheShareToCome) {
  post(0);
  poll();
  EXPECT_EQ(allocator_.grant(1).rate, Rate::from_gbps(49));
  post(1);
  EXPECT_EQ(allocator_.grant(1).rate, Rate::from_gbps(49));
  EXPECT_EQ(allocator_.grant(0).rate, Rate::from_gbps(49))
      << "its cut is due: no CTS promises more";
}

TEST_F(CcEqualShare, SmallSpansGetTheRestLater) {
  for (uint32_t flow = 0; flow < 4; ++flow) post(flow);
  std::array<GrantUpdate, 3> updates;
  EXPECT_EQ(allocator_.poll_grants(now_, updates), 3U);
  EXPECT_LE(allocator_.next_deadline(), now_);
  EXPECT_EQ(allocator_.poll_grants(now_, updates), 1U);
  EXPECT_EQ(allocator_.poll_grants(now_, updates), 0U);
  EXPECT_GT(allocator_.next_deadline(), now_);
}

}  // namespace
}  // namespace pacecar

#include "transport/sim/sim_link.h"

#include <gtest/gtest.h>

#include <cmath>

namespace pacecar {
namespace {

constexpr Duration kDelay = Duration::from_ns(777);

SimLinkConfig config(uint64_t bps, Bytes queue_bytes = 1ULL << 40U) {
  return SimLinkConfig{.rate = Rate::from_bps(bps), .delay = kDelay, .queue_bytes = queue_bytes};
}

// The reference is one division for the whole burst: nothing accumulates.
Instant exact_arrival(Bytes bytes, uint64_t bps) {
  const auto bit_ns = static_cast<unsigned __int128>(bytes) * 8'000'000'000U;
  return Instant::from_ns(static_cast<int64_t>((bit_ns + bps - 1) / bps)) + kDelay;
}

class SerialisationTest : public testing::TestWithParam<uint64_t> {};

TEST_P(SerialisationTest, IsExactToTheNanosecondForABurst) {
  const uint64_t bps = GetParam();
  SimLink link(config(bps));
  Bytes total = 0;
  for (Bytes i = 0; i < 10'000; ++i) {
    const Bytes size = 64 + (i * 37) % 4096;
    total += size;
    const SimLink::Offer offer = link.offer(size, Instant());
    ASSERT_TRUE(offer.accepted);
    ASSERT_EQ(offer.arrival, exact_arrival(total, bps)) << "packet " << i;
  }
}

INSTANTIATE_TEST_SUITE_P(OddRates, SerialisationTest,
                         testing::Values(1, 7, 999'999'937, 3'141'592'653, 100'000'000'000,
                                         399'999'999'979, 1'600'000'000'000));

TEST(SimLink, StartsAgainAfterAnIdleTime) {
  SimLink link(config(8'000'000'000));  // one byte per nanosecond
  link.offer(100, Instant());
  EXPECT_EQ(link.offer(50, Instant::from_ns(1000)).arrival, Instant::from_ns(1050) + kDelay);
}

TEST(SimLink, BacklogFallsAtTheRate) {
  SimLink link(config(8'000'000'000));
  link.offer(100, Instant());
  link.offer(100, Instant());
  EXPECT_EQ(link.backlog(Instant()), 200U);
  EXPECT_EQ(link.backlog(Instant::from_ns(150)), 50U);
  EXPECT_EQ(link.backlog(Instant::from_ns(200)), 0U);
  EXPECT_EQ(link.backlog(Instant::from_ns(5000)), 0U);
}

TEST(SimLink, RefusesBeyondItsBound) {
  SimLink link(config(8'000'000'000, 250));
  EXPECT_TRUE(link.offer(100, Instant()).accepted);
  EXPECT_TRUE(link.offer(150, Instant()).accepted);
  EXPECT_FALSE(link.offer(1, Instant()).accepted);
  EXPECT_TRUE(link.offer(1, Instant::from_ns(1)).accepted);
}

TEST(SimLink, RoomComesExactlyWhenPromised) {
  for (const uint64_t bps : {7'000'000'000ULL, 999'999'937ULL, 400'000'000'000ULL}) {
    SimLink link(config(bps, 10'000));
    for (int i = 0; i < 9; ++i) link.offer(1111, Instant());
    for (const Bytes size : {64U, 1111U, 9999U}) {
      const Instant room = link.room_at(size);
      SimLink early = link;
      EXPECT_FALSE(early.offer(size, room - Duration::from_ns(1)).accepted) << bps << " " << size;
      SimLink in_time = link;
      EXPECT_TRUE(in_time.offer(size, room).accepted) << bps << " " << size;
    }
  }
}

TEST(SimLink, MarksAboveItsThresholdOnly) {
  SimLinkConfig marking = config(8'000'000'000);
  marking.ecn_threshold_bytes = 300;
  SimLink link(marking);
  EXPECT_FALSE(link.offer(150, Instant()).marked);
  EXPECT_FALSE(link.offer(150, Instant()).marked);
  EXPECT_TRUE(link.offer(1, Instant()).marked);
  EXPECT_FALSE(link.offer(100, Instant::from_ns(200)).marked);
}

}  // namespace
}  // namespace pacecar

// The parts of bonded connections: lists and notes of lanes, the split of a message, the detection
// of lost lanes.
#include "transport/api/bond/lanes.h"

#include <gtest/gtest.h>

#include <bit>
#include <numeric>
#include <optional>

#include "transport/api/bond/lane_split.h"
#include "transport/api/lane_list.h"
#include "transport/base/prng.h"

namespace pacecar::lanes_test {
namespace {

Instant at_ms(int64_t ms) { return Instant() + Duration::from_ms(ms); }

TEST(LaneList, OnlyPackedLanesAreUnpacked) {
  const std::vector<Blob> lanes{{1, 2, 3}, {}, Blob(400, 7)};
  const Blob packed = pack_lanes(lanes);
  EXPECT_EQ(unpack_lanes(packed).value(), lanes);
  for (size_t size = 0; size < packed.size(); ++size) {
    EXPECT_FALSE(unpack_lanes(std::span(packed).first(size))) << size;
  }
  Blob longer = packed;
  longer.push_back(0);
  EXPECT_FALSE(unpack_lanes(longer));
  for (const uint8_t count : {0, 2, 4, 9, 255}) {
    Blob other = packed;
    other[0] = count;
    EXPECT_FALSE(unpack_lanes(other)) << int{count};
  }
}

TEST(LaneNote, PartlyWrittenNoteIsNotRead) {
  const NoteWords old = seal({.epoch = 9, .next = 5, .done = {1, 2, 3, 4}, .number = 3});
  const NoteWords next = seal({.epoch = 10, .next = 6, .done = {5, 6, 7, 8}, .number = 4});
  EXPECT_EQ(read_note(old)->epoch, 9U);
  for (unsigned there = 1; there < 255; ++there) {  // any subset of the next note's words
    NoteWords place = old;
    for (size_t i = 0; i < place.size(); ++i) {
      if ((there >> i & 1) != 0) place[i] = next[i];
    }
    EXPECT_FALSE(read_note(place)) << there;
  }
  EXPECT_EQ(read_note(next)->epoch, 10U);
  EXPECT_EQ(read_note({})->number, 0U);
}

TEST(LaneNote, SlotsOlderThanTheNoteAreDone) {
  LaneNote resume{.next = 1000, .done = {~0ULL, ~0ULL, ~0ULL, ~0ULL}};
  resume.done[(800 % kCtsSlots) / 64] &= ~(1ULL << 800 % 64);
  EXPECT_FALSE(slot_done(resume, 800));
  EXPECT_TRUE(slot_done(resume, 799));
  EXPECT_TRUE(slot_done(resume, 999));
  EXPECT_TRUE(slot_done(resume, 800 - kCtsSlots));  // the same bit, one round of slots earlier
  EXPECT_FALSE(slot_done(resume, 1000));
  EXPECT_FALSE(slot_done(resume, ~0ULL));
}

LaneMeter lane(double rate, Bytes outstanding) {
  LaneMeter meter;
  constexpr Bytes kWork = Bytes{8} << 20;
  meter.on_posted(kWork, Instant());
  meter.on_done(kWork, Instant() + Duration::from_ns(static_cast<int64_t>(8e9 * (1 << 20) / rate)));
  meter.on_posted(outstanding, Instant());
  return meter;
}

TEST(LaneSplit, FasterLanesGetMore) {
  const std::vector lanes{lane(1e9, 0), lane(3e9, 0)};
  const auto parts = split(Bytes{4} << 20, lanes, 0b11);
  EXPECT_NEAR(static_cast<double>(parts[0]), 1 << 20, 8192);
  EXPECT_NEAR(static_cast<double>(parts[1]), 3 << 20, 8192);
}

TEST(LaneSplit, BusyLanesGetLess) {
  const std::vector lanes{lane(1e9, 1 << 20), lane(1e9, 0), lane(1e9, 16 << 20)};
  const auto parts = split(Bytes{3} << 20, lanes, 0b111);
  EXPECT_NEAR(static_cast<double>(parts[0]), 1 << 20, 8192);
  EXPECT_NEAR(static_cast<double>(parts[1]), 2 << 20, 8192);
  EXPECT_EQ(parts[2], 0U);
}

TEST(LaneSplit, SmallMessageTakesTheLaneThatIsFreeFirst) {
  const std::vector lanes{lane(1e9, 5000), lane(1e9, 100), lane(1e9, 0)};
  EXPECT_EQ(split(8000, lanes, 0b011)[1], 8000U);
  EXPECT_EQ(split(8000, lanes, 0b111)[2], 8000U);
}

// Lanes that are slow or have carried nothing yet get a part, so that their rate is measured.
TEST(LaneSplit, EveryLaneGetsAPart) {
  const std::vector lanes{LaneMeter(), lane(1e9, 0), lane(1e6, 0)};
  const auto parts = split(Bytes{16} << 20, lanes, 0b111);
  for (size_t i = 0; i < lanes.size(); ++i) EXPECT_GT(parts[i], 0U) << i;
}

TEST(LaneSplit, PartsCoverTheMessageAndBeginAtPages) {
  Prng random(1);
  for (int turn = 0; turn < 2000; ++turn) {
    std::vector<LaneMeter> lanes;
    const size_t count = 1 + random.below(kMaxLanes);
    for (size_t i = 0; i < count; ++i) {
      lanes.push_back(lane(1e6 * static_cast<double>(1 + random.below(100'000)),
                           random.below(2) * random.below(1 << 24)));
    }
    const auto usable = static_cast<LaneMask>(1 + random.below((1U << count) - 1));
    const Bytes size = random.below(1ULL << (1 + random.below(30)));
    const auto parts = split(size, lanes, usable);
    EXPECT_EQ(std::accumulate(parts.begin(), parts.end(), Bytes{0}), size);
    Bytes offset = 0;
    for (size_t i = 0; i < kMaxLanes; ++i) {
      EXPECT_TRUE((usable & bit_of(i)) != 0 || parts[i] == 0);
      EXPECT_TRUE(parts[i] == 0 || offset % 4096 == 0);
      offset += parts[i];
    }
  }
}

// Lane 1 is alive every 10 ms from `first` to `last`, while lane 0 waits. When lane 0 is lost.
std::optional<int64_t> lost_at(LaneWatch& watch, int64_t first, int64_t last) {
  for (int64_t ms = first; ms <= last; ms += 10) {
    EXPECT_FALSE(watch.update(1, {.waits = true, .life = static_cast<uint64_t>(ms)}, at_ms(ms)));
    if (watch.update(0, {.waits = true, .life = 1}, at_ms(ms))) return ms;
  }
  return {};
}

TEST(LaneWatch, SilentLaneIsLostWhileAnotherIsAlive) {
  LaneWatch watch(Duration::from_ms(100));
  EXPECT_FALSE(watch.update(0, {.waits = true, .life = 1}, at_ms(1)));
  EXPECT_EQ(lost_at(watch, 10, 500), 110);
}

TEST(LaneWatch, IdleLaneIsNotLost) {
  LaneWatch watch(Duration::from_ms(100));
  for (int64_t ms = 1; ms < 1000; ms += 10) {
    EXPECT_FALSE(watch.update(0, {.waits = false, .life = 1}, at_ms(ms)));
    EXPECT_FALSE(watch.update(1, {.waits = true, .life = static_cast<uint64_t>(ms)}, at_ms(ms)));
  }
}

// If the other lanes have nothing to acknowledge, they get probe writes.
TEST(LaneWatch, SilentLaneIsLostWhileOthersAreIdle) {
  LaneWatch watch(Duration::from_ms(100));
  EXPECT_FALSE(watch.update(0, {.waits = true, .life = 1}, at_ms(1000)));
  EXPECT_FALSE(watch.should_probe(at_ms(1024)));
  uint64_t life = 1;
  int64_t ms = 1025;
  for (bool lost = false; !lost; ms += 25) {
    ASSERT_LT(ms, 1500);
    EXPECT_TRUE(watch.should_probe(at_ms(ms)));
    EXPECT_FALSE(watch.should_probe(at_ms(ms + 10)));  // reported once
    EXPECT_FALSE(watch.update(1, {.waits = false, .life = ++life}, at_ms(ms)));
    lost = watch.update(0, {.waits = true, .life = 1}, at_ms(ms));
  }
  EXPECT_EQ(ms, 1150);
}

// If all lanes are silent, the peer may have stopped.
TEST(LaneWatch, NoLaneIsLostWhileAllAreSilent) {
  LaneWatch watch(Duration::from_ms(100));
  for (int64_t ms = 1; ms < 1000; ms += 10) {
    EXPECT_FALSE(watch.update(0, {.waits = true, .life = 1}, at_ms(ms)));
    EXPECT_FALSE(watch.update(1, {.waits = true, .life = 1}, at_ms(ms)));
  }
  watch.on_peer_alive(at_ms(1000));
  EXPECT_EQ(lost_at(watch, 1010, 2000), 1100);
}

// Lane 1 may still have an acknowledgement of a peer that has paused by then.
TEST(LaneWatch, PauseOfASuspectPeerIsNotCountedAsSilence) {
  LaneWatch watch(Duration::from_ms(100));
  EXPECT_FALSE(watch.update(0, {.waits = true, .life = 1}, at_ms(1)));
  EXPECT_FALSE(lost_at(watch, 10, 50));
  for (int64_t ms = 50; ms < 1000; ms += 10) {
    EXPECT_FALSE(watch.update(1, {.waits = true, .life = 50}, at_ms(ms)));
    EXPECT_FALSE(watch.update(0, {.waits = true, .life = 1}, at_ms(ms)));
  }
  EXPECT_EQ(lost_at(watch, 1000, 2000), 1100);
}

// An acknowledgement on another lane from before this lane's write does not prove that the peer was
// alive after the write.
TEST(LaneWatch, EarlierAcknowledgementDoesNotMakeALaneLost) {
  LaneWatch watch(Duration::from_ms(100));
  EXPECT_FALSE(watch.update(1, {.waits = true, .life = 2}, at_ms(50)));  // the peer stops
  for (int64_t ms = 50; ms < 1000; ms += 50) {
    EXPECT_FALSE(watch.update(1, {.waits = true, .life = 2}, at_ms(ms)));
    EXPECT_FALSE(watch.update(0, {.waits = true, .life = 1}, at_ms(ms)));
  }
  EXPECT_EQ(lost_at(watch, 1000, 2000), 1100);
}

// Acknowledgements that arrived during our own pause have not been read yet.
TEST(LaneWatch, OurOwnPauseIsNotCountedAsSilence) {
  LaneWatch watch(Duration::from_ms(100));
  EXPECT_FALSE(watch.update(0, {.waits = true, .life = 1}, at_ms(1)));
  EXPECT_FALSE(lost_at(watch, 10, 20));
  EXPECT_EQ(lost_at(watch, 5000, 6000), 5090);
}

}  // namespace
}  // namespace pacecar::lanes_test

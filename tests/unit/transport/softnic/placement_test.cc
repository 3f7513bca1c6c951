// Payload that is received straight into the place where it probably goes: as fast as can be where
// that was right, and as if nothing had been predicted where it was wrong.
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>

#include "tests/support/scattered.h"
#include "transport/base/prng.h"

namespace pacecar::placement_test {
namespace {

using test::Datagram;
using test::deliver_joined;
using test::joined;
using test::SoftNicPair;
using test::TestMemory;

constexpr Bytes kPayload = 1024;
constexpr size_t kBurst = 8;
constexpr Bytes kLong = 256 * 1024;

SoftNicConfig config() {
  SoftNicConfig config = SoftNicPair::default_config();
  config.burst_bytes = kBurst * kPayload;
  config.window_packets = 1024;
  config.full_checksum = false;  // what is wrong in memory stays wrong
  config.security = Security::kAuth;
  config.in_place_bytes = kLong;
  return config;
}

// What no two packets have in common.
TestMemory& source(SoftNicPair& pair, size_t bytes, uint32_t seed) {
  TestMemory& memory = pair.memory(0, bytes, Access::kLocalRead);
  Prng random(seed);
  std::ranges::generate(memory.bytes, [&] { return static_cast<uint8_t>(random.next_u64()); });
  return memory;
}

// A write under way, of which the first packets have come, so that the next are predicted.
struct Started {
  explicit Started(const SoftNicConfig& how = config(), Bytes bytes = kLong)
      : pair(how), ends(pair.connect()), from(source(pair, bytes, 3)), to(pair.memory(1, bytes)) {
    pair.post(0, ends[0], SoftNicPair::write(from, to, bytes, 1, 0));
    rest = joined(pair.transmit_for(0, Duration::from_us(20)), kBurst);
    for (size_t i = 0; i < kFirst; ++i) placed += deliver_joined(pair, 1, take());
  }
  std::vector<Datagram> take() {
    std::vector<Datagram> next = std::move(rest.front());
    rest.erase(rest.begin());
    return next;
  }
  // Everything that is missing, until the write is complete.
  void finish() {
    while (!rest.empty()) placed += deliver_joined(pair, 1, take());
    ASSERT_TRUE(pair.run_until_completed(1, 1));
    EXPECT_EQ(to.bytes, from.bytes);
  }

  static constexpr size_t kFirst = 3;
  SoftNicPair pair;
  SoftNicPair::Ends ends;
  const TestMemory& from;
  TestMemory& to;
  std::vector<std::vector<Datagram>> rest;
  size_t placed = 0;
};

TEST(Placement, APacketGoesBehindTheOneBefore) {
  Started write;
  const Placement next = write.pair.nic(1).predict(write.pair.now);
  ASSERT_NE(next.place, nullptr);
  EXPECT_EQ(next.place, &write.to.bytes[Started::kFirst * kBurst * kPayload]);
  EXPECT_EQ(next.bytes, kLong - Started::kFirst * kBurst * kPayload);
  EXPECT_EQ(next.payload_bytes, kPayload);
}

// Packets of one write, one after another, as the follower sees them.
struct Followed {
  WriteFollower follower{kBurst, Duration::from_us(100)};
  wire::DataHeader header{.destination_qp = 5, .address = 4096, .key = 7, .msn = kPsnMask};
  Instant now = Instant::from_ns(1'000'000);

  const WriteFollower::Write* next() {
    follower.on_packet(header, kPayload, now);
    header.address += kPayload;
    return follower.predicted(now);
  }
  void follow(size_t packets) {
    for (size_t i = 0; i < packets; ++i) next();
  }
};

TEST(WriteFollower, PredictsAfterMoreThanABurstInSequence) {
  Followed write;
  write.header.address = 0;
  write.follow(1);
  for (size_t i = 0; i < kBurst; ++i) EXPECT_EQ(write.next(), nullptr) << i;
  ASSERT_NE(write.next(), nullptr);
  EXPECT_EQ(write.follower.predicted(write.now)->address, write.header.address);
  const Instant last = write.now + Duration::from_us(100);
  EXPECT_NE(write.follower.predicted(last), nullptr);
  EXPECT_EQ(write.follower.predicted(last + Duration::from_ns(1)), nullptr);
}

TEST(WriteFollower, APacketElsewhereBeginsANewSequence) {
  for (const bool other_key : {true, false}) {
    Followed write;
    write.follow(2 * kBurst);
    ASSERT_NE(write.next(), nullptr);
    (other_key ? write.header.key : write.header.destination_qp) += 1;
    if (!other_key) write.header.address += kPayload;
    EXPECT_EQ(write.next(), nullptr) << other_key;
    for (size_t i = 0; i < kBurst; ++i) EXPECT_EQ(write.next(), nullptr) << i;
    EXPECT_NE(write.next(), nullptr);
  }
}

TEST(WriteFollower, TheNextWriteOfTheQueuePairContinuesTheSequence) {
  Followed write;
  write.follow(2 * kBurst);
  write.header.address = 1 << 20;
  write.header.msn = 0;  // behind kPsnMask
  EXPECT_NE(write.next(), nullptr);
  write.header.address = 2 << 20;
  EXPECT_EQ(write.next(), nullptr) << "another place of the same write";
  write.follow(2 * kBurst);
  write.header.address = 3 << 20;
  write.header.msn = 1;
  write.header.destination_qp = 6;
  EXPECT_EQ(write.next(), nullptr) << "a write of another queue pair";
}

TEST(Placement, AllButTheBeginningOfAWriteIsPlaced) {
  Started write;
  write.finish();
  EXPECT_GE(write.placed, kLong / kPayload - 3 * kBurst);
}

TEST(Placement, OfTheNextWriteNothingButTheBeginningIsCopied) {
  Started write;
  write.finish();
  write.pair.collect();
  write.pair.post(0, write.ends[0], SoftNicPair::write(write.from, write.to, kLong, 2, 0));
  write.rest = joined(write.pair.transmit_for(0, Duration::from_us(20)), kBurst);
  std::ranges::fill(write.to.bytes, 0);
  write.placed = 0;
  while (!write.rest.empty()) write.placed += deliver_joined(write.pair, 1, write.take());
  ASSERT_TRUE(write.pair.run_until_completed(1, 2));
  EXPECT_EQ(write.to.bytes, write.from.bytes);
  EXPECT_EQ(write.placed, kLong / kPayload - kBurst);
}

TEST(Placement, TheLastPacketMayBeShorter) {
  Started write(config(), kLong + 100);
  write.finish();
  EXPECT_GE(write.placed, kLong / kPayload + 1 - 3 * kBurst);
}

TEST(Placement, ChecksumsOfPlacedPayloadAreChecked) {
  SoftNicConfig checked = config();
  checked.security = Security::kOff;
  checked.full_checksum = true;
  Started write(checked);
  write.rest[0][2].bytes[wire::kDataHeaderBytes + 5] ^= 1;
  deliver_joined(write.pair, 1, write.take());
  EXPECT_EQ(write.pair.nic(1).counters().bad_checksum, 1U);
  write.finish();
}

TEST(Placement, NothingIsPredictedOfShortWrites) {
  SoftNicConfig longer = config();
  longer.in_place_bytes = kLong + 1;
  Started write(longer);
  EXPECT_EQ(write.pair.nic(1).predict(write.pair.now).place, nullptr);
}

TEST(Placement, NothingIsPredictedWherePayloadIsEnciphered) {
  SoftNicConfig secret = config();
  secret.security = Security::kEncrypt;
  Started write(secret);
  EXPECT_EQ(write.pair.nic(1).predict(write.pair.now).place, nullptr);
}

TEST(Placement, NothingIsPredictedOfMemoryThatIsGone) {
  Started write;
  write.pair.nic(1).deregister_memory(write.to.region);
  EXPECT_EQ(write.pair.nic(1).predict(write.pair.now).place, nullptr);
}

TEST(Placement, NothingIsPredictedOfAQueuePairThatIsGone) {
  Started write;
  write.pair.nic(1).destroy_queue_pair(write.ends[1]);
  EXPECT_EQ(write.pair.nic(1).predict(write.pair.now).place, nullptr);
}

TEST(Placement, NothingIsPredictedOfWhatHasBeenQuiet) {
  Started write;
  write.pair.now = write.pair.now + Duration::from_ms(2);
  EXPECT_EQ(write.pair.nic(1).predict(write.pair.now).place, nullptr);
  write.finish();
}

TEST(Placement, NothingIsPredictedWhilePacketsAreMissing) {
  Started write;
  const auto lost = write.take();
  deliver_joined(write.pair, 1, write.take());
  EXPECT_EQ(write.pair.nic(1).predict(write.pair.now).place, nullptr);
  deliver_joined(write.pair, 1, lost);
  // The newest packet is not the last of those that are there.
  EXPECT_EQ(write.pair.nic(1).predict(write.pair.now).place, nullptr);
  write.finish();
}

TEST(Placement, AStrangersDatagramLeavesNothingBehind) {
  Started write;
  auto forged = write.rest[0];
  for (Datagram& packet : forged) std::ranges::fill(packet.bytes, 0xEE);
  deliver_joined(write.pair, 1, forged);
  // With headers that have been heard, too.
  forged = write.rest[0];
  for (Datagram& packet : forged) {
    std::fill(packet.bytes.begin() + wire::kDataHeaderBytes, packet.bytes.end(), 0xEE);
  }
  deliver_joined(write.pair, 1, forged);
  EXPECT_EQ(write.pair.nic(1).counters().forged, kBurst);
  write.finish();
}

// What is there stays there; what lies beside is not touched; whatever comes instead of what was
// predicted.
TEST(Placement, WhateverComesInstead) {
  size_t placed = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    SCOPED_TRACE(seed);
    Prng random(seed);
    SoftNicPair pair(config());
    constexpr Bytes kAround = 4096;
    struct Write {
      SoftNicPair::Ends ends;
      const TestMemory* from;
      TestMemory* to;
      Bytes bytes;
    };
    std::vector<Write> writes;
    std::vector<std::vector<Datagram>> wire;
    for (uint64_t i = 0; i < 1 + random.below(3); ++i) {
      const Bytes bytes = kLong + random.below(64 * kPayload);
      Write& write = writes.emplace_back();
      write = {.ends = pair.connect(),
               .from = &source(pair, bytes, static_cast<uint32_t>(i)),
               .to = &pair.memory(1, bytes + 2 * kAround, Access::kRemoteWrite, 100),
               .bytes = bytes};
      WorkRequest request = SoftNicPair::write(*write.from, *write.to, bytes, 1, 0);
      request.remote += kAround;
      pair.post(0, write.ends[0], request);
      std::ranges::move(joined(pair.transmit_for(0, Duration::from_us(20)), kBurst),
                        std::back_inserter(wire));
    }
    while (!wire.empty()) {
      const size_t chosen =
          random.below(10) == 0 ? random.below(std::min<size_t>(wire.size(), 80)) : 0;
      std::vector<Datagram> datagram = wire[chosen];
      const bool repeated = random.below(10) == 0;
      if (!repeated) wire.erase(wire.begin() + static_cast<ptrdiff_t>(chosen));
      switch (random.below(100)) {
        case 0:
          continue;  // lost
        case 1:      // some of it is
          datagram.erase(datagram.begin() + static_cast<ptrdiff_t>(random.below(datagram.size())));
          break;
        case 2:  // as where the network joins packets
        case 3:
        case 4:
          std::swap(datagram.front(), datagram[random.below(datagram.size())]);
          break;
        default:
          break;
      }
      if (datagram.empty()) continue;
      for (const auto& part : joined(datagram, kBurst)) placed += deliver_joined(pair, 1, part);
    }
    ASSERT_TRUE(pair.run_until_completed(1, writes.size()));
    for (const Write& write : writes) {
      const std::span<const uint8_t> to(write.to->bytes);
      ASSERT_TRUE(std::ranges::equal(to.subspan(kAround, write.bytes), write.from->bytes));
      for (size_t i = 0; i < kAround; ++i) {
        ASSERT_EQ(to[i], static_cast<uint8_t>(100 + i));
        const size_t behind = kAround + write.bytes + i;
        ASSERT_EQ(to[behind], static_cast<uint8_t>(100 + behind));
      }
    }
  }
  EXPECT_GT(placed, 200U * 2 * kBurst);
}

}  // namespace
}  // namespace pacecar::placement_test

// SoftNic with packets of one write that come, or go, together: it computes their common parts
// once, with the same results as packet by packet.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <vector>

#include "tests/support/soft_nic_pair.h"

namespace pacecar::test::runs_test {
namespace {

constexpr size_t kMemory = 64 * 1024;

SoftNicConfig config_for(uint64_t seed) {
  SoftNicConfig config = SoftNicPair::default_config();
  constexpr std::array kSecurity = {Security::kOff, Security::kAuth, Security::kEncrypt};
  config.security = kSecurity[seed % kSecurity.size()];
  config.full_checksum = seed % 2 == 0;
  config.joins_packets = seed % 5 == 0;
  config.window_packets = seed % 7 == 0 ? 64 : 128;
  if (seed % 4 == 0) config.ack.idle = Duration::from_us(3);
  return config;
}

// One sender and one receiver. All that happens follows from the seed.
struct World {
  explicit World(uint64_t seed) : pair(config_for(seed)), ends(pair.connect()) {
    pair.limit(0, 0, {.rate = Rate::from_gbps(1'000'000), .window = Bytes{1} << 40});
    pair.nic(1).report_arrivals(seed % 2 == 0);
  }
  void post(Prng& prng) {
    const Bytes length = prng.chance(0.5) ? prng.below(200) : prng.below(kMemory / 2);
    WorkRequest write = SoftNicPair::write(from, to, length, 1);
    write.remote += prng.below(kMemory / 2);
    if (prng.chance(0.1)) write.remote += kMemory;  // out of bounds, as a whole or in part
    if (prng.chance(0.7)) write.opcode = Opcode::kWriteWithImm;
    pair.post(0, ends[0], write);
  }
  // The packets of side 0 within 200 ns, handed out up to `at_once` at a time.
  std::vector<Datagram> transmit(size_t at_once) {
    std::vector<Datagram> sent;
    std::vector<TxPacket> packets(at_once);
    const Instant end = pair.now + Duration::from_ns(200);
    for (; pair.now < end; pair.now = pair.now + Duration::from_ns(1)) {
      while (const size_t count = pair.nic(0).poll_transmit(pair.now, packets)) {
        for (const TxPacket& packet : std::span(packets).first(count)) {
          Datagram& datagram = sent.emplace_back();
          for (const auto part : {packet.header, packet.payload, packet.trailer}) {
            datagram.bytes.insert(datagram.bytes.end(), part.begin(), part.end());
          }
        }
      }
      pair.nic(0).on_time(pair.now);
    }
    return sent;
  }
  void deliver(std::span<const Datagram> datagrams, std::span<const Duration> waited) {
    std::vector<RxPacket> packets;
    const Address source = test_address(1);
    const Address stranger = test_address(7);
    for (size_t i = 0; i < datagrams.size(); ++i) {
      packets.push_back({.bytes = datagrams[i].bytes,
                         .source = datagrams[i].path == 0 ? &source : &stranger,
                         .ecn = datagrams[i].ecn,
                         .waited = waited[i],
                         .telemetry = datagrams[i].telemetry});
    }
    pair.nic(1).on_packets(pair.now, packets);
  }

  SoftNicPair pair;
  SoftNicPair::Ends ends;
  const TestMemory& from = pair.memory(0, kMemory, Access::kLocalRead, 1);
  const TestMemory& to = pair.memory(1, kMemory);
};

// What the network does with packets on their way.
std::vector<Datagram> tampered(std::vector<Datagram> packets, Prng& prng) {
  std::vector<Datagram> arrived;
  for (Datagram& packet : packets) {
    if (prng.chance(0.05)) continue;
    if (prng.chance(0.05)) arrived.push_back(packet);
    if (prng.chance(0.05)) packet.ecn = Ecn::kCongestion;
    if (prng.chance(0.05)) packet.path = 1;  // from elsewhere
    if (prng.chance(0.05)) packet.bytes[prng.below(packet.bytes.size())] ^= 1U << prng.below(8);
    if (prng.chance(0.02)) packet.bytes.resize(prng.below(packet.bytes.size()));
    if (prng.chance(0.05)) packet.telemetry.push_back({1, 2, 3, 4});
    arrived.push_back(std::move(packet));
    if (prng.chance(0.1)) std::swap(arrived.back(), arrived[prng.below(arrived.size())]);
  }
  return arrived;
}

bool same_counters(World& a, World& b) {
  const NicCounters& one = a.pair.nic(1).counters();
  const NicCounters& other = b.pair.nic(1).counters();
  static_assert(std::has_unique_object_representations_v<NicCounters>);
  return std::memcmp(&one, &other, sizeof one) == 0;
}

class SoftNicRuns : public testing::TestWithParam<uint64_t> {};

// Where memory lies differs from world to world, and when packets leave: that is left out.
std::vector<wire::DataHeader> headers_of(const std::vector<Datagram>& packets, const World& world) {
  std::vector<wire::DataHeader> headers;
  for (const Datagram& packet : packets) {
    if (packet.kind() != wire::PacketKind::kData) continue;
    headers.push_back(packet.data());
    headers.back().address -= world.to.address();
    headers.back().timestamp = 0;
  }
  return headers;
}

TEST_P(SoftNicRuns, PacketsAreTheSameOneByOneAndTogether) {
  World one_by_one(GetParam());
  World together(GetParam());
  for (int turn = 0; turn < 40; ++turn) {
    for (World* world : {&one_by_one, &together}) {
      Prng same(GetParam() * 1000 + static_cast<uint64_t>(turn));
      world->post(same);
      world->post(same);
      world->pair.now = world->pair.now + Duration::from_us(10);
    }
    const auto single = one_by_one.transmit(1);
    const auto many = together.transmit(16);
    ASSERT_EQ(headers_of(single, one_by_one), headers_of(many, together));
    for (World* world : {&one_by_one, &together}) {
      for (const Datagram& packet : world == &together ? many : single) {
        world->pair.deliver(1, packet);
      }
      for (const Datagram& packet : world->pair.transmit(1)) world->pair.deliver(0, packet);
      world->pair.collect();
    }
    ASSERT_EQ(one_by_one.to.bytes, together.to.bytes);
    ASSERT_TRUE(same_counters(one_by_one, together));
  }
}

TEST_P(SoftNicRuns, PacketsAreTakenAlikeOneByOneAndTogether) {
  World one_by_one(GetParam());
  World together(GetParam());
  for (int turn = 0; turn < 40; ++turn) {
    std::array<std::vector<Datagram>, 2> answers;
    for (World* world : {&one_by_one, &together}) {
      Prng same(GetParam() * 1000 + static_cast<uint64_t>(turn));
      for (int i = 0; i < 3; ++i) world->post(same);
      world->pair.now = world->pair.now + Duration::from_us(10);
      world->pair.nic(0).on_time(world->pair.now);
      const auto packets = tampered(world->transmit(16), same);
      std::vector<Duration> waited(packets.size());
      for (Duration& each : waited) each = Duration::from_us(static_cast<int64_t>(same.below(6)));
      if (world == &together) {
        world->deliver(packets, waited);
      } else {
        for (size_t i = 0; i < packets.size(); ++i)
          world->deliver({&packets[i], 1}, {&waited[i], 1});
      }
      answers[world == &together] = world->pair.transmit_for(1, Duration::from_us(20));
      for (const Datagram& packet : answers[world == &together]) world->pair.deliver(0, packet);
      world->pair.collect();
    }
    ASSERT_EQ(one_by_one.to.bytes, together.to.bytes);
    ASSERT_TRUE(same_counters(one_by_one, together));
    ASSERT_EQ(answers[0].size(), answers[1].size());
    for (size_t i = 0; i < answers[0].size(); ++i)
      EXPECT_EQ(answers[0][i].bytes, answers[1][i].bytes);
    ASSERT_EQ(one_by_one.pair.completions[1].size(), together.pair.completions[1].size());
  }
  EXPECT_GT(together.pair.nic(1).counters().data_packets_received, 100U);
}

INSTANTIATE_TEST_SUITE_P(Seeds, SoftNicRuns, testing::Range(uint64_t{1}, uint64_t{31}));

}  // namespace
}  // namespace pacecar::test::runs_test

// The wire modes of the software NIC: which one two ends speak, and what each refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rc_pair.h"

namespace pacecar::wire_mode_test {
namespace {

using test::parse;
using test::rc_config;
using test::SoftNicPair;
using testing::HasSubstr;

TEST(SoftNicWireMode, AutoSpeaksTheExtendedModeToItsKindAndStandardToOthers) {
  SoftNicPair both(rc_config(WireMode::kAuto));
  const auto ends = both.connect();
  auto& from = both.memory(0, 100);
  auto& to = both.memory(1, 100);
  both.post(0, ends[0], SoftNicPair::write(from, to, 100));
  const auto sent = both.transmit_for(0, Duration::from_us(1));
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(sent[0].kind(), wire::PacketKind::kData);
  // With receive requests only standard RC will do.
  const auto standard = both.connect({.receives = 1});
  both.post(0, standard[0], SoftNicPair::write(from, to, 100));
  const auto standard_sent = both.transmit_for(0, Duration::from_us(1));
  ASSERT_EQ(standard_sent.size(), 1U);
  EXPECT_EQ(parse(standard_sent[0]).opcode, roce::Opcode::kWriteOnly);
}

TEST(SoftNicWireMode, EachModeHasItsNetworks) {
  const auto networks = [](WireMode mode) {
    SoftNicPair pair(rc_config(mode));
    return pair.nic(0).caps().networks;
  };
  EXPECT_THAT(networks(WireMode::kExtended), testing::ElementsAre("soft"));
  EXPECT_THAT(networks(WireMode::kRoce), testing::ElementsAre("roce"));
  EXPECT_THAT(networks(WireMode::kAuto), testing::ElementsAre("soft", "roce"));
}

TEST(SoftNicWireMode, EachModeSaysWhatItCan) {
  const auto caps = [](WireMode mode) {
    SoftNicConfig config = rc_config(mode);
    config.mtu = config.burst_bytes = 1500;
    return SoftNicPair(config).nic(0).caps();
  };
  const NicCaps extended = caps(WireMode::kExtended);
  const NicCaps standard = caps(WireMode::kRoce);
  const NicCaps both = caps(WireMode::kAuto);
  EXPECT_EQ(extended.mtu, 1500U);
  EXPECT_EQ(standard.mtu, 1024U) << "a power of two";
  EXPECT_EQ(standard.packet_overhead, 12U + 16 + 4 + rc_config().wire_overhead_bytes);
  EXPECT_TRUE(extended.times_arrivals);
  EXPECT_FALSE(both.times_arrivals);
  for (const NicCaps* of : {&extended, &standard, &both}) {
    EXPECT_TRUE(of->counts_silent_packets);
    EXPECT_TRUE(of->paces_packets);
  }
}

// QueuePair and its connection, and the queues of requests that may be posted.
TEST(SoftNicWireMode, MemoryOfStandardConnectionsIsTold) {
  SoftNicPair pair(rc_config());
  const auto state = [&](uint32_t work_requests, uint32_t receives) {
    const auto memory =
        pair.nic(0).queue_pair_memory({.work_requests = work_requests, .receives = receives});
    EXPECT_EQ(memory.queues, 0U);
    return memory.state;
  };
  const Bytes of_64 = state(128, 1) - state(64, 1);
  EXPECT_GE(of_64, 64 * sizeof(WorkRequest));
  EXPECT_EQ(state(256, 1) - state(128, 1), 2 * of_64);
  EXPECT_EQ(state(64, 9) - state(64, 1), 8 * sizeof(ReceiveRequest));
  const Bytes least = sizeof(QueuePair) + sizeof(RcEnd);
  EXPECT_GE(state(64, 1), least + of_64 + sizeof(ReceiveRequest) + 2000) << "its samples and reads";
  EXPECT_LE(state(64, 1), least + of_64 + sizeof(ReceiveRequest) + 2500);
  EXPECT_GE(state(64, 0), state(64, 1) + least) << "with a standby lane";
}

TEST(SoftNicWireMode, EveryBitOfASaltIsRandom) {
  SoftNicConfig config = SoftNicPair::default_config();
  config.security = Security::kAuth;
  SoftNicPair pair(config, RandomSource{[](void*) { return ~0U; }, nullptr});
  const auto id = pair.nic(0).create_queue_pair({}).value();
  const auto address = decode_endpoint(pair.nic(0).queue_pair_address(id).view());
  EXPECT_EQ(address->extended->salt, ~uint64_t{0});
}

TEST(SoftNicWireMode, ExtendedRefusesWhoSpeaksStandardOnlyAndSaysWhatHelps) {
  SoftNicPair extended;
  SoftNicPair standard(rc_config());
  const auto id = extended.nic(0).create_queue_pair({}).value();
  const auto peer = standard.nic(1).create_queue_pair({}).value();
  const auto connected =
      extended.nic(0).connect_queue_pair(id, standard.nic(1).queue_pair_address(peer).view());
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, ErrorCode::kPeer);
  EXPECT_THAT(connected.error().message, HasSubstr("PACECAR_WIRE=auto"));
  // The other way round it works: an address of the extended mode begins with the standard one.
  EXPECT_TRUE(
      standard.nic(1).connect_queue_pair(peer, extended.nic(0).queue_pair_address(id).view()));
}

TEST(SoftNicWireMode, WithoutTheIpv4HeaderStandardIsRefused) {
  SoftNicConfig config = rc_config();
  config.knows_ip_header = false;
  SoftNicPair pair(config);
  const auto id = pair.nic(0).create_queue_pair({}).value();
  const auto peer = pair.nic(1).create_queue_pair({}).value();
  const auto connected =
      pair.nic(0).connect_queue_pair(id, pair.nic(1).queue_pair_address(peer).view());
  ASSERT_FALSE(connected);
  EXPECT_THAT(connected.error().message, HasSubstr("soft:raw"));
}

TEST(SoftNicWireMode, EncryptionIsRefusedWherePayloadWouldBeReadable) {
  SoftNicConfig config = rc_config(WireMode::kAuto);
  config.security = Security::kEncrypt;
  SoftNicPair pair(config);
  SoftNicPair standard(rc_config());
  const auto id = pair.nic(0).create_queue_pair({}).value();
  const auto peer = standard.nic(1).create_queue_pair({}).value();
  const auto connected =
      pair.nic(0).connect_queue_pair(id, standard.nic(1).queue_pair_address(peer).view());
  ASSERT_FALSE(connected);
  EXPECT_THAT(connected.error().message, HasSubstr("PACECAR_WIRE=extended"));
}

TEST(SoftNicWireMode, APeerOfAnotherIpVersionIsRefused) {
  SoftNicPair pair(rc_config());
  const auto id = pair.nic(0).create_queue_pair({}).value();
  RcEndpoint peer{.gid = {0x20, 0x01, 0x0D, 0xB8}, .mtu = 1024};
  peer.lane[0] = {.queue_pair = 5, .first_psn = 1};
  const auto connected = pair.nic(0).connect_queue_pair(id, encode(peer).view());
  ASSERT_FALSE(connected);
  EXPECT_THAT(connected.error().message, HasSubstr("another IP version"));
}

// Scopes are numbered by each host for itself.
TEST(SoftNicWireMode, ALinkLocalPeerIsReachedInOurOwnScope) {
  for (const WireMode mode : {WireMode::kExtended, WireMode::kRoce}) {
    std::array<Prng, 2> prng{Prng(1), Prng(2)};
    const auto random = [](void* at) {
      return static_cast<uint32_t>(static_cast<Prng*>(at)->next_u64());
    };
    std::array<std::unique_ptr<SoftNic>, 2> nics;
    std::array<QueuePairId, 2> ids{};
    const Instant now = Instant::from_ns(1000);
    for (size_t side = 0; side < 2; ++side) {
      SoftNicConfig config = rc_config(mode);
      config.address = {.ip = {0xFE, 0x80}, .scope_id = 3, .port = roce::kUdpPort};
      config.address.ip[15] = static_cast<uint8_t>(side + 1);
      if (side == 1) config.address.scope_id = 9;
      nics[side] = std::make_unique<SoftNic>(config, RandomSource{random, &prng[side]}, now);
      ids[side] = nics[side]->create_queue_pair({.paced = false}).value();
    }
    ASSERT_TRUE(nics[0]->connect_queue_pair(ids[0], nics[1]->queue_pair_address(ids[1]).view()));
    const WorkRequest write{.opcode = Opcode::kWrite};
    ASSERT_EQ(nics[0]->post(ids[0], {&write, 1}), 1U);
    std::array<TxPacket, 4> packets;
    ASSERT_EQ(nics[0]->poll_transmit(now, packets), 1U);
    EXPECT_EQ(packets[0].destination->scope_id, 3U);
    EXPECT_EQ(packets[0].destination->ip[15], 2);
    EXPECT_EQ(packets[0].destination->port, roce::kUdpPort);
  }
}

TEST(SoftNicWireMode, ExtendedConnectionsTakeTheWritesBeforeASend) {
  SoftNicPair pair(rc_config(WireMode::kAuto));
  const auto ends = pair.connect();
  std::array<WorkRequest, 4> requests;
  requests.fill(SoftNicPair::write(pair.memory(0, 100), pair.memory(1, 100), 100));
  requests[1].opcode = Opcode::kWriteWithImm;
  requests[2].opcode = Opcode::kSend;
  EXPECT_EQ(pair.nic(0).post(ends[0], requests), 2U);
}

TEST(SoftNicWireMode, ExtendedConnectionsTakeNoSendsAndReads) {
  SoftNicPair pair(rc_config(WireMode::kAuto));
  const auto ends = pair.connect();
  auto& from = pair.memory(0, 100);
  auto& to = pair.memory(1, 100);
  WorkRequest send = SoftNicPair::write(from, to, 100);
  send.opcode = Opcode::kSend;
  EXPECT_EQ(pair.post(0, ends[0], send), 0U);
  send.opcode = Opcode::kRead;
  EXPECT_EQ(pair.post(0, ends[0], send), 0U);
}

}  // namespace
}  // namespace pacecar::wire_mode_test

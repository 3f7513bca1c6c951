// The wire modes of the software NIC: which one two ends speak, and what each refuses.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/rc_pair.h"

namespace pacecar {
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
}  // namespace pacecar

// What a software NIC counts, in both wire modes: metrics and `doctor` rely on it.
#include <gtest/gtest.h>

#include "tests/support/nic_counters.h"
#include "tests/support/rc_pair.h"

namespace pacecar::counters_test {
namespace {

using test::Datagram;
using test::SoftNicPair;

constexpr Bytes kMtu = 1024;

// Three packets in one write, delivered in order; then the acknowledgements.
class CountersTest : public testing::TestWithParam<WireMode> {
 protected:
  bool standard() const { return GetParam() == WireMode::kRoce; }
  const NicCounters& sender() { return pair_.nic(0).counters(); }
  const NicCounters& receiver() { return pair_.nic(1).counters(); }
  std::vector<Datagram> send(std::optional<uint32_t> immediate = std::nullopt) {
    pair_.post(0, ends_[0], SoftNicPair::write(from_, to_, 2 * kMtu + 100, 1, immediate));
    return pair_.transmit_for(0, Duration::from_us(100));
  }
  void answer() {
    for (const Datagram& packet : pair_.transmit_for(1, Duration::from_us(500))) {
      pair_.deliver(0, packet);
    }
  }

  SoftNicPair pair_{test::rc_config(GetParam())};
  SoftNicPair::Ends ends_ = pair_.connect({.paced = false});
  test::TestMemory& from_ = pair_.memory(0, 4 * kMtu);
  test::TestMemory& to_ = pair_.memory(1, 4 * kMtu);
};

TEST_P(CountersTest, AWriteThatArrives) {
  for (const Datagram& packet : send()) pair_.deliver(1, packet);
  answer();
  EXPECT_EQ(
      sender(),
      (NicCounters{.data_packets_sent = 3, .data_bytes_sent = 2 * kMtu + 100, .acks_received = 1}));
  EXPECT_EQ(receiver(), (NicCounters{.acks_sent = 1,
                                     .data_packets_received = 3,
                                     .data_bytes_received = 2 * kMtu + 100,
                                     .silent_packets_received = 3}));
}

TEST_P(CountersTest, WhatIsToldIsNotSilent) {
  for (const Datagram& packet : send(7)) pair_.deliver(1, packet);
  // In standard RC only the last packet has the immediate.
  EXPECT_EQ(receiver().silent_packets_received, standard() ? 2U : 0U);
  EXPECT_EQ(receiver().data_packets_received, 3U);
}

TEST_P(CountersTest, MarkedPackets) {
  auto packets = send();
  packets[1].ecn = Ecn::kCongestion;
  for (const Datagram& packet : packets) pair_.deliver(1, packet);
  EXPECT_EQ(receiver().marked_packets, 1U);
  EXPECT_EQ(receiver().data_packets_received, 3U);
}

TEST_P(CountersTest, Duplicates) {
  const auto packets = send();
  for (const Datagram& packet : packets) pair_.deliver(1, packet);
  pair_.deliver(1, packets[2]);
  EXPECT_EQ(receiver().duplicates, 1U);
  EXPECT_EQ(receiver().data_packets_received, 3U);
  EXPECT_EQ(receiver().data_bytes_received, 2 * kMtu + 100);
}

TEST_P(CountersTest, WhatWasLostIsSentAgain) {
  const auto packets = send();
  pair_.deliver(1, packets[0]);
  pair_.deliver(1, packets[2]);
  EXPECT_EQ(receiver().out_of_order, standard() ? 1U : 0U);
  ASSERT_TRUE(pair_.run_until_completed(0, 1));
  EXPECT_EQ(sender().packets_retransmitted, standard() ? 2U : 1U);
  EXPECT_GE(sender().data_packets_sent, 3 + sender().packets_retransmitted) << "and questions";
  EXPECT_EQ(receiver().data_packets_received, 3U);
  EXPECT_EQ(receiver().data_bytes_received, 2 * kMtu + 100);
}

TEST_P(CountersTest, RefusedPackets) {
  auto write = SoftNicPair::write(from_, to_, 100, 1);
  write.remote_key ^= 1;
  pair_.post(0, ends_[0], write);
  for (const Datagram& packet : pair_.transmit_for(0, Duration::from_us(10))) {
    pair_.deliver(1, packet);
  }
  EXPECT_EQ(receiver(), (NicCounters{.access_errors = 1}));
}

TEST_P(CountersTest, WhatIsDropped) {
  const auto packets = send();
  Datagram changed = packets[0];
  changed.bytes.back() ^= 1;
  pair_.deliver(1, changed);
  Datagram unknown = packets[0];
  unknown.bytes.resize(3);
  pair_.deliver(1, unknown);
  pair_.deliver(1, packets[0], test::test_address(9));
  EXPECT_EQ(receiver().data_packets_received, 0U);
  EXPECT_EQ(receiver().bad_checksum + receiver().forged, 1U);
  EXPECT_EQ(receiver().malformed, 1U);
  EXPECT_EQ(receiver().wrong_source, 1U);
}

INSTANTIATE_TEST_SUITE_P(Modes, CountersTest, testing::Values(WireMode::kRoce, WireMode::kExtended),
                         [](const auto& mode) {
                           return mode.param == WireMode::kRoce ? "Standard" : "Extended";
                         });

}  // namespace
}  // namespace pacecar::counters_test

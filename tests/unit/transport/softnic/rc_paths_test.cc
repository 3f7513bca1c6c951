// Standard RC over several paths: each is a UDP source port (annex A17), which the ICRC covers.
#include <gtest/gtest.h>

#include <optional>
#include <set>

#include "tests/support/rc_pair.h"

namespace pacecar::rc_paths_test {
namespace {

using test::Datagram;
using test::SoftNicPair;

constexpr Bytes kMtu = 1024;
constexpr uint16_t kControlPort = 0xC0FF;

SoftNicConfig with_paths() {
  SoftNicConfig config = test::rc_config();
  config.paths = 4;
  config.source_ports = {0xC001, 0xC002, 0xC003, 0xC004, kControlPort};
  return config;
}

// The port from which the packet must have come.
std::optional<uint16_t> port_of(size_t from, const Datagram& datagram) {
  Address source = test::test_address(static_cast<uint8_t>(from + 1));
  const Address destination = test::test_address(static_cast<uint8_t>(2 - from));
  for (const uint16_t port : with_paths().source_ports) {
    source.port = port;
    if (roce::verify_icrc({source, destination}, datagram.bytes)) return port;
  }
  return std::nullopt;
}

class RcPathsTest : public testing::Test {
 protected:
  // A write's packets, and the answers of the other side.
  std::vector<Datagram> send(QueuePairId by) {
    const auto& from = pair_.memory(0, 2 * kMtu);
    const auto& to = pair_.memory(1, 2 * kMtu);
    pair_.post(0, by, SoftNicPair::write(from, to, 2 * kMtu));
    return pair_.transmit_for(0, Duration::from_us(1));
  }
  std::vector<Datagram> answers(const std::vector<Datagram>& sent) {
    Address source = test::test_address(1);
    for (const Datagram& packet : sent) {
      source.port = port_of(0, packet).value_or(0);
      pair_.deliver(1, packet, source);
    }
    return pair_.transmit(1);
  }

  SoftNicPair pair_{with_paths()};
};

TEST_F(RcPathsTest, EachPathHasItsOwnPort) {
  std::set<uint16_t> seen;
  for (int i = 0; i < 12; ++i) {
    const auto sent = send(pair_.connect()[0]);
    ASSERT_EQ(sent.size(), 2U);
    EXPECT_EQ(sent[0].path, sent[1].path) << "of one queue pair none may overtake another";
    for (const Datagram& packet : sent) {
      ASSERT_LT(packet.path, 4U);
      EXPECT_EQ(port_of(0, packet), with_paths().source_ports[packet.path]);
    }
    seen.insert(sent[0].path);
  }
  EXPECT_GT(seen.size(), 1U);
}

TEST_F(RcPathsTest, AnswersToDataHaveThePortOfControl) {
  const auto back = answers(send(pair_.connect()[0]));
  ASSERT_EQ(back.size(), 1U);
  EXPECT_EQ(back[0].path, 0U);
  EXPECT_EQ(port_of(1, back[0]), kControlPort);
}

TEST_F(RcPathsTest, AnswersOfOtherQueuePairsKeepToAPathOfTheirOwn) {
  std::set<uint16_t> seen;
  for (int i = 0; i < 6; ++i) {
    const auto ends = pair_.connect({.paced = false});
    for (int turn = 0; turn < 2; ++turn) {
      const auto back = answers(send(ends[0]));
      ASSERT_EQ(back.size(), 1U);
      EXPECT_EQ(back[0].path, ends[1] % 4) << "always";
      EXPECT_EQ(port_of(1, back[0]), with_paths().source_ports[back[0].path]);
      seen.insert(back[0].path);
    }
  }
  EXPECT_GT(seen.size(), 1U);
}

TEST_F(RcPathsTest, APathIsLeftInSilence) {
  const auto sent = send(pair_.connect()[0]);
  const auto again = pair_.transmit_for(0, Duration::from_ms(8));
  ASSERT_FALSE(again.empty());
  EXPECT_NE(again[0].path, sent[0].path);
  EXPECT_EQ(port_of(0, again[0]), with_paths().source_ports[again[0].path]);
}

}  // namespace
}  // namespace pacecar::rc_paths_test

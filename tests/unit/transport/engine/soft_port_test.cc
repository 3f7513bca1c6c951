// SoftPort: packets have arrived when they have been taken, whatever the time of the turn.
#include "transport/engine/soft_port.h"

#include <gtest/gtest.h>

#include <vector>

#include "tests/support/scripted_packet_io.h"
#include "tests/support/soft_nic_pair.h"

namespace pacecar::soft_port_test {
namespace {

using test::Datagram;
using test::SoftNicPair;

// What a clock would say when it is asked.
Instant clock_time;
int clock_asked = 0;
Instant read_clock() {
  ++clock_asked;
  return clock_time;
}

class SoftPortArrivals : public ::testing::Test {
 protected:
  SoftPortArrivals() {
    pair_.nic(0).report_arrivals(true);
    clock_asked = 0;
  }

  // A packet that leaves the peer (whose address is that of the script) now waits to be taken.
  void send() {
    pair_.post(1, ends_[1], SoftNicPair::write(from_, to_, 256));
    for (const Datagram& datagram : pair_.transmit(1)) io_.incoming.push_back(datagram.bytes);
    ASSERT_EQ(io_.incoming.size(), 1U);
  }
  Duration transit() {
    std::array<FlowArrival, 4> arrivals;
    EXPECT_EQ(pair_.nic(0).poll_arrivals(arrivals), 1U);
    return Duration::from_ns(static_cast<int32_t>(arrivals[0].transit_ns));
  }

  SoftNicPair pair_;
  SoftNicPair::Ends ends_ = pair_.connect();
  test::TestMemory& from_ = pair_.memory(1, 256);
  test::TestMemory& to_ = pair_.memory(0, 256);
  ScriptedPacketIo io_;
};

// The host loses the processor between the turn's time and the packets.
TEST_F(SoftPortArrivals, APacketThatWasSentAfterTheTurnBeganTookNoNegativeTime) {
  SoftPort port(io_, pair_.nic(0), SoftPort::kMaxTransmit, read_clock);
  const Instant turn = pair_.now;
  pair_.now = turn + Duration::from_us(300);
  send();
  clock_time = turn + Duration::from_us(320);
  EXPECT_EQ(port.receive(turn), 1U);
  EXPECT_EQ(transit(), Duration::from_us(20));
}

TEST_F(SoftPortArrivals, TheClockIsReadOnlyWhenSomethingHasCome) {
  SoftPort port(io_, pair_.nic(0), SoftPort::kMaxTransmit, read_clock);
  EXPECT_EQ(port.receive(pair_.now), 0U);
  EXPECT_EQ(clock_asked, 0);
  send();
  clock_time = pair_.now;
  EXPECT_EQ(port.receive(pair_.now), 1U);
  EXPECT_EQ(clock_asked, 1) << "once for all that is taken together";
}

TEST_F(SoftPortArrivals, VirtualTimeStandsStillMeanwhile) {
  SoftPort port(io_, pair_.nic(0));
  send();
  EXPECT_EQ(port.receive(pair_.now + Duration::from_us(5)), 1U);
  EXPECT_EQ(transit(), Duration::from_us(5));
}

// A reader that polls them takes a line for whole when it sees its flag.
TEST(SoftPort, NoLineOf128BytesIsSplitOverTwoPackets) {
  for (const Bytes wanted : {0U, 1000U, 4032U, 16384U}) {
    Params params;
    params.mtu = wanted;
    const auto port = make_soft_port(params, std::make_unique<ScriptedPacketIo>(), Instant());
    EXPECT_EQ(port->nic().caps().mtu % 128, 0U) << wanted;
  }
}

}  // namespace
}  // namespace pacecar::soft_port_test

// How the UDP packet I/O handles rare results of sendmmsg. This program's own sendmmsg replaces the
// function of the C library.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <cerrno>
#include <stdexcept>
#include <vector>

#include "transport/io/udp/udp_io.h"

namespace {

// Results of the next calls: how many messages are taken, or -errno. Later calls take all.
std::vector<int> answers;
std::vector<unsigned> offered;  // messages per call
bool device_can_segment = true;

}  // namespace

extern "C" int sendmmsg(int, mmsghdr* messages, unsigned count, int) {
  offered.push_back(count);
  int answer = static_cast<int>(count);
  if (!answers.empty()) {
    answer = answers.front();
    answers.erase(answers.begin());
  }
  if (!device_can_segment && messages[0].msg_hdr.msg_controllen > 0) answer = -EIO;
  if (answer >= 0) return answer;
  errno = -answer;
  return -1;
}

namespace pacecar::errors_test {
namespace {

class UdpErrors : public testing::Test {
 protected:
  UdpErrors() {
    answers.clear();
    offered.clear();
    device_can_segment = true;
    SocketConfig config;
    config.interface = "lo";
    auto opened = open_udp(config);
    if (!opened) throw std::runtime_error(opened.error().message);
    io_ = std::move(*opened);
    // Six packets, three messages of two.
    for (size_t i = 0; i < packets_.size(); ++i) {
      packets_[i].payload = std::span(bytes_).first(100 + 50 * (i / 2));
      packets_[i].destination = &io_->local_address();
    }
  }

  size_t send(Instant now = Instant()) { return io_->send(packets_, now); }

  std::unique_ptr<PacketIo> io_;
  std::vector<uint8_t> bytes_ = std::vector<uint8_t>(1000);
  std::vector<TxPacket> packets_ = std::vector<TxPacket>(6);
};

TEST_F(UdpErrors, FullSocketTakesFewerPackets) {
  answers = {1, -EAGAIN};
  EXPECT_EQ(send(), 2U);
  EXPECT_EQ(offered, (std::vector<unsigned>{3, 2}));
}

TEST_F(UdpErrors, ASocketThatStaysFullFor20MsLosesPackets) {
  const Instant begin = Instant::from_ns(1'000'000'000);
  const Instant late = begin + Duration::from_ms(20);
  answers.assign(9, -EAGAIN);
  EXPECT_EQ(send(begin), 0U);
  EXPECT_EQ(send(late - Duration::from_ns(1)), 0U);
  EXPECT_EQ(send(late), 6U);
  EXPECT_EQ(send(late), 6U);
  answers = {3, -EAGAIN};
  EXPECT_EQ(send(late), 6U);
  EXPECT_EQ(send(late), 0U) << "it has taken some meanwhile";
}

TEST_F(UdpErrors, RefusedMessageIsLostAndTheOthersAreSent) {
  for (const int error : {ENETUNREACH, EPERM, EMSGSIZE, ECONNREFUSED}) {
    offered.clear();
    answers = {1, -error};
    EXPECT_EQ(send(), 6U);
    EXPECT_EQ(offered, (std::vector<unsigned>{3, 2, 1}));
  }
}

TEST_F(UdpErrors, AnInterruptedCallIsRepeated) {
  answers = {-EINTR, 2, -EINTR};
  EXPECT_EQ(send(), 6U);
  EXPECT_EQ(offered, (std::vector<unsigned>{3, 3, 1, 1}));
}

TEST_F(UdpErrors, DeviceWithoutSegmentationGetsSingleDatagramsForASecond) {
  device_can_segment = false;
  EXPECT_EQ(send(), 6U);
  EXPECT_EQ(offered, (std::vector<unsigned>{3, 6}));
  device_can_segment = true;
  const Instant second = Instant() + Duration::from_s(1);
  for (const auto& [now, messages] : {std::pair{second - Duration::from_ns(1), 6U}, {second, 3U}}) {
    offered.clear();
    EXPECT_EQ(send(now), 6U);
    EXPECT_EQ(offered, std::vector<unsigned>{messages});
  }
}

}  // namespace
}  // namespace pacecar::errors_test

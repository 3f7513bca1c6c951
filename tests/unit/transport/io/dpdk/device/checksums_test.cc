// UDP checksum offload, between a virtio NIC (net_virtio_user) and its host (net_vhost). One of
// them is the tested end, the other one looks at its frames.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <rte_mbuf.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/support/dpdk_hub.h"
#include "tests/support/scratch_directory.h"
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/dpdk/neighbors/neighbor_message.h"
#include "transport/io/frame.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/udp_socket.h"

namespace pacecar::checksums_test {
namespace {

using test::rested_now;
using testing::HasSubstr;

constexpr uint16_t kPort = 4791;
constexpr Duration kPatience = Duration::from_s(60);
constexpr size_t kUdpAt = 14 + 40;
constexpr size_t kChecksumAt = kUdpAt + 6;
constexpr MacAddress kFarMac = {2, 0, 0, 0, 0, 9};

Address ipv6(uint8_t host) {
  return {.ip = {0xFD, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, host}, .port = kPort};
}

// Both devices of one socket. The host's side must be opened first.
struct Pair {
  explicit Pair(const std::string& folder) {
    static int number = 500;
    ++number;
    host = {.name = "net_vhost" + std::to_string(number), .arguments = "iface=" + folder + "/v"};
    nic = {.name = "net_virtio_user" + std::to_string(number),
           .arguments = "path=" + folder + "/v"};
  }
  DpdkDevice host;
  DpdkDevice nic;
};

std::unique_ptr<DpdkPort> open_port(const DpdkDevice& device, bool udp_checksums) {
  auto port = DpdkPort::open({.device = device,
                              .transmit_buffers = 64,
                              .receive_burst = 64,
                              .udp_checksums = udp_checksums},
                             {});
  if (!port) throw std::runtime_error(port.error().message);
  return std::move(*port);
}

std::unique_ptr<PacketIo> open_at(DpdkDevice device, const Address& address,
                                  bool udp_checksums = true, const LogSink& log = {}) {
  device.address = address;
  auto opened = open_dpdk({.device = device, .udp_checksums = udp_checksums}, log);
  if (!opened) throw std::runtime_error(opened.error().message);
  return std::move(opened->io);
}

// Sends and receives raw frames.
class Far {
 public:
  explicit Far(std::unique_ptr<DpdkPort> port) : port_(std::move(port)) {}

  void send(const std::vector<uint8_t>& frame) {
    rte_mbuf* buffer = rte_pktmbuf_alloc(&port_->transmit_pool());
    ASSERT_NE(buffer, nullptr);
    std::memcpy(rte_pktmbuf_append(buffer, static_cast<uint16_t>(frame.size())), frame.data(),
                frame.size());
    if (port_->send({&buffer, 1}) == 0) rte_pktmbuf_free(buffer);
  }
  // Frames without a UDP datagram are dropped.
  std::vector<std::vector<uint8_t>> take_datagrams() {
    std::array<rte_mbuf*, 32> burst{};
    const uint16_t count = port_->receive(burst);
    std::vector<std::vector<uint8_t>> frames;
    for (rte_mbuf* const buffer : std::span(burst).first(count)) {
      const auto* const data = rte_pktmbuf_mtod(buffer, const uint8_t*);
      const std::vector<uint8_t> frame(data, data + buffer->data_len);
      const auto ethernet = frame::read_ethernet(frame);
      if (ethernet && read_datagram(*ethernet)) frames.push_back(frame);
      rte_pktmbuf_free(buffer);
    }
    return frames;
  }
  // Announces its address, so that the end can send to it.
  void announce() {
    std::array<uint8_t, kMaxNeighborMessageBytes> frame{};
    const size_t length = write_neighbor_message({.kind = NeighborMessage::Kind::kAnnouncement,
                                                  .sender = ipv6(2),
                                                  .sender_mac = kFarMac,
                                                  .target = {},
                                                  .target_mac = {}},
                                                 std::nullopt, frame);
    send({frame.begin(), frame.begin() + static_cast<ptrdiff_t>(length)});
  }

 private:
  std::unique_ptr<DpdkPort> port_;
};

// The tested end and the far one; `far_offloads`: the far one offloads checksums to its device,
// too.
struct World {
  World(bool end_is_nic, bool far_offloads, bool end_offloads = true) {
    const Pair pair(folder.path().string());
    if (end_is_nic) {
      far.emplace(open_port(pair.host, far_offloads));
      end = open_at(pair.nic, ipv6(1), end_offloads);
    } else {
      end = open_at(pair.host, ipv6(1), end_offloads);
      far.emplace(open_port(pair.nic, far_offloads));
    }
  }
  // Sends a datagram from the end; returns the frame that the far one receives.
  std::vector<uint8_t> send_one(size_t header_bytes = 60) {
    const std::vector<uint8_t> bytes(1000, static_cast<uint8_t>(header_bytes));
    const std::span pieces(bytes);
    const Address to = ipv6(2);
    const TxPacket packet{.header = pieces.first(header_bytes),
                          .payload = pieces.subspan(header_bytes, 900),
                          .trailer = pieces.subspan(header_bytes + 900),
                          .destination = &to};
    std::array<RxPacket, 4> none;
    for (Instant now = rested_now(), limit = now + kPatience; now < limit;) {
      far->announce();
      now = rested_now();
      end->receive(none, now);
      end->send({&packet, 1}, now);
      for (const auto& frame : far->take_datagrams()) {
        if (frame.back() == bytes.back()) return frame;
      }
    }
    throw std::runtime_error("nothing arrives");
  }
  size_t receive_all() {
    std::array<RxPacket, 16> packets;
    size_t count = 0;
    for (int i = 0; i < 100; ++i) count += end->receive(packets, rested_now());
    return count;
  }

  test::ScratchDirectory folder;
  std::unique_ptr<PacketIo> end;
  std::optional<Far> far;
};

uint16_t checksum_of(std::span<const uint8_t> frame) {
  return wire::load_be16(&frame[kChecksumAt]);
}

// The same datagram with source and destination exchanged, which keeps the checksum.
std::vector<uint8_t> turned_round(std::vector<uint8_t> frame) {
  std::swap_ranges(frame.begin(), frame.begin() + 6, frame.begin() + 6);
  std::swap_ranges(frame.begin() + 22, frame.begin() + 38, frame.begin() + 38);
  return frame;
}

class DpdkChecksums : public testing::TestWithParam<bool> {};
INSTANTIATE_TEST_SUITE_P(Ends, DpdkChecksums, testing::Bool(), [](const auto& param) {
  return std::string(param.param ? "nic" : "host");
});

TEST_P(DpdkChecksums, ChecksumsAreZeroUnlessEnabled) {
  World world(GetParam(), false, false);
  EXPECT_FALSE(world.end->caps().checks_payload);
  EXPECT_EQ(checksum_of(world.send_one()), 0);
}

// The far one does not accept partial checksums, so the device completes them. In the other
// direction virtio reports no verified checksums, so the software verifies them.
TEST_P(DpdkChecksums, ChecksumsAreComputedAndVerified) {
  World world(GetParam(), false);
  EXPECT_TRUE(world.end->caps().checks_payload);
  for (const size_t header_bytes : {61, 60}) {
    const auto frame = world.send_one(header_bytes);
    EXPECT_NE(checksum_of(frame), 0);
    EXPECT_TRUE(has_right_udp_checksum(frame)) << header_bytes;
  }
  const auto right = turned_round(world.send_one());
  ASSERT_TRUE(has_right_udp_checksum(right));
  world.receive_all();
  auto wrong = right;
  wrong.back() ^= 1;
  auto without = wrong;
  frame::put16(0, &without[kChecksumAt]);
  world.far->send(right);
  EXPECT_EQ(world.receive_all(), 1U);
  world.far->send(wrong);
  EXPECT_EQ(world.receive_all(), 0U);
  world.far->send(without);
  EXPECT_EQ(world.receive_all(), 1U);
}

// If both ends offload checksums, nothing in between completes them.
TEST_P(DpdkChecksums, ChecksumsStayPartialBetweenOffloadingEnds) {
  World world(GetParam(), true);
  const auto frame = world.send_one();
  EXPECT_NE(checksum_of(frame), 0);
  EXPECT_FALSE(has_right_udp_checksum(frame));
}

TEST(DpdkChecksumsOfBoth, PartialChecksumsAreAcceptedAndOffloadIsLogged) {
  const test::ScratchDirectory folder;
  const Pair pair(folder.path().string());
  std::string logged;
  const LogFunction keep = [](void* context, LogLevel /*level*/, std::string_view line) {
    static_cast<std::string*>(context)->append(line).append("\n");
  };
  const auto host = open_at(pair.host, ipv6(1), true, {keep, &logged});
  EXPECT_THAT(logged, HasSubstr("makes and checks UDP checksums; payloads are sent from the appl"));
  const auto nic = open_at(pair.nic, ipv6(2), true, {keep, &logged});
  EXPECT_THAT(logged, HasSubstr("makes and checks UDP checksums; payloads are copied: it"));
  const std::vector<uint8_t> header(100, 7);
  std::array<RxPacket, 16> packets;
  std::array<size_t, 2> arrived{};
  const std::array<PacketIo*, 2> ends = {host.get(), nic.get()};
  const Instant limit = rested_now() + kPatience;
  for (Instant now; now < limit && std::ranges::min(arrived) < 10;) {
    now = rested_now();
    for (size_t side = 0; side < 2; ++side) {
      const TxPacket packet{.header = header, .destination = &ends[1 - side]->local_address()};
      ends[side]->send({&packet, 1}, now);
      arrived[side] += ends[side]->receive(packets, now);
    }
  }
  EXPECT_GE(std::ranges::min(arrived), 10U);
  // Both know the other's MAC address by now, so none is lost unless its checksum seems wrong.
  for (size_t side = 0; side < 2; ++side) {
    while (ends[side]->receive(packets, rested_now()) > 0) {
    }
    const TxPacket packet{.header = header, .destination = &ends[side]->local_address()};
    size_t sent = 0;
    size_t received = 0;
    for (Instant now; now < limit && received < 10;) {
      now = rested_now();
      if (sent < 10) sent += ends[1 - side]->send({&packet, 1}, now);
      received += ends[side]->receive(packets, now);
    }
    EXPECT_EQ(sent, 10U);
    EXPECT_EQ(received, 10U);
  }
}

// The interface that net_tap creates when tests/support/with_nics runs this test.
class DpdkChecksumsOfTap : public testing::TestWithParam<std::string> {};
GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(DpdkChecksumsOfTap);
INSTANTIATE_TEST_SUITE_P(Interfaces, DpdkChecksumsOfTap,
                         testing::ValuesIn(std::getenv("WITH_NICS_INSIDE") != nullptr
                                               ? std::vector<std::string>{"sums0"}
                                               : std::vector<std::string>{}));

// The kernel drops an IPv6 datagram with a wrong checksum or with 0.
TEST_P(DpdkChecksumsOfTap, ChecksumsInteroperateWithTheKernel) {
  const std::string interface = GetParam();
  const auto end = open_at({.name = "net_tap0", .arguments = "iface=" + interface}, ipv6(1));
  EXPECT_TRUE(end->caps().checks_payload);
  const std::string set_up =
      "ip address add fd00::2/64 dev " + interface + " nodad && ip link set up dev " + interface;
  ASSERT_EQ(std::system(set_up.c_str()), 0);
  const Address to = ipv6(2);
  const UdpSocket kernel(socket(AF_INET6, SOCK_DGRAM | SOCK_NONBLOCK, 0));
  SocketAddress address;
  ASSERT_EQ(bind(kernel.get(), &address.any, to_sockaddr(to, address)), 0);
  const socklen_t length = to_sockaddr(ipv6(1), address);
  const std::vector<uint8_t> bytes(1000, 7);
  const std::span pieces(bytes);
  const TxPacket packet{.header = pieces.first(61),
                        .payload = pieces.subspan(61, 901),
                        .trailer = pieces.subspan(962),
                        .destination = &to};
  std::array<RxPacket, 16> packets;
  std::vector<uint8_t> buffer(2 * bytes.size());
  size_t received = 0;
  int taken = 0;
  const Instant limit = rested_now() + kPatience;
  for (Instant now; now < limit && (taken < 10 || received < 10);) {
    now = rested_now();
    end->send({&packet, 1}, now);
    sendto(kernel.get(), bytes.data(), bytes.size(), 0, &address.any, length);
    received += end->receive(packets, now);
    if (recv(kernel.get(), buffer.data(), buffer.size(), 0) == std::ssize(bytes)) ++taken;
  }
  EXPECT_GE(taken, 10);
  EXPECT_GE(received, 10U);
}

}  // namespace
}  // namespace pacecar::checksums_test

// The parts of the UDP packet I/O: addresses, interfaces, and what open_udp() refuses. The
// conformance suite tests delivery.
#include "transport/io/udp/udp_io.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "tests/support/descriptor_limit.h"
#include "tests/support/own_network.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/interfaces.h"
#include "transport/io/udp/parse_address.h"
#include "transport/io/udp/send_batch.h"
#include "transport/wire/address.h"
#include "transport/wire/roce.h"

namespace pacecar::udp_io_test {
namespace {

using testing::HasSubstr;

const Address kElsewhere = *parse_address("192.0.2.1:18515");

TEST(ParseAddress, ReadsWhatToStringWrites) {
  for (const char* text : {"192.0.2.1:18515", "[2001:db8::1]:0", "[fe80::1%1]:65535"}) {
    const auto address = parse_address(text);
    ASSERT_TRUE(address) << text;
    EXPECT_EQ(to_string(*address), text);
  }
  EXPECT_EQ(parse_address("[fe80::1%lo]:1"), *parse_address("[fe80::1%1]:1"));
}

TEST(ParseAddress, RefusesInvalidAddresses) {
  for (const std::string text : {"",
                                 ":",
                                 "192.0.2.1",
                                 "192.0.2.1:",
                                 "192.0.2.1:65536",
                                 "192.0.2.1:-1",
                                 "192.0.2.1:1x",
                                 "192.0.2:1",
                                 "host:1",
                                 "::1:1",
                                 "[::1]",
                                 "[]:1",
                                 "[::1:1",
                                 "[192.0.2.1]:1",
                                 "[fe80::1%]:1",
                                 "[fe80::1%no-such-interface]:1",
                                 "[fe80::1%0]:1",
                                 "[fe80::1%4294967296]:1",
                                 "[2001:db8::1%lo]:1",
                                 " 192.0.2.1:1"}) {
    const auto address = parse_address(text);
    ASSERT_FALSE(address) << text;
    EXPECT_THAT(address.error().message, HasSubstr("write 192.0.2.1:18515"));
  }
  EXPECT_FALSE(parse_address(std::string_view("192.0.2.1\0:1", 12)));
}

TEST(Interfaces, LoopbackIsDescribed) {
  const auto lo = find_interface("lo");
  ASSERT_TRUE(lo) << lo.error().message;
  EXPECT_TRUE(lo->loopback);
  EXPECT_TRUE(lo->up);
  EXPECT_GE(lo->mtu, 1280U);
  EXPECT_EQ(lo->speed, Rate());
  EXPECT_EQ(lo->pci_path, "");
  const Address localhost = *parse_address("127.0.0.1:0");
  EXPECT_THAT(lo->addresses, testing::Contains(localhost));
  EXPECT_EQ(preferred_address(*lo), localhost);
}

// A label, as of "ip address add 192.0.2.9 dev lo label lo:vip", is not an interface.
TEST(Interfaces, LabelledAddressesBelongToTheirInterface) {
  test::in_network(test::enter_own_network, [] {
    const FileDescriptor any(socket(AF_INET, SOCK_DGRAM, 0));
    ifreq request{};
    std::strcpy(request.ifr_name, "lo:vip");
    SocketAddress address{};
    to_sockaddr(kElsewhere, address);
    std::memcpy(&request.ifr_addr, &address.any, sizeof request.ifr_addr);
    ASSERT_EQ(ioctl(any.get(), SIOCSIFADDR, &request), 0);
    const auto interfaces = list_interfaces().value();
    for (const InterfaceInfo& interface : interfaces) {
      EXPECT_EQ(interface.name.find(':'), std::string::npos) << interface.name;
      if (interface.name != "lo") continue;
      Address labelled = kElsewhere;
      labelled.port = 0;
      EXPECT_THAT(interface.addresses, testing::Contains(labelled));
      EXPECT_GT(interface.mtu, 0U);
    }
  });
}

TEST(Interfaces, WithoutADescriptorTheErrorSaysSo) {
  const test::DescriptorLimit none;
  const auto found = find_interface("lo");
  ASSERT_FALSE(found);
  EXPECT_THAT(found.error().message, testing::HasSubstr("interfaces (Too many open files): raise"));
}

// Also where the device on PCI is the parent of the interface's device, as with virtio.
TEST(Interfaces, ThePathIsThatOfAPciDevice) {
  const auto interfaces = list_interfaces().value();
  for (const InterfaceInfo& interface : interfaces) {
    if (interface.pci_path.empty()) continue;
    const auto bus = std::filesystem::read_symlink(interface.pci_path + "/subsystem");
    EXPECT_EQ(bus.filename(), "pci") << interface.name << ": " << interface.pci_path;
  }
}

TEST(Interfaces, AddressesArePreferredInOrder) {
  InterfaceInfo info;
  EXPECT_EQ(preferred_address(info), std::nullopt);
  for (const char* text : {"[fe80::1%1]:0", "[2001:db8::1]:0", "127.0.0.1:0", "192.0.2.1:0"}) {
    info.addresses.push_back(*parse_address(text));
    EXPECT_EQ(preferred_address(info), info.addresses.back()) << text;
  }
  info.addresses.push_back(*parse_address("127.0.0.2:0"));
  EXPECT_EQ(preferred_address(info), *parse_address("192.0.2.1:0"));
}

TEST(OpenUdp, ErrorsNameTheMistake) {
  const auto message = [](const SocketConfig& config) {
    const auto io = open_udp(config);
    return io ? std::string("opened") : io.error().message;
  };
  SocketConfig config;
  config.interface = "no-such-interface";
  EXPECT_THAT(message(config), HasSubstr("choose one of"));
  config.interface = "lo";
  config.address = kElsewhere;
  EXPECT_THAT(message(config), HasSubstr("does not have the address 192.0.2.1"));
}

TEST(OpenUdp, CapsFollowTheConfiguration) {
  SocketConfig config;
  config.interface = "lo";
  config.paths = 3;
  const auto io = open_udp(config);
  ASSERT_TRUE(io) << io.error().message;
  EXPECT_EQ((*io)->caps().paths, 3U);
  EXPECT_EQ((*io)->caps().datagram_bytes, SendBatch::kMaxGroupBytes)
      << "the loopback's MTU is larger";
  EXPECT_TRUE((*io)->caps().checks_payload);
  EXPECT_EQ((*io)->caps().line_rate, Rate());
  SocketConfig same_port = config;
  same_port.port = (*io)->local_address().port;
  EXPECT_FALSE(open_udp(same_port));
}

TEST(OpenUdp, ReceivesOnTheFirstFreePortOfTheRange) {
  SocketConfig config;
  config.interface = "lo";
  const auto any = open_udp(config).value();
  const uint16_t first = any->local_address().port;
  config.ports = {.first = first, .last = static_cast<uint16_t>(first + 1)};
  const auto next = open_udp(config);
  ASSERT_TRUE(next) << next.error().message;
  EXPECT_EQ((*next)->local_address().port, first + 1);
  const auto none = open_udp(config);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, fmt::format("all UDP ports of PACECAR_PORTS={}-{} on 127.0.0.1 "
                                              "are taken: widen the range",
                                              first, first + 1));
}

TEST(OpenUdp, ControlPacketsAreNotEcnCapable) {
  SocketConfig config;
  config.interface = "lo";
  config.data_tc = 0xFF;  // the caller does not decide the ECN bits
  config.control_tc = 0xFF;
  const auto io = open_udp(config);
  ASSERT_TRUE(io) << io.error().message;
  const std::vector<uint8_t> bytes(64, 1);
  TxPacket packet;
  packet.header = bytes;
  packet.destination = &(*io)->local_address();
  packet.traffic_class = TrafficClass::kControl;
  ASSERT_EQ((*io)->send({&packet, 1}, Instant()), 1U);
  RxPacket received;
  while ((*io)->receive({&received, 1}, Instant()) == 0) {
  }
  EXPECT_EQ(received.ecn, Ecn::kNotCapable);
}

// A socket is connected to a peer to which it sends repeatedly; other peers are still reached.
TEST(OpenUdp, ConnectedSocketStillReachesOtherPeers) {
  const SocketConfig config{.interface = "lo", .paths = 1};
  const auto sender = open_udp(config).value();
  const std::array<std::unique_ptr<PacketIo>, 2> peers{open_udp(config).value(),
                                                       open_udp(config).value()};
  const std::vector<uint8_t> payload(100, 7);
  const auto arrived = [](PacketIo& io) {
    std::array<RxPacket, 64> packets;
    size_t count = 0;
    while (const size_t more = io.receive(packets, Instant())) count += more;
    return count;
  };
  for (const size_t to : {0U, 1U, 0U, 1U}) {
    for (int i = 0; i < 40; ++i) {  // enough to connect the socket
      const TxPacket packet{.header = payload,
                            .payload = {},
                            .trailer = {},
                            .destination = &peers[to]->local_address()};
      ASSERT_EQ(sender->send({&packet, 1}, Instant()), 1U);
    }
    EXPECT_EQ(arrived(*peers[to]), 40U);
    EXPECT_EQ(arrived(*peers[1 - to]), 0U);
  }
}

TEST(OpenUdp, DatagramsWithAnotherBeginningAreDropped) {
  SocketConfig config{.interface = "lo", .paths = 1};
  const auto sender = open_udp(config).value();
  config.beginning_bits = 0xFC00'0000'00FF'0000;
  config.beginning = 0xC000'0000'0012'0000;
  const auto receiver = open_udp(config).value();
  using Bytes = std::vector<uint8_t>;
  const Bytes good{0xC3, 1, 2, 3, 4, 0x12, 5, 6};
  for (const Bytes& bytes : {Bytes{0xC0, 0, 0, 0, 0, 0x13, 0, 0}, Bytes{0x80, 0, 0, 0, 0, 0x12, 0},
                             Bytes{0xC0, 0, 0, 0, 0, 0x12}, Bytes{0xC0}, good}) {
    const TxPacket packet{
        .header = bytes, .payload = {}, .trailer = {}, .destination = &receiver->local_address()};
    ASSERT_EQ(sender->send({&packet, 1}, Instant()), 1U);
  }
  std::array<RxPacket, 8> received;
  ASSERT_EQ(receiver->receive(received, Instant()), 1U);
  EXPECT_TRUE(std::ranges::equal(received[0].bytes, good));
}

// Anyone can forge the ICMP message "port unreachable". The kernel reports it as an error of the
// next send, and does not send that packet.
TEST(OpenUdp, IcmpErrorsLoseNoPacket) {
  SocketConfig config{.interface = "lo", .paths = 1};
  const auto sender = open_udp(config).value();
  // A port below the range of the kernel, so that it stays free while the peer is closed.
  config.port = static_cast<uint16_t>(10'000 + getpid() % 20'000);
  auto opened = open_udp(config);
  for (int i = 0; i < 1000 && !opened; ++i) {
    ++config.port;
    opened = open_udp(config);
  }
  auto peer = std::move(opened).value();
  const Address there = peer->local_address();
  const std::vector<uint8_t> payload(100, 7);
  const TxPacket packet{.header = payload, .payload = {}, .trailer = {}, .destination = &there};
  const auto send = [&] { ASSERT_EQ(sender->send({&packet, 1}, Instant()), 1U); };
  for (int i = 0; i < 40; ++i) send();  // enough to connect the socket
  for (int i = 0; i < 3; ++i) {
    peer.reset();
    send();  // "port unreachable" comes back
    peer = open_udp(config).value();
    send();
    RxPacket received;
    EXPECT_EQ(peer->receive({&received, 1}, Instant()), 1U);
  }
}

TEST(OpenUdp, PacketsToImpossibleDestinationsAreLostAlone) {
  SocketConfig config;
  config.interface = "lo";
  const auto io = open_udp(config);
  ASSERT_TRUE(io) << io.error().message;
  const std::vector<uint8_t> bytes(64, 1);
  const Address broadcast = *parse_address("255.255.255.255:1");
  std::vector<TxPacket> packets(6);
  for (TxPacket& packet : packets) {
    packet.header = bytes;
    packet.destination = &(*io)->local_address();
  }
  packets[2].destination = packets[3].destination = &broadcast;
  ASSERT_EQ((*io)->send(packets, Instant()), 6U);
  std::vector<RxPacket> received(8);
  size_t arrived = 0;
  while (const size_t count = (*io)->receive(received, Instant())) arrived += count;
  EXPECT_EQ(arrived, 4U);
  EXPECT_GT((*io)->caps().burst_bytes, 4140U);  // joined datagrams are still used
}

}  // namespace
}  // namespace pacecar::udp_io_test

// The packet I/O conformance suite over raw IPv4 sockets on the loopback, where they are allowed.
#include <poll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include <stdexcept>
#include <thread>

#include "tests/conformance/packet_io_conformance.h"
#include "tests/support/under_sanitizer.h"
#include "transport/io/raw/raw_io.h"
#include "transport/io/sockaddr.h"
#include "transport/io/udp/udp_socket.h"
#include "transport/wire/address.h"

namespace pacecar::packet_io_raw_test {
namespace {

Instant monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(t.tv_sec * 1'000'000'000 + t.tv_nsec);
}

// The port is fixed, so each process uses its own addresses.
Address address_of(uint8_t host) {
  const auto process = static_cast<uint32_t>(getpid());
  return {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 127,
                 static_cast<uint8_t>(16 | (process >> 8 & 0x7F)), static_cast<uint8_t>(process),
                 host}};
}

Result<std::unique_ptr<PacketIo>> open_end(uint8_t host) {
  return open_raw({.interface = "lo", .address = address_of(host)});
}

PacketIoWorld loopback() {
  PacketIoWorld world;
  std::vector<pollfd> descriptors;
  for (uint8_t host = 1; host <= 3; ++host) {
    auto io = open_end(host);
    if (!io) throw std::runtime_error(io.error().message);
    world.ends.push_back(std::move(*io));
    descriptors.push_back({world.ends.back()->wait_fd(), POLLIN, 0});
  }
  world.step = [descriptors]() mutable {
    poll(descriptors.data(), descriptors.size(), 1);
    return monotonic_now();
  };
  return world;
}

// Empty without the privilege; then one test is skipped with the reason.
std::vector<PacketIoCase> cases() {
  if (const auto io = open_end(1); !io && io.error().code == ErrorCode::kPermission) return {};
  return {PacketIoCase{"loopback", loopback}};
}

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PacketIoConformance);
INSTANTIATE_TEST_SUITE_P(Raw, PacketIoConformance, testing::ValuesIn(cases()), case_name);

TEST(RawIo, ReportsTheIpv4Identification) {
  const auto from = open_end(1);
  if (!from && from.error().code == ErrorCode::kPermission) {
    GTEST_SKIP() << from.error().message;
  }
  const auto to = open_end(2);
  ASSERT_TRUE(from && to);
  const Letter letter(1, 16, 100, 4);
  const TxPacket packet = letter.to((*to)->local_address(), 1);
  ASSERT_EQ((*from)->send({&packet, 1}, monotonic_now()), 1U);
  std::array<RxPacket, 4> received;
  size_t count = 0;
  const Instant give_up = monotonic_now() + Duration::from_s(10);
  while (count == 0 && monotonic_now() < give_up) {
    count = (*to)->receive(received, monotonic_now());
  }
  ASSERT_EQ(count, 1U);
  EXPECT_EQ(received[0].ipv4_fragment, kIpv4Fragment);
  EXPECT_EQ(received[0].source->port, (*from)->source_port(1, TrafficClass::kData));
}

TEST(RawIo, ReceivesNoPacketsOfOthersWhileOpening) {
  UdpSocket target(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  SocketAddress name;
  const socklen_t length = to_sockaddr(address_of(4), name);
  ASSERT_EQ(bind(target.get(), &name.any, length), 0);
  socklen_t size = sizeof name;
  ASSERT_EQ(getsockname(target.get(), &name.any, &size), 0);
  std::jthread others([&](const std::stop_token& stop) {
    const UdpSocket from(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    const std::vector<uint8_t> letter(60'000);
    while (!stop.stop_requested()) {
      sendto(from.get(), letter.data(), letter.size(), 0, &name.any, size);
    }
  });
  for (size_t i = 0; i < test::rounds(2000); ++i) {
    const auto io = open_end(1);
    if (!io && io.error().code == ErrorCode::kPermission) GTEST_SKIP() << io.error().message;
    ASSERT_TRUE(io);
    std::array<RxPacket, 4> received;
    ASSERT_EQ((*io)->receive(received, monotonic_now()), 0U) << i;
  }
}

TEST(RawIo, SecondSocketOnAnAddressIsRefused) {
  const auto first = open_end(1);
  if (!first && first.error().code == ErrorCode::kPermission) {
    GTEST_SKIP() << first.error().message;
  }
  ASSERT_TRUE(first);
  const auto second = open_end(1);
  ASSERT_FALSE(second);
  const std::string taken = ip_to_string(address_of(1)) + ":4791 is taken";
  EXPECT_NE(second.error().message.find(taken), std::string::npos) << second.error().message;
}

}  // namespace
}  // namespace pacecar::packet_io_raw_test

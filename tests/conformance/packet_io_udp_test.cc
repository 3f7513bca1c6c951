// The packet I/O conformance suite over UDP loopback, bare and under each decorator.
#include <poll.h>
#include <time.h>

#include <stdexcept>

#include "tests/conformance/packet_io_conformance.h"
#include "transport/io/decorators/fault.h"
#include "transport/io/decorators/pcap.h"
#include "transport/io/udp/udp_io.h"

namespace pacecar::packet_io_udp_test {
namespace {

using Wrap = std::unique_ptr<PacketIo> (*)(std::unique_ptr<PacketIo>);

Instant monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(t.tv_sec * 1'000'000'000 + t.tv_nsec);
}

PacketIoWorld make_udp_world(bool ipv6, Wrap wrap) {
  PacketIoWorld world;
  std::vector<pollfd> descriptors;
  for (int i = 0; i < 3; ++i) {
    SocketConfig config;
    config.interface = "lo";
    config.socket_buffer = 4 << 20;
    if (ipv6) config.address = Address{.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1}};
    auto io = open_udp(config);
    if (!io) throw std::runtime_error(io.error().message);
    world.ends.push_back(wrap(std::move(*io)));
    descriptors.push_back({world.ends.back()->wait_fd(), POLLIN, 0});
  }
  world.step = [descriptors]() mutable {
    poll(descriptors.data(), descriptors.size(), 1);
    return monotonic_now();
  };
  return world;
}

std::unique_ptr<PacketIo> bare(std::unique_ptr<PacketIo> io) { return io; }

std::unique_ptr<PacketIo> with_faults_off(std::unique_ptr<PacketIo> io) {
  return inject_faults(std::move(io), FaultConfig());
}

std::unique_ptr<PacketIo> with_pcap(std::unique_ptr<PacketIo> io) {
  auto recorder = record_packets(std::move(io), "/dev/null", LogSink());
  if (!recorder) throw std::runtime_error(recorder.error().message);
  return std::move(*recorder);
}

INSTANTIATE_TEST_SUITE_P(
    Udp, PacketIoConformance,
    testing::Values(PacketIoCase{"ipv4", [] { return make_udp_world(false, bare); }},
                    PacketIoCase{"ipv6", [] { return make_udp_world(true, bare); }},
                    PacketIoCase{"faults_off",
                                 [] { return make_udp_world(false, with_faults_off); }},
                    PacketIoCase{"pcap", [] { return make_udp_world(true, with_pcap); }}),
    case_name);

}  // namespace
}  // namespace pacecar::packet_io_udp_test

// The packet I/O conformance suite over the simulated fabric.
#include "tests/conformance/packet_io_conformance.h"
#include "tests/support/sim_star.h"

namespace pacecar::packet_io_sim_test {
namespace {

using test::SimStar;
using test::star_config;

// A port that keeps its network alive.
class OwningPort final : public PacketIo {
 public:
  OwningPort(std::shared_ptr<SimStar> network, size_t index)
      : network_(std::move(network)), port_(network_->port(index)) {}

  const PacketIoCaps& caps() const override { return port_.caps(); }
  const Address& local_address() const override { return port_.local_address(); }
  uint16_t source_port(uint16_t path, TrafficClass traffic_class) const override {
    return port_.source_port(path, traffic_class);
  }
  size_t send(std::span<const TxPacket> packets, Instant now) override {
    return port_.send(packets, now);
  }
  size_t receive(std::span<RxPacket> packets, Instant now) override {
    return port_.receive(packets, now);
  }
  int wait_fd() const override { return port_.wait_fd(); }

 private:
  std::shared_ptr<SimStar> network_;
  PacketIo& port_;
};

PacketIoWorld make_sim_world(const FabricConfig& config) {
  constexpr size_t kEnds = 3;
  const auto network = std::make_shared<SimStar>(kEnds, config);
  PacketIoWorld world;
  for (size_t i = 0; i < kEnds; ++i) {
    world.ends.push_back(std::make_unique<OwningPort>(network, i));
  }
  world.step = [network] {
    network->advance_to(network->now() + Duration::from_us(10));
    return network->now();
  };
  return world;
}

PacketIoWorld plain() { return make_sim_world(star_config()); }

PacketIoWorld marking() {
  FabricConfig config = star_config();
  config.switches.ecn = {.kind = EcnConfig::Kind::kStep, .low = 128 << 10};
  return make_sim_world(config);
}

PacketIoWorld narrow() {
  FabricConfig config = star_config();
  config.hosts.data_queue_bytes = config.hosts.datagram_bytes + config.hosts.overhead_bytes;
  config.hosts.control_queue_bytes = config.hosts.data_queue_bytes;
  config.switches.queue_bytes = config.hosts.inbox_bytes;
  return make_sim_world(config);
}

PacketIoWorld lossless() {
  FabricConfig config = star_config();
  config.switches.queue_bytes = 0;
  config.switches.buffer_bytes = 64 << 10;
  config.switches.pfc.enabled = true;
  return make_sim_world(config);
}

INSTANTIATE_TEST_SUITE_P(Sim, PacketIoConformance,
                         testing::Values(PacketIoCase{"plain", plain},
                                         PacketIoCase{"marking", marking},
                                         PacketIoCase{"narrow", narrow},
                                         PacketIoCase{"lossless", lossless}),
                         case_name);

}  // namespace
}  // namespace pacecar::packet_io_sim_test

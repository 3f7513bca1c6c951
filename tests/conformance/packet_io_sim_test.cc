// The packet I/O conformance suite over the simulated network.
#include "tests/conformance/packet_io_conformance.h"
#include "transport/sim/sim_network.h"

namespace pacecar {
namespace {

// A port that keeps its network alive.
class OwningPort final : public PacketIo {
 public:
  OwningPort(std::shared_ptr<SimNetwork> network, size_t index)
      : network_(std::move(network)), port_(network_->port(index)) {}

  const PacketIoCaps& caps() const override { return port_.caps(); }
  const Address& local_address() const override { return port_.local_address(); }
  size_t send(std::span<const TxPacket> packets, Instant now) override {
    return port_.send(packets, now);
  }
  size_t receive(std::span<RxPacket> packets, Instant now) override {
    return port_.receive(packets, now);
  }
  int wait_fd() const override { return port_.wait_fd(); }
  const PacketIoCounters& counters() const override { return port_.counters(); }

 private:
  std::shared_ptr<SimNetwork> network_;
  PacketIo& port_;
};

PacketIoWorld make_sim_world(const SimConfig& config) {
  const auto network = std::make_shared<SimNetwork>(config, 1);
  PacketIoWorld world;
  for (size_t i = 0; i < config.ports; ++i) {
    world.ends.push_back(std::make_unique<OwningPort>(network, i));
  }
  world.step = [network] {
    network->advance_to(network->now() + Duration::from_us(10));
    return network->now();
  };
  return world;
}

PacketIoWorld plain() { return make_sim_world(SimConfig{.ports = 3}); }

PacketIoWorld marking() {
  SimConfig config{.ports = 3};
  config.down.ecn_threshold_bytes = 128 << 10;
  return make_sim_world(config);
}

PacketIoWorld narrow() {
  SimConfig config{.ports = 3};
  config.up.queue_bytes = config.datagram_bytes;
  config.down.queue_bytes = config.inbox_bytes;
  return make_sim_world(config);
}

INSTANTIATE_TEST_SUITE_P(Sim, PacketIoConformance,
                         testing::Values(PacketIoCase{"plain", plain},
                                         PacketIoCase{"marking", marking},
                                         PacketIoCase{"narrow", narrow}),
                         case_name);

}  // namespace
}  // namespace pacecar

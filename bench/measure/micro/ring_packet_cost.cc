// ring_packet_cost PACKETS: as packet_cost, but over two DPDK devices joined by rings (net_ring),
// with the devices' frames, buffers and copies of payloads.
#include <rte_eth_ring.h>
#include <rte_ring.h>

#include <array>
#include <memory>
#include <string>

#include "bench/cli/must.h"
#include "bench/measure/micro/nic_pair.h"
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/dpdk/eal.h"

namespace pacecar {
namespace {

class RingWire final : public Wire {
 public:
  RingWire() {
    constexpr unsigned kSlots = 1024;
    must(start_eal("", false, LogSink()));
    // They live as long as the process.
    std::array<rte_ring*, 2> rings = {rte_ring_create("forth", kSlots, SOCKET_ID_ANY, 0),
                                      rte_ring_create("back", kSlots, SOCKET_ID_ANY, 0)};
    const bool made = rings[0] != nullptr && rings[1] != nullptr &&
                      rte_eth_from_rings("a", &rings[1], 1, &rings[0], 1, 0) >= 0 &&
                      rte_eth_from_rings("b", &rings[0], 1, &rings[1], 1, 0) >= 0;
    if (!made) give_up("DPDK makes no ring devices");
    ios_ = {open_end("a"), open_end("b")};
  }

  const Address& address(size_t side) const override { return ios_[side]->local_address(); }
  size_t carry(size_t from, std::span<const TxPacket> packets, std::span<RxPacket, kBurst> arrived,
               Instant now) override {
    ios_[from]->send(packets, now);
    return ios_[1 - from]->receive(arrived, now);
  }

 private:
  static std::unique_ptr<PacketIo> open_end(const std::string& name) {
    constexpr Bytes kHeaders = 128;  // room for all headers of a packet
    DpdkDevice device{.name = "net_ring_" + name};
    device.mtu = kCostMtu + kHeaders;
    return must(open_dpdk({.device = device}, LogSink())).io;
  }

  std::array<std::unique_ptr<PacketIo>, 2> ios_;
};

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  return pacecar::cost_main(argc, argv, [](uint64_t packets) {
    pacecar::RingWire wire;
    return pacecar::move_packets(packets, wire);
  });
}

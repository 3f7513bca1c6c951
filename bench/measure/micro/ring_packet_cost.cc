// ring_packet_cost PACKETS: as packet_cost, but over two DPDK devices joined by rings (net_ring),
// with the devices' frames, buffers and copies of payloads.
#include <fmt/format.h>
#include <rte_eth_ring.h>
#include <rte_ring.h>

#include <utility>

#include "bench/measure/micro/nic_pair.h"
#include "transport/base/return_if_error.h"
#include "transport/io/dpdk/dpdk_io.h"
#include "transport/io/dpdk/eal.h"

namespace pacecar {
namespace {

constexpr unsigned kSlots = 1024;
constexpr Bytes kHeaders = 128;  // room for all of them

class RingWire final : public Wire {
 public:
  explicit RingWire(std::array<std::unique_ptr<PacketIo>, 2> ios) : ios_(std::move(ios)) {}

  const Address& address(size_t side) const override { return ios_[side]->local_address(); }
  size_t carry(size_t from, std::span<const TxPacket> packets, std::span<RxPacket, kBurst> arrived,
               Instant now) override {
    ios_[from]->send(packets, now);
    return ios_[1 - from]->receive(arrived, now);
  }

 private:
  std::array<std::unique_ptr<PacketIo>, 2> ios_;
};

Result<std::unique_ptr<PacketIo>> open_end(const std::string& name, Bytes mtu) {
  DpdkDevice device{.name = "net_ring_" + name};
  device.mtu = mtu + kHeaders;
  ASSIGN_OR_RETURN(auto opened, open_dpdk({.device = device}, LogSink()));
  return std::move(opened.io);
}

Result<std::unique_ptr<Wire>> open_wire(Bytes mtu) {
  RETURN_IF_ERROR(start_eal("", false, LogSink()));
  // They live as long as the process.
  std::array<rte_ring*, 2> rings = {rte_ring_create("forth", kSlots, SOCKET_ID_ANY, 0),
                                    rte_ring_create("back", kSlots, SOCKET_ID_ANY, 0)};
  const bool made = rings[0] != nullptr && rings[1] != nullptr &&
                    rte_eth_from_rings("a", &rings[1], 1, &rings[0], 1, 0) >= 0 &&
                    rte_eth_from_rings("b", &rings[0], 1, &rings[1], 1, 0) >= 0;
  if (!made) return fail(ErrorCode::kSystem, "DPDK makes no ring devices");
  ASSIGN_OR_RETURN(auto a, open_end("a", mtu));
  ASSIGN_OR_RETURN(auto b, open_end("b", mtu));
  return std::make_unique<RingWire>(std::array{std::move(a), std::move(b)});
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  const uint64_t packets = pacecar::packets_to_move(argc, argv);
  if (packets == 0) return 2;
  const auto wire = pacecar::open_wire(pacecar::kCostMtu);
  if (!wire) {
    fmt::print(stderr, "{}\n", wire.error().message);
    return 1;
  }
  return pacecar::move_packets(packets, **wire) ? 0 : 1;
}

// ring_packet_cost PACKETS: as packet_cost, but over two DPDK devices joined by rings (net_ring),
// with the devices' frames, buffers and copies of payloads.
#include "bench/measure/micro/ring_wire.h"

int main(int argc, char** argv) {
  return pacecar::cost_main(argc, argv, [](uint64_t packets) {
    pacecar::RingWire wire;
    return pacecar::move_packets(packets, wire);
  });
}

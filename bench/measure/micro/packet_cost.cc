// packet_cost PACKETS: moves so many packets of 4 KiB between two software NICs joined in memory,
// payloads as lengths only. For instruction_counts.py, which counts instructions per packet.
#include "bench/measure/micro/nic_pair.h"

int main(int argc, char** argv) {
  pacecar::MemoryWire wire(pacecar::kCostMtu, pacecar::MemoryWire::Payload::kElided);
  return pacecar::cost_main(argc, argv,
                            [&](uint64_t packets) { return pacecar::move_packets(packets, wire); });
}

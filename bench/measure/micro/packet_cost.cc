// packet_cost PACKETS: moves so many packets of 4 KiB between two software NICs joined in memory,
// payloads as lengths only. For instruction_counts.py, which counts instructions per packet.
#include "bench/measure/micro/nic_pair.h"

int main(int argc, char** argv) {
  const uint64_t packets = pacecar::packets_to_move(argc, argv);
  if (packets == 0) return 2;
  pacecar::MemoryWire wire(pacecar::kCostMtu, pacecar::MemoryWire::Payload::kElided);
  return pacecar::move_packets(packets, wire) ? 0 : 1;
}

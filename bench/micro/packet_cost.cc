// packet_cost PACKETS: moves so many packets of 4 KiB between two software NICs joined in memory,
// payloads as lengths only. For instruction_counts.py, which counts what each takes.
#include <CLI/CLI.hpp>

#include "bench/micro/nic_pair.h"

int main(int argc, char** argv) {
  CLI::App app{"moves packets of 4 KiB between two software NICs joined in memory"};
  uint64_t packets = 0;
  app.add_option("packets", packets, "how many")->required()->check(CLI::Range(1, 1'000'000));
  CLI11_PARSE(app, argc, argv);
  pacecar::MemoryWire wire(pacecar::kCostMtu, pacecar::MemoryWire::Payload::kElided);
  return pacecar::move_packets(packets, wire) ? 0 : 1;
}

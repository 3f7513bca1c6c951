// packet_cost PACKETS [off|auth|encrypt]: moves PACKETS packets of 4 KiB between two software NICs
// joined in memory. Alone, payloads are lengths only, for instruction_counts.py. With a security
// they are copied, and the time of a packet, of both NICs together, is printed.
#include <algorithm>
#include <chrono>
#include <string_view>

#include "bench/measure/micro/nic_pair.h"

namespace pacecar {
namespace {

constexpr std::string_view kSecurities[] = {"off", "auth", "encrypt"};  // by Security

bool move_timed(uint64_t packets, Security security) {
  MemoryWire wire(kCostMtu, MemoryWire::Payload::kCopied);
  const auto begin = std::chrono::steady_clock::now();
  const bool moved = move_packets(packets, wire, security);
  const std::chrono::duration<double, std::nano> time = std::chrono::steady_clock::now() - begin;
  std::printf("%.0f ns per packet\n", time.count() / static_cast<double>(packets));
  return moved;
}

}  // namespace
}  // namespace pacecar

int main(int argc, char** argv) {
  using namespace pacecar;
  const std::string_view word = argc == 3 ? argv[2] : "";
  const auto* const found = std::ranges::find(kSecurities, word);
  const bool timed = found != std::end(kSecurities);
  return cost_main(timed ? argc - 1 : argc, argv, [&](uint64_t packets) {
    if (timed) return move_timed(packets, static_cast<Security>(found - kSecurities));
    MemoryWire wire(kCostMtu, MemoryWire::Payload::kElided);
    return move_packets(packets, wire);
  });
}

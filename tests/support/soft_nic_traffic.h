// One write between two software NICs, with the settings of the experiments: packets are sent one
// by one. Virtual time; one thread.
#pragma once

#include <array>
#include <vector>

#include "tests/support/soft_nic_pair.h"

namespace pacecar::test {

inline constexpr Bytes kMtu = 1024;

inline SoftNicConfig experiment() {
  SoftNicConfig config = SoftNicPair::default_config();
  config.burst_bytes = kMtu;
  config.control_first = true;
  return config;
}

struct Traffic {
  explicit Traffic(const SoftNicConfig& config, size_t packets = 8)
      : pair(config), count(packets) {}

  void post(uint64_t id = 1, bool awaited = false) {
    WorkRequest write = SoftNicPair::write(from, to, count * kMtu, id, 1);
    write.awaited = awaited;
    pair.post(0, ends[0], write);
  }
  // The packets that the sender sends within the next microsecond.
  std::vector<Datagram> send() { return pair.transmit_for(0, Duration::from_us(1)); }
  FlowSignal signal() {
    std::array<FlowSignal, 1> signals;
    return pair.nic(0).poll_signals(signals) == 1 ? signals[0] : FlowSignal{};
  }
  void deliver(size_t to_side, const std::vector<Datagram>& packets) {
    for (const Datagram& packet : packets) pair.deliver(to_side, packet);
  }

  SoftNicPair pair;
  size_t count;
  SoftNicPair::Ends ends = pair.connect();
  const TestMemory& from = pair.memory(0, count* kMtu, Access::kLocalRead, 1);
  const TestMemory& to = pair.memory(1, count* kMtu);
};

}  // namespace pacecar::test

// One host of a simulated network: the production software NIC, messenger and poll loop. Virtual
// time; one thread.
#pragma once

#include <algorithm>
#include <memory>
#include <vector>

#include "tests/support/connect_messengers.h"
#include "tests/support/prng_source.h"
#include "tests/support/sim_star.h"
#include "transport/engine/poll_loop.h"
#include "transport/engine/soft_port.h"
#include "transport/message/messenger.h"
#include "transport/softnic/soft_nic.h"

namespace pacecar::test {

struct SimHostConfig {
  Bytes mtu = 1024;
  Bytes burst_bytes = 4096;
  uint32_t window_packets = 128;
  Rate line_rate = Rate::from_gbps(100);
  Rate rate_max;
  Duration silence_limit = Duration::from_s(10);
  std::string congestion_control = "swift";
  std::string allocator;
  size_t transmit = SoftPort::kMaxTransmit;  // packets that the NIC builds at a time
  bool control_first = false;
  uint32_t eager = 0;
  uint32_t connections = 64;
  WireMode wire_mode = WireMode::kExtended;
};

class SimHost {
 public:
  SimHost(SimStar& network, size_t port, uint64_t seed, const SimHostConfig& config = {})
      : random_(seed),
        nic_(SoftNicConfig{.address = network.port(port).local_address(),
                           .line_rate = config.line_rate,
                           .mtu = config.mtu,
                           .burst_bytes = config.burst_bytes,
                           .paths = network.port(port).caps().paths,
                           .flows = 16,
                           .queue_pairs = 32,
                           .regions = 448 + config.connections,
                           .window_packets = config.window_packets,
                           .control_first = config.control_first,
                           .wire_mode = config.wire_mode,
                           .source_ports = source_ports(network.port(port)),
                           .silence_limit = config.silence_limit * 6 / 10},
             random_source(random_), network.now()),
        messenger_(std::move(Messenger::create(nic_,
                                               MessengerConfig{
                                                   .identity = identity_of(port),
                                                   .congestion_control = config.congestion_control,
                                                   .allocator = config.allocator,
                                                   .line_rate = config.line_rate,
                                                   .rate_max = config.rate_max,
                                                   .max_connections = config.connections,
                                                   .silence_limit = config.silence_limit,
                                                   .keep_alive = config.silence_limit / 5,
                                                   .first_flow_number = random_.next_u64(),
                                                   .eager = config.eager,
                                               },
                                               network.now())
                                 .value())),
        port_(network.port(port), nic_, config.transmit),
        loop_(port_, *messenger_) {}

  static NicIdentity identity_of(size_t port) { return identity_of_host(port); }

  void step(Instant now) {
    while (loop_.receive(now) > 0) {
    }
    while (loop_.advance(now) > 0) {
    }
  }
  Instant next_deadline() const { return loop_.next_deadline(); }
  Messenger& messenger() { return *messenger_; }
  SoftNic& nic() { return nic_; }

 private:
  Prng random_;
  SoftNic nic_;
  std::unique_ptr<Messenger> messenger_;
  SoftPort port_;
  PollLoop loop_;
};

inline ConnectionPair connect(SimHost& from, SimHost& to, size_t to_port, Instant now,
                              uint32_t weight = 0) {
  return connect_messengers(from.messenger(), to.messenger(), to_port, now, weight);
}

// Runs all hosts until `done` or `limit`; false when the limit came first.
template <typename Done>
bool run(SimStar& network, std::vector<std::unique_ptr<SimHost>>& hosts, Instant limit, Done done) {
  while (!done()) {
    const Instant now = network.now();
    if (now >= limit) return false;
    Instant next = network.next_event();
    for (auto& host : hosts) {
      host->step(now);
      next = std::min(next, host->next_deadline());
    }
    next = std::min(next, network.next_event());
    // At least a nanosecond: the deadline of a host that is blocked on its link is "now".
    network.advance_to(std::clamp(next, now + Duration::from_ns(1), limit));
  }
  return true;
}

}  // namespace pacecar::test

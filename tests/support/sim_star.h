// A simulated fabric for tests of correctness: hosts at one switch, and packets with real bytes.
// Virtual time; one thread.
#pragma once

#include <memory>
#include <utility>

#include "transport/sim/event_loop.h"
#include "transport/sim/fabric.h"
#include "transport/sim/topologies.h"

namespace pacecar::test {

inline FabricConfig star_config() {
  FabricConfig config;
  config.switches.queue_bytes = 1 << 20;
  config.hosts.data_queue_bytes = 1 << 20;
  config.hosts.control_queue_bytes = 1 << 20;
  config.hosts.paths = 4;
  config.payload = PayloadMode::kBytes;
  config.packets = 8192;
  return config;
}

class SimStar {
 public:
  explicit SimStar(uint32_t hosts = 2, const FabricConfig& config = star_config(),
                   const CableSpec& cable = {}, uint64_t seed = 1)
      : fabric_(std::move(
            Fabric::create(loop_, make_star({.hosts = hosts, .cable = cable}).value(), config, seed)
                .value())) {}

  Fabric& fabric() { return *fabric_; }
  PacketIo& port(size_t host) { return fabric_->port(static_cast<uint32_t>(host)); }

  Instant now() const { return loop_.now(); }
  // The time of the fabric's next event.
  Instant next_event() const { return loop_.next_time(); }
  void advance_to(Instant time) { loop_.run_until(time); }

 private:
  EventLoop loop_;
  std::unique_ptr<Fabric> fabric_;
};

}  // namespace pacecar::test

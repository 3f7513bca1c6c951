// Two software NICs of several cores over UDP loopback: the caller polls the first cores, threads
// poll the others.
#pragma once

#include <array>
#include <memory>
#include <utility>
#include <vector>

#include "tests/support/prng_source.h"
#include "tests/support/turned_nics.h"
#include "transport/engine/clock.h"
#include "transport/engine/cores/multi_core_port.h"
#include "transport/io/udp/udp_io.h"

namespace pacecar::test {

class TwoCoresLoopback {
 public:
  // `silence`: longer than a busy machine may stop a thread.
  explicit TwoCoresLoopback(std::array<size_t, 2> cores = {2, 2},
                            Duration silence = Duration::from_s(5)) {
    for (size_t side = 0; side < 2; ++side) {
      std::vector<std::unique_ptr<SoftPort>> ports;
      Secret seed{};
      seed[0] = static_cast<uint8_t>(side + 1);
      for (size_t i = 0; i < cores[side]; ++i) {
        OwnCore& core =
            *cores_.emplace_back(std::make_unique<OwnCore>(side * 10 + i + 1, seed, silence));
        ports.push_back(
            std::make_unique<SoftPort>(*core.io, core.nic, SoftPort::kMaxTransmit, clock_now));
      }
      const CoreThreadConfig config{.clock = clock_now, .spin = Duration::from_us(20)};
      turned_.nics[side] = std::move(MultiCorePort::make(std::move(ports), config).value());
    }
  }

  MultiCorePort& port(size_t side) { return *turned_.nics[side]; }
  MultiCoreNic& nic(size_t side) { return port(side).nic(); }
  Instant step() { return turned_.step(); }

  std::array<QueuePairId, 2> connect() {
    std::array<QueuePairId, 2> ends{};
    for (size_t side = 0; side < 2; ++side) {
      ends[side] = nic(side).create_queue_pair({}).value();
      nic(side).set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = 1 << 20}, clock_now());
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nic(1 - side).queue_pair_address(ends[1 - side]);
      PACECAR_CHECK(nic(side).connect_queue_pair(ends[side], peer.view()).has_value());
    }
    return ends;
  }
  // False when not reached within a minute.
  bool wait_for_sent(size_t count) {
    const Instant give_up = clock_now() + Duration::from_s(60);
    while (sent_ < count && clock_now() < give_up) {
      step();
      for (size_t side = 0; side < 2; ++side) {
        std::array<Completion, 8> some;
        while (const size_t polled = nic(side).poll(some)) {
          for (size_t i = 0; i < polled; ++i) sent_ += some[i].kind == CompletionKind::kSent;
        }
      }
    }
    return sent_ >= count;
  }
  // Drops all completions so far.
  void clear() {
    sent_ = 0;
    std::array<Completion, 8> some;
    for (size_t side = 0; side < 2; ++side) {
      while (nic(side).poll(some) > 0) {
      }
    }
  }

 private:
  struct OwnCore {
    std::unique_ptr<PacketIo> io = std::move(open_udp({.interface = "lo"}).value());
    Prng random;
    SoftNic nic;

    OwnCore(uint64_t seed, const Secret& key_seed, Duration silence)
        : random(seed), nic(config(*io, key_seed, silence), random_source(random), clock_now()) {}
  };
  static SoftNicConfig config(const PacketIo& io, const Secret& key_seed, Duration silence) {
    return {.address = io.local_address(),
            .line_rate = Rate::from_gbps(100),
            .mtu = 4096,
            .burst_bytes = 4 * 4096,
            .paths = io.caps().paths,
            .flows = 4,
            .queue_pairs = 16,
            .regions = 32,
            .window_packets = 64,
            .security = Security::kAuth,
            .key_seed = key_seed,
            .silence_limit = silence};
  }

  std::vector<std::unique_ptr<OwnCore>> cores_;
  TurnedNics<MultiCorePort> turned_;  // their threads end first
  size_t sent_ = 0;
};

}  // namespace pacecar::test

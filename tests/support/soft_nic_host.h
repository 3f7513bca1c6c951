// A software NIC on top of a packet I/O, for tests that turn it themselves.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/base/prng.h"
#include "transport/io/packet_io.h"
#include "transport/softnic/soft_nic.h"

namespace pacecar::test {

class SoftNicHost {
 public:
  SoftNicHost(PacketIo& io, uint64_t seed, Bytes mtu, Instant now,
              WireMode wire_mode = WireMode::kExtended,
              Duration silence_limit = Duration::from_ms(300), Security security = Security::kOff)
      : io_(io),
        random_(seed),
        nic_({.address = io.local_address(),
              .line_rate = Rate::from_gbps(100),
              .mtu = mtu,
              .burst_bytes = 4 * mtu,
              .paths = io.caps().paths,
              .flows = 4,
              .queue_pairs = 16,
              .regions = 32,
              .window_packets = 64,
              .security = security,
              .wire_mode = wire_mode,
              .source_ports = source_ports(io),
              .silence_limit = silence_limit},
             {next_random, &random_}, now) {}

  SoftNic& nic() { return nic_; }

  void turn(Instant now) {
    std::array<RxPacket, 32> received;
    while (const size_t count = io_.receive(received, now)) {
      nic_.on_packets(now, std::span(received).first(count));
    }
    nic_.on_time(now);
    std::array<TxPacket, 32> packets;
    // What the packet I/O does not take counts as lost.
    while (const size_t count = nic_.poll_transmit(now, packets)) {
      if (io_.send(std::span(packets).first(count), now) < count) break;
    }
  }

 private:
  static uint32_t next_random(void* prng) {
    return static_cast<uint32_t>(static_cast<Prng*>(prng)->next_u64());
  }

  PacketIo& io_;
  Prng random_;
  SoftNic nic_;
};

}  // namespace pacecar::test

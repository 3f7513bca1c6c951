// A software NIC on a packet I/O, for tests that poll it themselves. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "tests/support/prng_source.h"
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
             random_source(random_), now) {}

  SoftNic& nic() { return nic_; }
  Instant next_deadline() const { return nic_.next_deadline(); }

  void turn(Instant now) {
    std::array<RxPacket, 32> received;
    while (const size_t count = io_.receive(received, now)) {
      nic_.on_packets(now, std::span(received).first(count));
    }
    nic_.on_time(now);
    std::array<TxPacket, 32> packets;
    // Packets that the packet I/O does not accept are lost.
    while (const size_t count = nic_.poll_transmit(now, packets)) {
      if (io_.send(std::span(packets).first(count), now) < count) break;
    }
  }

 private:
  PacketIo& io_;
  Prng random_;
  SoftNic nic_;
};

}  // namespace pacecar::test

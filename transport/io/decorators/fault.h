// A decorator that loses, duplicates, reorders, corrupts and delays the packets that arrive. The
// fate of the n-th packet follows from the seed and n alone, so a run can be repeated.
// Bounded: it holds copies of a limited number of packets. At the limit receive() fetches none from
// the inner PacketIo, until some have left. Held packets leave in later calls of receive();
// wait_fd() does not become readable for them. Not for production: it allocates a copy of each
// packet that it holds. Thread rule: as PacketIo.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/io/packet_io.h"

namespace pacecar {

struct FaultConfig {
  // Probabilities per packet.
  double loss = 0;
  double duplicate = 0;
  double corrupt = 0;  // one bit is flipped
  double reorder = 0;  // the packet is held back by reorder_by, so that later ones overtake it
  Duration reorder_by = Duration::from_us(100);
  Duration delay;  // of every packet
  uint64_t seed = 1;

  bool operator==(const FaultConfig&) const = default;
};

// "loss=0.02,duplicate=0.01,reorder=0.01,reorder_by=50us,corrupt=0.001,delay=10us,seed=1"; every
// part may be left out.
Result<FaultConfig> parse_fault(std::string_view text);

// If packets may be corrupted, caps().checks_payload is false, so the protocol checks them.
std::unique_ptr<PacketIo> inject_faults(std::unique_ptr<PacketIo> inner, const FaultConfig& config);

}  // namespace pacecar

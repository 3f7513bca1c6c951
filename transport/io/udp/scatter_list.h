// ScatterList: with it one system call receives the packets of a joined datagram, payload in its
// predicted place. Headers and trailers go to a plain buffer, one after the other, and so do all
// bytes after the last predicted payload.
//
// Pure. Thread rule: one owner.
#pragma once

#include <sys/uio.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/wire/packet.h"

namespace pacecar {

class ScatterList {
 public:
  static constexpr size_t kMostPackets = 64;

  // `plain` has room for a whole datagram. The memory of both outlives the received packets.
  std::span<iovec> lay(const Placement& placement, std::span<uint8_t> plain);

  // How many packets of a datagram of `bytes`, in which all but the last have `packet_bytes`, were
  // received as predicted; 0 if a predicted one has another length.
  size_t placed_packets(size_t bytes, size_t packet_bytes) const;
  // Packet `i` of those: header and trailer, and its payload.
  std::span<const uint8_t> ends(size_t i) const;
  std::span<const uint8_t> payload(size_t i) const;
  // The bytes of a datagram after the predicted packets.
  std::span<const uint8_t> rest(size_t bytes) const;
  // Copies a datagram of `bytes` to contiguous memory.
  void gather(size_t bytes, uint8_t* to) const;

 private:
  size_t packet_bytes(size_t i) const { return ends_bytes() + payload(i).size(); }
  size_t ends_bytes() const { return placement_.header_bytes + placement_.trailer_bytes; }

  Placement placement_;
  size_t packets_ = 0;
  std::span<uint8_t> plain_;
  std::array<iovec, 2 * kMostPackets + 1> pieces_;
};

}  // namespace pacecar

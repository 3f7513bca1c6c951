// The datagrams that the attacker has captured between two victims: the newest ones of each kind
// from each side. A side is the victim that sent it, 0 or 1. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "tests/attack/frame.h"
#include "transport/base/prng.h"

namespace pacecar::attack {

// By the datagram's first packet. kData: a data packet alone; kJoined: one that other packets
// follow; kOther: malformed.
enum class Kind : uint8_t { kData, kJoined, kAck, kNak, kOther };
inline constexpr size_t kKinds = 5;
Kind kind_of(const Bytes& payload);

class Overheard {
 public:
  static constexpr size_t kKept = 256;  // of each kind and side

  void add(size_t side, Datagram datagram);
  // nullptr: no such datagram has been captured.
  const Datagram* newest(size_t side) const;
  const Datagram* any(size_t side, Kind kind, Prng& prng) const;
  // A datagram of a random kind or, if none has been captured, of the next captured kind.
  const Datagram* any(size_t side, Prng& prng) const;
  // At most `most` datagrams of kData, newest first.
  std::vector<const Datagram*> backwards(size_t side, size_t most) const;
  // Whether a datagram of each side has been captured.
  bool knows_both() const { return newest(0) != nullptr && newest(1) != nullptr; }

 private:
  struct Ring {
    std::vector<Datagram> kept;
    size_t next = 0;
  };
  struct Side {
    std::array<Ring, kKinds> rings;
    Kind newest = Kind::kOther;
  };
  const Ring& ring(size_t side, Kind kind) const {
    return sides_[side].rings[static_cast<size_t>(kind)];
  }
  std::array<Side, 2> sides_;
};

}  // namespace pacecar::attack

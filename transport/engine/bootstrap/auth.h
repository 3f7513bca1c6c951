// Proof of the handle's secret, bound to one handshake by a nonce of each side.
// Invariant: a MAC covers its frame's type, both nonces and the body after the MAC, so that no
// frame serves in another place, direction or handshake. The secret itself never travels. Any
// thread; one object per connection.
#pragma once

#include <optional>
#include <span>

#include "transport/engine/bootstrap/wire.h"

namespace pacecar::bootstrap {

struct Handshake {
  Secret secret{};
  Nonce connector_nonce{};
  Nonce listener_nonce{};

  // A frame whose body is the MAC and then `content`.
  Frame seal(FrameType type, std::span<const uint8_t> content) const;
  // The content of a received body of that type; nullopt when its MAC is not the secret's.
  std::optional<std::span<const uint8_t>> open(FrameType type, std::span<const uint8_t> body) const;

 private:
  Mac mac(FrameType type, std::span<const uint8_t> content) const;
};

// Fills `out` with random bytes that nobody can guess; false when the system has none.
bool fill_random(std::span<uint8_t> out);

}  // namespace pacecar::bootstrap

#include "tests/attack/overheard.h"

#include <utility>

#include "transport/wire/extended.h"

namespace pacecar::attack {

Kind kind_of(const Bytes& payload) {
  switch (wire::classify(payload)) {
    case wire::PacketKind::kData: return wire::stands_alone(payload) ? Kind::kData : Kind::kJoined;
    case wire::PacketKind::kAck: return Kind::kAck;
    case wire::PacketKind::kNak: return Kind::kNak;
    case wire::PacketKind::kMalformed: break;
  }
  return Kind::kOther;
}

void Overheard::add(size_t side, Datagram datagram) {
  const Kind kind = kind_of(datagram.payload);
  Ring& ring = sides_[side].rings[static_cast<size_t>(kind)];
  sides_[side].newest = kind;
  if (ring.kept.size() < kKept) {
    ring.kept.push_back(std::move(datagram));
  } else {
    ring.kept[ring.next] = std::move(datagram);
  }
  ring.next = (ring.next + 1) % kKept;
}

const Datagram* Overheard::newest(size_t side) const {
  const Ring& of = ring(side, sides_[side].newest);
  return of.kept.empty() ? nullptr : &of.kept[(of.next + kKept - 1) % kKept];
}

const Datagram* Overheard::any(size_t side, Kind kind, Prng& prng) const {
  const auto& kept = ring(side, kind).kept;
  return kept.empty() ? nullptr : &kept[prng.below(kept.size())];
}

const Datagram* Overheard::any(size_t side, Prng& prng) const {
  const size_t first = prng.below(kKinds);
  for (size_t i = 0; i < kKinds; ++i) {
    const auto kind = static_cast<Kind>((first + i) % kKinds);
    if (const Datagram* const found = any(side, kind, prng)) return found;
  }
  return nullptr;
}

std::vector<const Datagram*> Overheard::backwards(size_t side, size_t most) const {
  std::vector<const Datagram*> all;
  const Ring& of = ring(side, Kind::kData);
  for (size_t i = 1; i <= of.kept.size() && all.size() < most; ++i) {
    all.push_back(&of.kept[(of.next + kKept - i) % kKept]);
  }
  return all;
}

}  // namespace pacecar::attack

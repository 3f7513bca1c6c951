#include "transport/io/udp/scatter_list.h"

#include <algorithm>
#include <cstring>

namespace pacecar {

std::span<iovec> ScatterList::lay(const Placement& placement, std::span<uint8_t> plain) {
  placement_ = placement;
  plain_ = plain;
  const size_t whole = ends_bytes() + placement.payload_bytes;
  const size_t most = std::clamp<size_t>(plain.size() / whole, 1, kMostPackets);
  const size_t wanted = (placement.bytes + placement.payload_bytes - 1) / placement.payload_bytes;
  packets_ = std::min(most, wanted);
  size_t count = 0;
  size_t plain_used = 0;
  // Between two payloads there are the trailer of one packet and the header of the next.
  for (size_t i = 0; i < packets_; ++i) {
    const size_t between = i == 0 ? placement.header_bytes : ends_bytes();
    pieces_[count++] = {&plain_[plain_used], between};
    plain_used += between;
    const auto place = payload(i);
    pieces_[count++] = {const_cast<uint8_t*>(place.data()), place.size()};
  }
  pieces_[count++] = {&plain_[plain_used], plain_.size() - plain_used};
  return std::span(pieces_).first(count);
}

size_t ScatterList::placed_packets(size_t bytes, size_t packet_bytes) const {
  size_t left = bytes;
  for (size_t i = 0; i < packets_; ++i) {
    if (left == 0) return i;
    const size_t size = std::min(left, packet_bytes);
    if (size != this->packet_bytes(i)) return 0;
    left -= size;
  }
  return packets_;
}

std::span<const uint8_t> ScatterList::ends(size_t i) const {
  return plain_.subspan(i * ends_bytes(), ends_bytes());
}

std::span<const uint8_t> ScatterList::payload(size_t i) const {
  const size_t begin = i * placement_.payload_bytes;
  return {placement_.place + begin, std::min(placement_.payload_bytes, placement_.bytes - begin)};
}

std::span<const uint8_t> ScatterList::rest(size_t bytes) const {
  size_t predicted = 0;
  for (size_t i = 0; i < packets_; ++i) predicted += packet_bytes(i);
  if (bytes <= predicted) return {};
  return plain_.subspan(packets_ * ends_bytes(), bytes - predicted);
}

void ScatterList::gather(size_t bytes, uint8_t* to) const {
  for (const iovec& piece : std::span(pieces_).first(2 * packets_ + 1)) {
    const size_t size = std::min(bytes, piece.iov_len);
    if (size == 0) return;
    std::memcpy(to, piece.iov_base, size);
    to += size;
    bytes -= size;
  }
}

}  // namespace pacecar

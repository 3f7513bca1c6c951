#include "transport/io/udp/send_batch.h"

#include <netinet/udp.h>

#include <algorithm>
#include <cstring>

#include "transport/base/check.h"
#include "transport/wire/address.h"

namespace pacecar {
namespace {

// Control packets of all paths share one socket.
bool same_socket(const TxPacket& a, const TxPacket& b) {
  return a.traffic_class == b.traffic_class &&
         (a.path == b.path || a.traffic_class == TrafficClass::kControl);
}

bool same_destination(const TxPacket& a, const TxPacket& b) {
  return a.destination == b.destination || *a.destination == *b.destination;
}

}  // namespace

SendBatch::SendBatch(size_t datagram_limit, bool ipv4, bool identifies)
    : datagram_limit_(datagram_limit), ipv4_(ipv4), identifies_(identifies) {
  PACECAR_CHECK(datagram_limit <= kMaxGroupBytes);
  for (size_t i = 0; i < kMaxGroups; ++i) {
    msghdr& message = messages_[i].msg_hdr;
    message.msg_name = &names_[i];
    message.msg_control = controls_[i].bytes.data();
    message.msg_controllen = controls_[i].bytes.size();
    cmsghdr* segment = CMSG_FIRSTHDR(&message);
    segment->cmsg_level = SOL_UDP;
    segment->cmsg_type = UDP_SEGMENT;
    segment->cmsg_len = CMSG_LEN(sizeof(uint16_t));
  }
}

size_t SendBatch::plan(std::span<const TxPacket> packets, bool segment, const Address& connected) {
  groups_ = 0;
  iovec_count_ = 0;
  size_t planned = 0;
  while (planned < packets.size() && groups_ < kMaxGroups && iovecs_left() &&
         same_socket(packets[0], packets[planned]) && can_send(packets[planned])) {
    planned += add_group(packets.subspan(planned), segment, connected);
  }
  return planned;
}

std::span<const uint8_t> SendBatch::short_message() {
  if (groups_ != 1 || sizes_[0].packets != 1 || sizes_[0].bytes > kShortBytes) return {};
  const msghdr& message = messages_[0].msg_hdr;
  auto end = short_message_.begin();
  for (const iovec& part : std::span(message.msg_iov, message.msg_iovlen)) {
    end = std::copy_n(static_cast<const uint8_t*>(part.iov_base), part.iov_len, end);
  }
  return {short_message_.begin(), end};
}

bool SendBatch::can_send(const TxPacket& packet) const {
  const Address& to = *packet.destination;
  return packet.size() > 0 && packet.size() <= datagram_limit_ && to.port != 0 &&
         is_ipv4(to) == ipv4_;
}

size_t SendBatch::add_group(std::span<const TxPacket> packets, bool segment,
                            const Address& connected) {
  const TxPacket& first = packets[0];
  const size_t size = first.size();
  msghdr& message = messages_[groups_].msg_hdr;
  const bool named = *first.destination != connected;
  message.msg_name = named ? &names_[groups_] : nullptr;
  message.msg_namelen = named ? to_sockaddr(*first.destination, names_[groups_]) : 0;
  message.msg_iov = &iovecs_[iovec_count_];
  message.msg_iovlen = 0;
  append(first, 0, message);
  size_t count = 1;
  size_t bytes = size;
  const size_t limit = segment && !first.alone ? std::min(packets.size(), kMaxSegments) : 1;
  while (count < limit && iovecs_left()) {
    const TxPacket& next = packets[count];
    // An empty datagram cannot be part of a group: the kernel would not see it.
    if (next.size() > size || next.size() == 0 || bytes + next.size() > kMaxGroupBytes) break;
    if (next.alone || !same_socket(first, next) || !same_destination(first, next)) break;
    append(next, count, message);
    ++count;
    bytes += next.size();
    if (next.size() < size) break;  // only the last may be shorter
  }
  const auto segment_size = static_cast<uint16_t>(size);
  std::memcpy(controls_[groups_].bytes.data() + CMSG_LEN(0), &segment_size, sizeof(segment_size));
  message.msg_controllen = count > 1 ? controls_[groups_].bytes.size() : 0;
  sizes_[groups_] = {count, bytes};
  ++groups_;
  return count;
}

void SendBatch::append(const TxPacket& packet, size_t place, msghdr& message) {
  append(packet.header, message);
  append(packet.payload, message);
  append(identifies_ && place > 0 ? identified(packet, place) : packet.trailer, message);
}

// The trailer, with the ICRC for the datagram's position in the group.
std::span<const uint8_t> SendBatch::identified(const TxPacket& packet, size_t place) {
  const size_t size = packet.trailer.size();
  PACECAR_CHECK(size >= roce::kIcrcBytes && size <= roce::kMaxTrailerBytes);
  const auto trailer = std::span(trailers_[iovec_count_]).first(size);
  std::ranges::copy(packet.trailer, trailer.begin());
  uint8_t* const at = trailer.last<roce::kIcrcBytes>().data();
  uint32_t icrc;  // little-endian, as the effect
  std::memcpy(&icrc, at, sizeof icrc);
  icrc ^= effects_.of_size(packet.size()).of(static_cast<uint16_t>(place));
  std::memcpy(at, &icrc, sizeof icrc);
  return trailer;
}

void SendBatch::append(std::span<const uint8_t> part, msghdr& message) {
  if (part.empty()) return;
  if (message.msg_iovlen > 0) {
    iovec& last = message.msg_iov[message.msg_iovlen - 1];
    // A trailer and the next packet's header often lie next to each other.
    if (static_cast<const uint8_t*>(last.iov_base) + last.iov_len == part.data()) {
      last.iov_len += part.size();
      return;
    }
  }
  message.msg_iov[message.msg_iovlen] = {const_cast<uint8_t*>(part.data()), part.size()};
  ++message.msg_iovlen;
  ++iovec_count_;
}

}  // namespace pacecar

// SendBatch: plans one sendmmsg call. Packets form groups; a group is one message, which the kernel
// or the NIC cuts into datagrams (UDP_SEGMENT). All memory is a fixed part of the object; sizes are
// in bytes. Pure: no system call. Thread rule: one owner.
#pragma once

#include <sys/socket.h>

#include <array>
#include <cstddef>
#include <span>

#include "transport/io/sockaddr.h"
#include "transport/wire/icrc.h"
#include "transport/wire/packet.h"
#include "transport/wire/roce.h"

namespace pacecar {

class SendBatch {
 public:
  static constexpr size_t kMaxGroups = 16;
  static constexpr size_t kMaxIovecs = 512;
  static constexpr size_t kMaxSegments = 64;       // UDP_MAX_SEGMENTS of Linux before 6.9
  static constexpr size_t kMaxGroupBytes = 65000;  // below IP's 65,535 with any headers

  // For sockets of one IP version; datagrams longer than the limit are never planned. With
  // `identifies` datagrams are RoCE v2 over IPv4: the kernel numbers the datagrams of a group from
  // 0, and their ICRCs get these identifications.
  SendBatch(size_t datagram_limit, bool ipv4, bool identifies = false);
  SendBatch(const SendBatch&) = delete;  // the message headers point into the object
  SendBatch& operator=(const SendBatch&) = delete;

  // Plans leading packets, as long as they leave through the same socket as the first (same path
  // and class). Groups hold more than one packet only if `segment`. Returns how many packets were
  // planned; 0 if the first cannot be sent at all (too long, empty, or of another IP version).
  // `connected`: the socket's peer (port 0: none); packets to it carry no address.
  size_t plan(std::span<const TxPacket> packets, bool segment, const Address& connected = {});

  // The planned messages; their payloads are valid as long as the packets are.
  std::span<mmsghdr> messages() { return {messages_.data(), groups_}; }
  size_t packets_in(size_t group) const { return sizes_[group].packets; }
  // The message's bytes in one piece, if it is the only one and short: `sendto` then takes 0.2 us
  // less than `sendmmsg`. Otherwise empty. Valid until the next plan.
  std::span<const uint8_t> short_message();

 private:
  static constexpr size_t kShortBytes = 512;
  struct GroupSize {
    size_t packets;
    size_t bytes;
  };
  struct alignas(cmsghdr) Control {
    std::array<uint8_t, CMSG_SPACE(sizeof(uint16_t))> bytes;
  };

  bool can_send(const TxPacket& packet) const;
  bool iovecs_left() const { return iovec_count_ + 3 <= kMaxIovecs; }
  size_t add_group(std::span<const TxPacket> packets, bool segment, const Address& connected);
  void append(const TxPacket& packet, size_t place, msghdr& message);
  std::span<const uint8_t> identified(const TxPacket& packet, size_t place);
  void append(std::span<const uint8_t> part, msghdr& message);

  const size_t datagram_limit_;
  const bool ipv4_;
  const bool identifies_;
  size_t groups_ = 0;
  size_t iovec_count_ = 0;
  std::array<mmsghdr, kMaxGroups> messages_{};
  std::array<GroupSize, kMaxGroups> sizes_{};
  std::array<SocketAddress, kMaxGroups> names_;
  std::array<Control, kMaxGroups> controls_{};
  std::array<iovec, kMaxIovecs> iovecs_;
  roce::IdentificationEffects effects_;
  std::array<std::array<uint8_t, roce::kMaxTrailerBytes>, kMaxIovecs> trailers_;  // by their iovecs
  std::array<uint8_t, kShortBytes> short_message_;
};

}  // namespace pacecar

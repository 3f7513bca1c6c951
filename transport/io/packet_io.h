// PacketIo: sends and receives datagrams in bursts. Back ends: udp, raw, dpdk and the simulator;
// decorators (faults, capture) wrap any back end. A refused datagram is lost; the protocol above
// retransmits it. Thread rule: one thread at a time, except wait_fd(), which never changes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

// On hosts: packets wait for interrupts, and until the polling thread is woken.
inline constexpr Duration kHostJitter = Duration::from_us(100);
// A thread that shares its core waits for the scheduler: some slices of a few ms each.
inline constexpr Duration kHostPause = Duration::from_ms(25);

struct PacketIoCaps {
  Bytes datagram_bytes = 0;     // largest datagram: protocol header + payload + trailer
  Bytes burst_bytes = 0;        // best burst to one destination on one path; 0: one packet
  Bytes receive_bytes = 0;      // capacity of the receive buffer; packets beyond it are dropped
  uint32_t paths = 1;           // distinct UDP source ports
  Rate line_rate;               // of the device; 0: unknown
  bool checks_payload = false;  // a lower layer's checksum already protects the payload
  bool sees_ecn = false;        // RxPacket::ecn is that of the IP header
  // RxPacket::ipv4_fragment is from the IP header; packets sent over IPv4 carry kIpv4Fragment.
  bool sees_ipv4_header = false;
  // Over IPv4, send() takes RoCE v2 packets with the ICRC of kIpv4Unidentified, and replaces it by
  // the ICRC of the IP header they leave with. Arriving packets may have any identification.
  bool identifies_datagrams = false;
  Duration jitter;  // what this kind of host adds to round trips at random
  Duration pause;   // the longest time for which a healthy host of this kind does nothing
};

// The datagrams that the kernel has refused to send, for another reason than want of room.
struct Refusals {
  uint64_t count = 0;
  const uint8_t* unreadable = nullptr;  // the payload of the newest one, if it could not be read

  void add(const TxPacket& packet, bool readable) {
    ++count;
    unreadable = readable ? nullptr : packet.payload.data();
  }
};

class PacketIo {
 public:
  virtual ~PacketIo() = default;

  virtual const PacketIoCaps& caps() const = 0;
  virtual const Address& local_address() const = 0;  // The address to which peers send.
  // The UDP port from which packets of that path and class leave.
  virtual uint16_t source_port(uint16_t path, TrafficClass traffic_class) const = 0;
  // Takes packets in order and returns how many it took; fewer than offered: full, try again later.
  virtual size_t send(std::span<const TxPacket> packets, Instant now) = 0;
  virtual Refusals refusals() const { return {}; }
  // Returns how many of `packets` it has filled. Their memory is valid until the next receive().
  virtual size_t receive(std::span<RxPacket> packets, Instant now) = 0;
  // A file descriptor that is readable when packets wait, for an engine that sleeps; -1: none.
  virtual int wait_fd() const = 0;
};

// The UDP source ports: of data, one for each path, then the one of control writes.
inline std::vector<uint16_t> source_ports(const PacketIo& io) {
  std::vector<uint16_t> ports;
  for (uint32_t path = 0; path < io.caps().paths; ++path) {
    ports.push_back(io.source_port(static_cast<uint16_t>(path), TrafficClass::kData));
  }
  ports.push_back(io.source_port(0, TrafficClass::kControl));
  return ports;
}

// The traffic class byte of an IP header: the upper six bits (DSCP) of `configured`, and ECN, which
// data is capable of and control is not.
inline uint8_t ip_traffic_class(uint32_t configured, TrafficClass traffic_class) {
  constexpr uint32_t kDscpMask = 0xFC;
  const Ecn ecn = traffic_class == TrafficClass::kData ? Ecn::kCapable0 : Ecn::kNotCapable;
  return static_cast<uint8_t>((configured & kDscpMask) | static_cast<uint32_t>(ecn));
}

}  // namespace pacecar

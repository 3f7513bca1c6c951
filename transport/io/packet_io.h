// PacketIo: sends and receives datagrams in bursts. Back ends: udp, raw, dpdk and the simulator;
// decorators (fault, trace, pcap) wrap any of them.
//
// Thread rule: one thread at a time, except wait_fd(), which never changes.
// Errors of single packets are counted, never thrown: a datagram that the network refuses is a
// lost datagram, and the protocol above repairs it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transport/base/units.h"
#include "transport/wire/packet.h"

namespace pacecar {

struct PacketIoCaps {
  Bytes datagram_bytes = 0;  // largest datagram: protocol header + payload + trailer
  Bytes burst_bytes = 0;     // best burst to one destination on one path; 0: a packet
  Bytes receive_bytes = 0;   // what the receive buffer holds before the network drops
  uint32_t paths = 1;        // distinct UDP source ports
  Rate line_rate;            // of the device; 0 when it does not know
  bool checks_payload = false;  // a checksum below us already protects the payload
  bool sees_ecn = false;        // RxPacket::ecn is real
  // RxPacket::ipv4_fragment is real, and packets sent over IPv4 carry kIpv4Fragment.
  bool sees_ipv4_header = false;
  // Over IPv4, packets of RoCE v2 that are given with the ICRC of kIpv4Unidentified leave with the
  // ICRC of their real IP header; arriving packets may have any identification.
  bool identifies_datagrams = false;
  // Of this host: its random addition to round trips, and the longest pause of a healthy host.
  Duration jitter;
  Duration pause;
};

struct PacketIoCounters {
  uint64_t sent_packets = 0;
  uint64_t sent_bytes = 0;
  uint64_t received_packets = 0;
  uint64_t received_bytes = 0;
  uint64_t send_errors = 0;     // datagrams that the system refused; treated as lost
  uint64_t receive_errors = 0;  // truncated or unreadable datagrams; dropped
  uint64_t send_blocked = 0;    // send() calls that accepted less than offered
};

class PacketIo {
 public:
  virtual ~PacketIo() = default;

  virtual const PacketIoCaps& caps() const = 0;
  // The address to which peers send.
  virtual const Address& local_address() const = 0;
  // The UDP port from which packets of that path and class leave.
  virtual uint16_t source_port(uint16_t path, TrafficClass traffic_class) const = 0;
  // Takes packets in order and returns how many were taken; fewer means "full, again later".
  virtual size_t send(std::span<const TxPacket> packets, Instant now) = 0;
  // Only the next receive() may put payload there (RxPacket::placed). Other packets are returned
  // whole.
  virtual void predict(const Placement& /*placement*/) {}
  // Fills up to packets.size() entries and returns how many. Their memory is valid until the next
  // receive().
  virtual size_t receive(std::span<RxPacket> packets, Instant now) = 0;
  // A file descriptor that is readable when packets wait, for an engine that sleeps; -1 if none.
  virtual int wait_fd() const = 0;
  virtual const PacketIoCounters& counters() const = 0;
};

// Of all paths, then of control writes.
std::vector<uint16_t> source_ports(const PacketIo& io);

}  // namespace pacecar

// One host's NIC at a simulated fabric, as a packet I/O: the code above runs as in production. If
// several processes of a host share the NIC each has a port of its own: queues with back-pressure,
// and an inbox; the NIC serves their queues in turn. Everything is driven by the
// fabric's clock: `now` must be that of its event loop. Thread rule: the fabric's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

#include "transport/io/packet_io.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric_config.h"
#include "transport/sim/fabric_packet.h"
#include "transport/sim/serial_clock.h"
#include "transport/sim/topology.h"

namespace pacecar {

class Fabric;

// ::ffff:10.x.y.z, where x.y.z is the process's number (topology.h); paths differ in their UDP
// port, that of path 0 being the port that others send to.
Address process_address(uint32_t process, uint16_t path);
// The process with this address, or `processes` if there is none.
uint32_t find_process(const Address& address, uint32_t processes);

class HostPort final : public PacketIo, public EventSink {
 public:
  HostPort(Fabric& fabric, uint32_t process, Rate line_rate);

  const PacketIoCaps& caps() const override { return caps_; }
  const Address& local_address() const override { return address_; }
  uint16_t source_port(uint16_t path, TrafficClass traffic_class) const override;
  size_t send(std::span<const TxPacket> packets, Instant now) override;
  size_t receive(std::span<RxPacket> packets, Instant now) override;
  // With PayloadMode::kBytes. False: longer than a datagram, or the NIC has no room for it.
  bool send_frame(const FabricFrame& frame);
  int wait_fd() const override { return -1; }  // virtual time: there is nothing to sleep on
  // Calls of send() that took less than was offered.
  uint64_t blocked_sends() const { return blocked_sends_; }

  // Calls `sink` (with `what`) at once when something arrives in an empty inbox, or when a blocked
  // send() may continue: in virtual time, never from within a call of the host.
  void set_listener(EventSink& sink, uint32_t what) {
    listener_ = &sink;
    listener_what_ = what;
  }
  // Counts, from now on, the payload that arrives from another process. Every packet counts, so
  // needless retransmissions count again.
  void count_arrivals(uint32_t source) { arrivals_.try_emplace(source, 0); }
  // 0 for a process that is not counted.
  Bytes arrived_bytes(uint32_t source) const {
    const auto found = arrivals_.find(source);
    return found == arrivals_.end() ? 0 : found->second;
  }

  // A slow host may read again.
  void on_event(Instant /*now*/, uint32_t /*what*/) override { wake(); }

  // The fabric's side.
  void arrive(FabricPacket& packet);
  // A link of the host has sent a packet: send() may go on if it waits for this link.
  void link_is_free(LinkId link);
  void wake();
  size_t waiting() const { return inbox_.count(); }

 private:
  bool frozen() const;
  // What a packet needs of the NIC.
  struct Outgoing {
    uint32_t destination = 0;  // process; an unknown one gets an unknown host
    uint64_t hash = 0;         // of its flow
    LinkId link = 0;
    bool data = false;
    Bytes wire_bytes = 0;
  };

  Outgoing outgoing(const TxPacket& packet, uint32_t destination) const;
  bool send_one(const TxPacket& packet);
  bool too_long(const TxPacket& packet) const;
  bool has_room(const Outgoing& packet) const;
  Bytes kept_bytes(const TxPacket& packet) const;
  FabricPacket& make_packet(const Outgoing& to, const TxPacket& from) const;
  void hand_over(FabricPacket& packet, RxPacket& to, Address& source);
  void release_lent();
  bool may_read();

  Fabric& fabric_;
  uint32_t process_;  // of the network
  uint32_t host_;
  uint8_t local_;  // index of the process on its host
  Address address_;
  PacketIoCaps caps_;
  uint64_t blocked_sends_ = 0;
  EventSink* listener_ = nullptr;
  uint32_t listener_what_ = 0;
  std::optional<Outgoing> blocked_;  // where send() stopped, until the host is notified
  PacketList inbox_;
  size_t inbox_packets_ = 0;
  Bytes inbox_bytes_ = 0;
  std::unordered_map<uint32_t, Bytes> arrivals_;  // payload that has arrived, by counted source
  PacketList lent_;                               // with the reader
  std::vector<Address> lent_sources_;             // of the lent packets
  std::optional<SerialClock> reader_;             // of a slow host
  EventLoop::TimerId reader_timer_;
};

}  // namespace pacecar

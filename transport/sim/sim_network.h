// A simulated network for tests of correctness: ports around one switch, on a virtual clock.
//
//   port --up link--> switch (faults act here) --down link--> inbox of the port
//
// The up link stands for the NIC's own queue: full, it pushes back on send(). The down link stands
// for the switch's output queue: full, it drops; above its threshold, it marks. Both traffic
// classes share the queues. Packets carry real bytes, copied into a bounded pool at send().
//
// Time moves only in advance_to(). The same configuration, seed and calls give the same run, which
// trace_hash() shows. Thread rule: one thread; ports live as long as the network.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <vector>

#include "transport/base/prng.h"
#include "transport/base/units.h"
#include "transport/io/packet_io.h"
#include "transport/sim/event_queue.h"
#include "transport/sim/packet_pool.h"
#include "transport/sim/sim_faults.h"
#include "transport/sim/sim_link.h"
#include "transport/sim/sim_port.h"
#include "transport/sim/trace_hash.h"

namespace pacecar {

struct SimConfig {
  size_t ports = 2;
  uint16_t paths = 4;  // of a port; they differ in their source port only
  SimLinkConfig up = {};
  SimLinkConfig down = {};
  Bytes datagram_bytes = 4096 + 128;  // largest datagram
  Bytes inbox_bytes = 4 << 20;        // what a port keeps until it is read; dropped beyond
  size_t packets = 8192;              // inside the whole network at once; send() blocks beyond
};

enum class SimDrop : uint8_t { kNoRoute, kPartition, kLoss, kQueueFull, kInboxFull, kCount };

struct SimCounters {
  uint64_t sent = 0;
  uint64_t duplicated = 0;
  uint64_t corrupted = 0;
  uint64_t delayed = 0;  // by the reordering fault
  uint64_t marked = 0;
  uint64_t delivered = 0;  // handed to the reader
  std::array<uint64_t, static_cast<size_t>(SimDrop::kCount)> dropped{};
  uint64_t in_flight = 0;  // on the links or in an inbox

  uint64_t dropped_for(SimDrop cause) const { return dropped[static_cast<size_t>(cause)]; }
  uint64_t all_dropped() const;
  bool conserved() const { return sent + duplicated == delivered + all_dropped() + in_flight; }
};

class SimNetwork {
 public:
  SimNetwork(const SimConfig& config, uint64_t seed);
  SimNetwork(const SimNetwork&) = delete;
  SimNetwork& operator=(const SimNetwork&) = delete;

  const SimConfig& config() const { return config_; }
  PacketIo& port(size_t index) { return ports_[index]; }
  // Where others send to; its UDP port is also the source port of path 0.
  const Address& address(size_t index) const { return sources_[index * config_.paths]; }

  Instant now() const { return now_; }
  // When something happens next that nobody has to ask for: an arrival, the end of a stall, room
  // for a send that was blocked. Instant::never() if nothing does.
  Instant next_event() const;
  void advance_to(Instant time);

  void set_faults(const SimFaults& faults) { faults_ = faults; }
  uint64_t trace_hash() const { return trace_.value(); }
  SimCounters counters() const;

  // For SimPort.
  bool stalled(size_t port) const;
  bool inject(size_t port, const TxPacket& packet);
  Instant room_at(size_t port, Bytes size) const { return up_[port].room_at(size); }
  RxPacket hand_over(PacketSlot slot);
  PacketPool& pool() { return pool_; }

 private:
  enum class Hop : uint8_t { kSwitch, kInbox };
  struct Arrival {
    PacketSlot slot;
    Hop hop;
  };
  enum class TraceKind : uint8_t { kSent, kDuplicated, kCorrupted, kArrived, kDelivered, kDropped };

  void at_switch(PacketSlot slot);
  void forward(PacketSlot slot);
  void at_inbox(PacketSlot slot);
  void duplicate(PacketSlot slot);
  void corrupt(PacketSlot slot);
  void drop(PacketSlot slot, SimDrop cause);
  bool partitioned(size_t a, size_t b) const;
  size_t find_port(const Address& address) const;
  void trace(TraceKind kind, PacketSlot slot, uint64_t detail = 0);

  SimConfig config_;
  Instant now_;
  Prng random_;
  SimFaults faults_;
  PacketPool pool_;
  EventQueue<Arrival> events_;
  std::vector<SimLink> up_;
  std::vector<SimLink> down_;
  std::vector<Address> sources_;  // per port and path
  std::deque<SimPort> ports_;
  SimCounters counters_;
  TraceHash trace_;
};

}  // namespace pacecar

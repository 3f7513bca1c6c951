// Responder: the receiving half of a queue pair in extended mode. It places the packets of the
// peer's writes in memory, in any order and each exactly once, and records which packets are to be
// acknowledged.
// A packet's bytes are written only if the packet is new (its PSN has never been accepted) and key,
// bounds and rights allow it. So a late duplicate never touches a buffer that is in use again.
// Bounded; allocates once. Thread rule: one owner.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/nic/nic.h"
#include "transport/softnic/extended/pieces.h"
#include "transport/softnic/extended/receive_window.h"
#include "transport/softnic/extended/write_tracker.h"
#include "transport/softnic/memory_table.h"
#include "transport/wire/extended.h"

namespace pacecar {

class Responder {
 public:
  enum class Outcome : uint8_t {
    kPlaced,     // new, and in memory
    kPiece,      // new, in memory; other pieces of the packet are missing
    kCompleted,  // new, in memory, and the last to arrive of its write with immediate
    kDuplicate,
    kOutOfWindow,
    kRefused,  // for its key, bounds or rights: to be answered with a NAK
  };

  struct Data {
    const RxPacket& packet;
    Instant arrival;
    wire::DataHeader header{};
    std::span<const uint8_t> payload{};

    Bytes bytes() const { return payload.size() + packet.elided; }
    bool marked() const { return packet.ecn == Ecn::kCongestion; }
  };

  // An acknowledgement is cut, in its bitmap, to the length of a data packet with `mtu` bytes.
  Responder(uint32_t window_packets, uint32_t writes, uint64_t first_psn, Bytes mtu);

  Outcome on_data(const Data& data, const MemoryTable& memory);

  // A packet's write and memory region, looked up once for a write's packets that arrive together.
  struct Target {
    WriteTracker::Write* write = nullptr;  // with immediate
    MemoryTable::Range range;
  };
  // The target of a packet that has just been placed.
  Target target_of(const wire::DataHeader& header, const MemoryTable& memory);
  // Places a packet of the write of `target`, if it is the next in order, is allowed, and does not
  // complete the write. False: nothing was done, call on_data.
  bool on_same_write(const Data& data, const Target& target);
  // A packet that has lost its payload. It is not authenticated, so it changes nothing, except that
  // an acknowledgement is due again if the packet had arrived before.
  Arrival on_trimmed(const wire::DataHeader& header);

  // No packet has arrived since this instant.
  bool idle_since(Instant instant) const { return received_ == 0 || newest_.arrival <= instant; }
  bool in_order() const { return window_.in_order(); }
  bool ack_due() const { return ack_due_; }
  // Writes the acknowledgement of all packets that have arrived, and returns its size. `to` must
  // hold max_ack_bytes().
  size_t write_ack(uint32_t destination_qp, Instant now, std::span<uint8_t> to);
  size_t max_ack_bytes() const { return wire::ack_bytes(bitmap_.size(), kMaxTelemetryHops); }

 private:
  // The fields of the newest packet that the next acknowledgement echoes.
  struct Echo {
    Instant arrival;
    uint32_t psn = 0;
    uint32_t timestamp = 0;
    bool valid = false;
    bool marked = false;
    uint8_t hops = 0;
    std::array<TelemetryHop, kMaxTelemetryHops> telemetry{};
  };

  void accept(uint64_t psn, const Data& data);
  void note_accepted(const Data& data);
  void remember(const Data& data);
  void remember_telemetry(std::span<const TelemetryHop> telemetry);

  ReceiveWindow window_;
  WriteTracker writes_;
  Pieces pieces_;
  std::vector<uint64_t> bitmap_;  // scratch of write_ack
  Echo newest_;
  uint32_t received_ = 0;
  uint32_t marked_ = 0;
  bool ack_due_ = false;
};

}  // namespace pacecar

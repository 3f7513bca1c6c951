// The receiving half of a queue pair: places the peer's writes in memory, whatever their order,
// exactly once, and remembers what to acknowledge.
//
// A packet's bytes are written only if it is new (its PSN has never been accepted) and its key,
// bounds and rights allow it; so a late duplicate can never touch a buffer that is in use again.
#pragma once

#include <array>
#include <cstdint>
#include <span>

#include "transport/nic/nic.h"
#include "transport/softnic/memory_table.h"
#include "transport/softnic/receive_window.h"
#include "transport/softnic/write_tracker.h"
#include "transport/wire/extended.h"

namespace pacecar {

class Responder {
 public:
  enum class Outcome : uint8_t {
    kPlaced,     // new, and in memory
    kCompleted,  // likewise, and the last of its write with immediate
    kDuplicate,
    kOutOfWindow,
    kRefused,  // key, bounds or rights: to be answered with a NAK
  };

  struct Data {
    const RxPacket& packet;
    Instant arrival;
    wire::DataHeader header{};
    std::span<const uint8_t> payload{};

    Bytes bytes() const { return payload.size() + packet.elided; }
    bool marked() const { return packet.ecn == Ecn::kCongestion; }
  };

  // An acknowledgement is not longer than a data packet of `mtu`; what of its bitmap does not fit
  // counts as not yet arrived.
  Responder(uint32_t window_packets, uint32_t writes, uint64_t first_psn, Bytes mtu);

  Outcome on_data(const Data& data, const MemoryTable& memory);

  // What packets of one write have in common, looked up once for packets that arrive together.
  struct Target {
    WriteTracker::Write* write = nullptr;  // with immediate
    MemoryTable::Range range;
  };
  // Of a packet that has just been placed.
  Target target_of(const wire::DataHeader& header, const MemoryTable& memory);
  // Places a packet of the write of `target`, if it is the next in order, is allowed, and is not
  // the last. False: nothing was done, call on_data. `placed`: its payload may be in place already.
  bool on_alike(const Data& data, const Target& target, bool placed);
  // A packet without its payload. It is not authenticated, so it changes nothing, except that an
  // acknowledgement is due again if the packet had already arrived.
  Arrival on_trimmed(const wire::DataHeader& header);

  // Nothing has arrived since this instant.
  bool idle_since(Instant instant) const { return received_ == 0 || newest_.arrival <= instant; }
  bool in_order() const { return window_.in_order(); }
  // Bytes left of a write with immediate, if its packet `psn` is the newest of all and no earlier
  // one is missing: they then follow that packet's payload. Otherwise 0.
  Bytes left_of(uint32_t msn, uint32_t psn) const;
  // Something has arrived that is not acknowledged yet.
  bool ack_due() const { return ack_due_; }
  // The acknowledgement of all that has arrived. `to` holds the largest one, max_ack_bytes().
  size_t write_ack(uint32_t destination_qp, Instant now, std::span<uint8_t> to);
  size_t max_ack_bytes() const { return wire::ack_bytes(bitmap_.size(), kMaxTelemetryHops); }

 private:
  // What the next acknowledgement echoes of the newest packet.
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
  std::vector<uint64_t> bitmap_;  // scratch of write_ack
  Echo newest_;
  uint32_t received_ = 0;
  uint32_t marked_ = 0;
  bool ack_due_ = false;
};

}  // namespace pacecar

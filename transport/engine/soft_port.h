// SoftPort: a software NIC on a packet I/O, as a NicPort. The engine drives it with the real clock,
// the simulator with a virtual one.
//
// Pure: time is an argument. Thread rule: one thread at a time.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "transport/base/check.h"
#include "transport/base/params.h"
#include "transport/io/packet_io.h"
#include "transport/nic/nic_port.h"
#include "transport/softnic/soft_nic.h"

namespace pacecar {

class SoftPort : public NicPort {
 public:
  static constexpr size_t kMaxTransmit = 64;
  static constexpr size_t kMaxReceive = 256;

  using Clock = Instant (*)();

  // Both outlive the port. `transmit` is how many packets are made at a time, 1 to kMaxTransmit:
  // they are not reconsidered while the packet I/O is full. With a `clock`, the arrival time of
  // packets is read after they are received; a host that pauses before that would otherwise see
  // packets arrive before they were sent. Virtual time does not change meanwhile. `room` is the
  // memory of one turn: ports that take turns may share it; without it the port has its own.
  SoftPort(PacketIo& io, SoftNic& nic, size_t transmit = kMaxTransmit, Clock clock = nullptr,
           std::span<RxPacket> room = {})
      : io_(io),
        nic_(nic),
        clock_(clock),
        own_room_(room.empty() ? kMaxReceive : 0),
        received_(room.empty() ? own_room_ : room),
        outgoing_(transmit) {
    PACECAR_CHECK(transmit > 0 && transmit <= kMaxTransmit);
  }

  Nic& nic() override { return nic_; }
  SoftNic& soft_nic() { return nic_; }
  size_t receive(Instant now) override;
  size_t transmit(Instant now) override;
  Instant next_deadline() const override;
  bool prepare_to_wait() override { return true; }
  int wait_fd() const override { return io_.wait_fd(); }
  const Address& address() const override { return io_.local_address(); }
  void prepare() const override;

 private:
  PacketIo& io_;
  SoftNic& nic_;
  Clock clock_;
  size_t outgoing_begin_ = 0;  // of packets that the packet I/O has not taken yet
  size_t outgoing_end_ = 0;
  uint64_t invalidations_ = 0;
  std::vector<RxPacket> own_room_;
  std::span<RxPacket> received_;
  std::vector<TxPacket> outgoing_;
};

// With a software NIC of its own, configured by the parameters. `bootstrap`: the address at which
// peers connect, if not the packet I/O's.
std::unique_ptr<SoftPort> make_soft_port(const Params& params, std::unique_ptr<PacketIo> io,
                                         Instant now,
                                         const std::optional<Address>& bootstrap = std::nullopt);

// With a software NIC of standard RoCE v2 for the process with `slot` (roce::port_of_slot) at a
// shared address. For programs that bring up connections themselves (Service::kStandard).
std::unique_ptr<SoftPort> make_process_port(const Params& params, std::unique_ptr<PacketIo> io,
                                            uint32_t slot, Instant now);

// One on each packet I/O, to be used as one NIC.
std::vector<std::unique_ptr<SoftPort>> make_soft_ports(
    const Params& params, std::vector<std::unique_ptr<PacketIo>> ios, Instant now);

}  // namespace pacecar

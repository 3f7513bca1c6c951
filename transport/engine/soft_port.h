// SoftPort: a software NIC on a packet I/O, as a NicPort. The engine drives it with the real clock,
// the simulator with a virtual one. Pure: time is an argument. Thread rule: one thread at a time.
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

// The configuration that a software NIC of an engine has by the parameters. Its packet I/O tells
// congestion controls what hosts of its kind are like. `cores`: that drive one NIC together.
SoftNicConfig soft_nic_config(const Params& params, const PacketIo& io, uint64_t cores = 1);

class SoftPort : public NicPort {
 public:
  static constexpr size_t kMaxTransmit = 64;
  static constexpr size_t kMaxReceive = 256;

  using Clock = Instant (*)();

  // `io` and `nic` outlive the port. `transmit`: packets made at a time, 1 to kMaxTransmit; they
  // are not changed while the packet I/O is full. With a `clock`, the arrival time is read after
  // packets have been received: otherwise a host that pauses before that would see packets arrive
  // before they were sent. Virtual time does not change meanwhile. `room`: memory of one turn,
  // which ports driven by one thread may share; without it the port has its own.
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
  void on_time(Instant now) override { nic_.on_time(now); }
  size_t transmit(Instant now) override;
  Instant next_deadline() const override;
  bool prepare_to_wait(Instant /*now*/) override { return true; }
  int wait_fd() const override { return io_.wait_fd(); }
  const Address& address() const override { return io_.local_address(); }

 private:
  PacketIo& io_;
  SoftNic& nic_;
  Clock clock_;
  size_t outgoing_begin_ = 0;  // of the packets that the packet I/O has not taken yet
  size_t outgoing_end_ = 0;
  uint64_t invalidations_ = 0;
  uint64_t refused_ = 0;
  std::vector<RxPacket> own_room_;
  std::span<RxPacket> received_;
  std::vector<TxPacket> outgoing_;
};

// A port with its own software NIC, configured by the parameters. `bootstrap`: the address to which
// peers connect, if it differs from the packet I/O's address.
std::unique_ptr<SoftPort> make_soft_port(const Params& params, std::unique_ptr<PacketIo> io,
                                         Instant now,
                                         const std::optional<Address>& bootstrap = std::nullopt);

// A port with a software NIC of standard RoCE v2, for the process with `slot` (roce::port_of_slot)
// at a shared address. For programs that set up connections themselves (Service::kStandard).
std::unique_ptr<SoftPort> make_process_port(const Params& params, std::unique_ptr<PacketIo> io,
                                            uint32_t slot, Instant now);

// A port on each packet I/O, for one NIC on several cores.
std::vector<std::unique_ptr<SoftPort>> make_soft_ports(const Params& params,
                                                       std::vector<std::unique_ptr<PacketIo>> ios,
                                                       Instant now);

}  // namespace pacecar

// One end point of a simulated network, as a packet I/O: the code above runs as in production.
// Everything is driven by the network's clock: `now` must be SimNetwork::now().
// Thread rule: the network's thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "transport/base/fixed_queue.h"
#include "transport/io/packet_io.h"
#include "transport/sim/packet_pool.h"

namespace pacecar {

class SimNetwork;

class SimPort final : public PacketIo {
 public:
  SimPort(SimNetwork& network, size_t index);

  const PacketIoCaps& caps() const override { return caps_; }
  const Address& local_address() const override;
  size_t send(std::span<const TxPacket> packets, Instant now) override;
  size_t receive(std::span<RxPacket> packets, Instant now) override;
  int wait_fd() const override { return -1; }  // virtual time: there is nothing to sleep on
  const PacketIoCounters& counters() const override { return counters_; }

  // The network's side. False when the inbox is full.
  bool put_into_inbox(PacketSlot slot);
  size_t waiting() const { return inbox_.size() - lent_; }
  size_t lent() const { return lent_; }
  // When a blocked send() is worth another try; Instant::never() if none is blocked.
  Instant writable_at() const { return writable_at_; }

 private:
  void release_lent();

  SimNetwork& network_;
  size_t index_;
  PacketIoCaps caps_;
  PacketIoCounters counters_;
  FixedQueue<PacketSlot> inbox_;  // in order of arrival; the first lent_ are with the reader
  size_t lent_ = 0;
  Bytes inbox_bytes_ = 0;  // of those that wait
  Instant writable_at_ = Instant::never();
};

}  // namespace pacecar

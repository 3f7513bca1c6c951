// Decorators: a PacketIo around another one that injects faults, traces, or records packets. For
// tests and fault-finding, as they allocate, format or write on the data path. Time is the caller's
// `now`. Thread rule: as PacketIo.
#pragma once

#include <cstdint>
#include <cstdio>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "transport/base/check.h"
#include "transport/base/log.h"
#include "transport/base/result.h"
#include "transport/base/units.h"
#include "transport/io/packet_io.h"

namespace pacecar {

// The base class. It forwards every call to the PacketIo that it owns, except predict(): under a
// decorator nothing is received in place.
class PacketIoDecorator : public PacketIo {
 public:
  explicit PacketIoDecorator(std::unique_ptr<PacketIo> inner) : inner_(std::move(inner)) {
    PACECAR_CHECK(inner_ != nullptr);
  }

  const PacketIoCaps& caps() const override { return inner_->caps(); }
  const Address& local_address() const override { return inner_->local_address(); }
  uint16_t source_port(uint16_t path, TrafficClass traffic_class) const override {
    return inner_->source_port(path, traffic_class);
  }
  size_t send(std::span<const TxPacket> packets, Instant now) override {
    return inner_->send(packets, now);
  }
  size_t receive(std::span<RxPacket> packets, Instant now) override {
    return inner_->receive(packets, now);
  }
  int wait_fd() const override { return inner_->wait_fd(); }

 protected:
  PacketIo& inner() { return *inner_; }
  const PacketIo& inner() const { return *inner_; }

 private:
  std::unique_ptr<PacketIo> inner_;
};

// Loses, duplicates, reorders, corrupts and delays packets. The fate of the n-th packet of a
// direction follows from the seed and n alone, so a run can be repeated.
struct FaultConfig {
  // Probabilities per packet.
  double loss = 0;
  double duplicate = 0;
  double corrupt = 0;  // one bit is flipped
  double reorder = 0;  // the packet is held back by reorder_by, so that later ones overtake it
  Duration reorder_by = Duration::from_us(100);
  Duration delay;  // of every packet
  uint64_t seed = 1;
  bool on_send = false;
  bool on_receive = true;

  bool operator==(const FaultConfig&) const = default;
};

// "loss=0.02,duplicate=0.01,reorder=0.01,reorder_by=50us,corrupt=0.001,delay=10us,seed=1,on=both";
// every part may be left out; on is send, receive (the default) or both.
Result<FaultConfig> parse_fault(std::string_view text);

// Bounded: each direction holds copies of a limited number of packets. At the limit send() takes no
// packet, and receive() fetches none from the inner PacketIo, until some have left. Held packets
// leave in later calls of send() or receive(); wait_fd() does not become readable for them. If
// packets may be corrupted, caps().checks_payload is false, so that the protocol checks payloads.
std::unique_ptr<PacketIo> inject_faults(std::unique_ptr<PacketIo> inner, const FaultConfig& config);

// Writes one line of text per packet that send() takes or receive() returns, with the first bytes
// of the datagram, to `sink` at level kTrace:
//   "12.345678901 tx 192.0.2.1:18515 path 3 data 8236 B c0 80 ff ff ..."
std::unique_ptr<PacketIo> trace_packets(std::unique_ptr<PacketIo> inner, LogSink sink);

// A sink that writes to `file`, which must outlive it.
LogSink log_to(std::FILE* file);

// Records each datagram that send() takes or receive() returns in a pcap file, as PcapWriter does.
// UDP's destination port is shown as 4791, so that tools dissect RoCEv2. Overwrites the file.
Result<std::unique_ptr<PacketIo>> record_packets(std::unique_ptr<PacketIo> inner,
                                                 const std::string& path);

}  // namespace pacecar

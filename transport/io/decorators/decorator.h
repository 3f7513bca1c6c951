// The base class of the decorators. It forwards every call to the PacketIo that it owns. Thread
// rule: as PacketIo.
#pragma once

#include <memory>
#include <utility>

#include "transport/base/check.h"
#include "transport/io/packet_io.h"

namespace pacecar {

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
  Refusals refusals() const override { return inner_->refusals(); }
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

}  // namespace pacecar

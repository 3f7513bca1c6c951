// A NIC and a port that forward all calls to others, for tests that override a few calls. The
// NIC's properties can be set.
#pragma once

#include <memory>
#include <utility>

#include "transport/nic/nic_port.h"

namespace pacecar::test {

class PassingNic : public Nic {
 public:
  PassingNic(Nic& inner, NicCaps caps) : inner_(inner), caps_(std::move(caps)) {}

  const NicCaps& caps() const override { return caps_; }
  const NicCounters& counters() const override { return inner_.counters(); }
  Result<MemoryRegion> register_memory(void* address, size_t length, Access access) override {
    return inner_.register_memory(address, length, access);
  }
  std::shared_ptr<void> deregister_memory(const MemoryRegion& region) override {
    return inner_.deregister_memory(region);
  }
  Result<QueuePairId> create_queue_pair(const QueuePairConfig& config) override {
    return inner_.create_queue_pair(config);
  }
  QueuePairAddress queue_pair_address(QueuePairId id) const override {
    return inner_.queue_pair_address(id);
  }
  Result<void> connect_queue_pair(QueuePairId id, std::span<const uint8_t> remote) override {
    return inner_.connect_queue_pair(id, remote);
  }
  QueuePairMemory queue_pair_memory(const QueuePairConfig& config) const override {
    return inner_.queue_pair_memory(config);
  }
  void destroy_queue_pair(QueuePairId id) override { inner_.destroy_queue_pair(id); }
  size_t post(QueuePairId id, std::span<const WorkRequest> work_requests) override {
    return inner_.post(id, work_requests);
  }
  size_t poll(std::span<Completion> completions) override { return inner_.poll(completions); }
  size_t poll_signals(std::span<FlowSignal> signals) override {
    return inner_.poll_signals(signals);
  }
  void report_arrivals(bool wanted) override { inner_.report_arrivals(wanted); }
  size_t poll_arrivals(std::span<FlowArrival> arrivals) override {
    return inner_.poll_arrivals(arrivals);
  }
  void set_flow_limits(FlowId flow, const FlowLimits& limits, Instant now) override {
    inner_.set_flow_limits(flow, limits, now);
  }

 private:
  Nic& inner_;
  NicCaps caps_;
};

class PassingPort : public NicPort {
 public:
  PassingPort(std::unique_ptr<NicPort> inner, NicCaps caps)
      : inner_(std::move(inner)), nic_(inner_->nic(), std::move(caps)) {}

  Nic& nic() override { return nic_; }
  size_t receive(Instant now) override { return inner_->receive(now); }
  void on_time(Instant now) override { inner_->on_time(now); }
  size_t transmit(Instant now) override { return inner_->transmit(now); }
  Instant next_deadline() const override { return inner_->next_deadline(); }
  bool prepare_to_wait(Instant now) override { return inner_->prepare_to_wait(now); }
  int wait_fd() const override { return inner_->wait_fd(); }
  const Address& address() const override { return inner_->address(); }

 private:
  const std::unique_ptr<NicPort> inner_;
  PassingNic nic_;
};

}  // namespace pacecar::test

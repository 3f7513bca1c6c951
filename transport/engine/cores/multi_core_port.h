// MultiCorePort: drives a software NIC on several processor cores. The owner's thread drives the
// first core with the calls of a NicPort, like a single SoftNic; each other core has its own
// thread. Thread rule: one thread at a time, except wait_fd().
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "transport/base/file_descriptor.h"
#include "transport/engine/cores/multi_core_nic.h"
#include "transport/engine/cores/processors.h"

namespace pacecar {

struct CoreThreadConfig {
  SoftPort::Clock clock = nullptr;
  Duration spin;       // PACECAR_EXPERT_SPIN
  bool blind = false;  // a decorator may hold packets back, which must be polled
};

class MultiCorePort final : public NicPort {
 public:
  // `ports`: one for each core, with SoftNics as MultiCoreNic needs them. `processors`: where the
  // threads run; null: anywhere. Without a clock, receive() drives all cores, in virtual time, and
  // no thread starts. Errors: kSystem.
  static Result<std::unique_ptr<MultiCorePort>> make(
      std::vector<std::unique_ptr<SoftPort>> ports, const CoreThreadConfig& config,
      std::unique_ptr<Processors> processors = nullptr);

  MultiCoreNic& nic() override { return nic_; }
  size_t receive(Instant now) override;
  void on_time(Instant now) override;
  size_t transmit(Instant now) override;
  Instant next_deadline() const override;
  bool prepare_to_wait(Instant now) override;
  int wait_fd() const override { return wait_fd_.get(); }
  const Address& address() const override { return first_->address(); }

 private:
  MultiCorePort(std::unique_ptr<SoftPort> first, std::unique_ptr<Doorbell> bell,
                std::vector<std::unique_ptr<Core>> further);
  Result<void> start_threads(const CoreThreadConfig& config);

  std::unique_ptr<Processors> processors_;
  const std::unique_ptr<SoftPort> first_;
  const std::unique_ptr<Doorbell> bell_;  // for a thread that sleeps on wait_fd()
  const std::vector<std::unique_ptr<Core>> further_;
  MultiCoreNic nic_;
  FileDescriptor wait_fd_;  // an epoll instance
  bool expecting_ = false;
  std::vector<std::jthread> threads_;  // they end first
};

}  // namespace pacecar

// A software NIC of several cores on a simulated network: each core has a port of the network, and
// all have the address of the first. Virtual time; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "tests/support/prng_source.h"
#include "tests/support/sim_star.h"
#include "transport/engine/cores/multi_core_port.h"
#include "transport/softnic/soft_nic.h"

namespace pacecar::test {

// The ports of the network that belong to one host's cores.
struct CorePorts {
  size_t first = 0;
  size_t count = 1;
};

// A port of the network under its host's address: the UDP port selects the core.
class CorePort final : public PacketIo {
 public:
  static constexpr uint16_t kFirstPort = 5000;

  CorePort(SimStar& network, std::span<const CorePorts> hosts, size_t host, size_t core)
      : network_(network),
        hosts_(hosts.begin(), hosts.end()),
        io_(network.port(hosts[host].first + core)),
        address_(address_of(host, core)) {}

  const PacketIoCaps& caps() const override { return io_.caps(); }
  const Address& local_address() const override { return address_; }
  uint16_t source_port(uint16_t path, TrafficClass traffic_class) const override {
    return io_.source_port(path, traffic_class);
  }
  // From now on all packets are lost.
  void cut() { cut_ = true; }
  size_t send(std::span<const TxPacket> packets, Instant now) override {
    if (cut_) return packets.size();
    for (size_t i = 0; i < packets.size(); ++i) {
      TxPacket packet = packets[i];
      packet.destination = &real(*packet.destination);
      if (io_.send({&packet, 1}, now) == 0) return i;
    }
    return packets.size();
  }
  size_t receive(std::span<RxPacket> packets, Instant now) override {
    const size_t count = io_.receive(packets, now);
    sources_.clear();
    if (cut_) return 0;
    for (RxPacket& packet : packets.first(count)) {
      for (size_t host = 0; host < hosts_.size(); ++host) {
        for (size_t core = 0; core < hosts_[host].count; ++core) {
          if (!same_ip(*packet.source, port_address(host, core))) continue;
          sources_.push_back(address_of(host, core));
        }
      }
      packet.source = &sources_.back();
    }
    return count;
  }
  int wait_fd() const override { return -1; }

 private:
  const Address& port_address(size_t host, size_t core) const {
    return network_.port(hosts_[host].first + core).local_address();
  }
  Address address_of(size_t host, size_t core) const {
    Address address = port_address(host, 0);
    address.port = static_cast<uint16_t>(kFirstPort + core);
    return address;
  }
  const Address& real(const Address& address) const {
    for (size_t host = 0; host < hosts_.size(); ++host) {
      if (same_ip(address, port_address(host, 0))) {
        return port_address(host, static_cast<size_t>(address.port - kFirstPort));
      }
    }
    return address;
  }

  SimStar& network_;
  std::vector<CorePorts> hosts_;
  PacketIo& io_;
  Address address_;
  bool cut_ = false;
  std::deque<Address> sources_;
};

class CoresHost {
 public:
  CoresHost(SimStar& network, std::span<const CorePorts> hosts, size_t host,
            const SoftNicConfig& config) {
    std::vector<std::unique_ptr<SoftPort>> ports;
    Secret seed{};
    seed[0] = static_cast<uint8_t>(host + 1);
    for (size_t core = 0; core < hosts[host].count; ++core) {
      ios_.push_back(std::make_unique<CorePort>(network, hosts, host, core));
      SoftNicConfig own = config;
      own.address = ios_.back()->local_address();
      own.paths = ios_.back()->caps().paths;
      own.key_seed = seed;
      random_.push_back(std::make_unique<Prng>(host * 100 + core + 1));
      soft_.push_back(
          std::make_unique<SoftNic>(own, random_source(*random_.back()), network.now()));
      ports.push_back(std::make_unique<SoftPort>(*ios_.back(), *soft_.back()));
    }
    port_ = std::move(MultiCorePort::make(std::move(ports), {}).value());
  }

  MultiCorePort& port() { return *port_; }
  MultiCoreNic& nic() { return port_->nic(); }
  Instant next_deadline() const { return port_->next_deadline(); }
  SoftNic& core(size_t index) { return *soft_[index]; }
  void cut(size_t core) { ios_[core]->cut(); }
  void turn(Instant now) {
    while (port_->receive(now) > 0) {
    }
    port_->on_time(now);
    while (port_->transmit(now) > 0) {
    }
  }

 private:
  std::vector<std::unique_ptr<CorePort>> ios_;
  std::vector<std::unique_ptr<Prng>> random_;
  std::vector<std::unique_ptr<SoftNic>> soft_;
  std::unique_ptr<MultiCorePort> port_;
};

}  // namespace pacecar::test

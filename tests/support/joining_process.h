// A test's process with NICs on this host's loopback, and connections between two such processes.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <memory>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/passing_nic.h"
#include "transport/api/engine_context.h"
#include "transport/engine/open/open_io.h"
#include "transport/engine/soft_port.h"

namespace pacecar::test {

using Networks = std::vector<std::string>;

// A process with one device per element; an element lists the networks of the device's NICs.
class Process {
 public:
  explicit Process(const std::vector<std::vector<Networks>>& devices)
      : Process(std::nullopt, devices) {}
  // `bootstrap`: the address for the bootstrap; nullopt: the NICs' own.
  Process(const std::optional<Address>& bootstrap,
          const std::vector<std::vector<Networks>>& devices)
      : bootstrap_(bootstrap) {
    Params params;
    params.state_dir = kNoStateDirectory;
    for (const auto& nics : devices) {
      Group& group = groups_.emplace_back();
      for (const Networks& networks : nics) group.push_back(make_nic(params, networks));
    }
    params_ = std::move(params);
  }

  // Adds a device with a NIC on this interface, before the first use of the context.
  void add(const std::string& interface) {
    groups_.emplace_back().push_back(make_nic(params_, {"soft"}, interface));
  }
  // The properties that the application sees of that device.
  NicInfo& info(size_t device) { return groups_[device].front().info; }
  // Both before the first use of the context.
  void bound_connecting(Duration limit) { params_.connect_timeout = limit; }
  void share_key(bootstrap::ClusterKey key) { key_ = std::move(key); }
  Context& context() {
    if (context_ == nullptr) {
      const auto keep = [](void* lines, LogLevel, std::string_view line) {
        static_cast<std::vector<std::string>*>(lines)->emplace_back(line);
      };
      context_ = std::make_unique<EngineContext>(params_, std::move(groups_),
                                                 LogSink{keep, &lines_}, key_);
    }
    return *context_;
  }
  void end() { context_.reset(); }
  const std::vector<std::string>& lines() const { return lines_; }

 private:
  using Group = EngineContext::Group;

  RunningNic make_nic(const Params& params, const Networks& networks,
                      const std::string& interface = "lo") {
    auto io = open_io(params, find_interface(interface).value(), Sockets::kUdp, LogSink()).value();
    std::unique_ptr<NicPort> port = make_soft_port(params, std::move(io), clock_now(), bootstrap_);
    NicCaps caps = port->nic().caps();
    caps.networks = networks;  // packets are exchanged with all NICs regardless
    port = std::make_unique<PassingPort>(std::move(port), std::move(caps));
    NicInfo info{.name = "nic" + std::to_string(number_)};
    auto engine = Engine::open(params, std::move(port), identity_of_nic(identity_, number_++));
    const auto release = [](Engine* old) {
      if (!old->inherited()) delete old;  // as Context::open
    };
    return {.info = std::move(info), .engine = {engine->release(), release}};
  }

  const std::optional<Address> bootstrap_;
  const NicIdentity identity_ = random_identity();
  uint8_t number_ = 0;
  Params params_;
  std::vector<Group> groups_;
  std::vector<std::string> lines_;
  bootstrap::ClusterKey key_;
  std::unique_ptr<Context> context_;
};

struct Ends {
  std::unique_ptr<SendConnection> send;
  std::unique_ptr<ReceiveConnection> receive;
};

inline Result<Ends> finish(Connecting& connecting, Listener& listener) {
  Ends ends;
  while (ends.send == nullptr || ends.receive == nullptr) {
    if (ends.send == nullptr) {
      auto made = connecting.poll();
      if (!made) return tl::unexpected(made.error());
      ends.send = std::move(*made);
    }
    if (ends.receive == nullptr) ends.receive = listener.accept().value();
    sched_yield();
  }
  return ends;
}

inline Result<Ends> connect(Context& from, size_t device, Context& to, size_t listening) {
  const auto listener = to.listen(listening).value();
  auto connecting = from.connect(device, listener->handle());
  if (!connecting) return tl::unexpected(connecting.error());
  return finish(**connecting, *listener);
}

// Expects that a message arrives with its data. Its memory is registered with the ends' NICs.
inline void expect_carries(Context& from, Context& to, const Ends& ends) {
  std::vector<uint8_t> out(100'000), in(out.size());
  std::iota(out.begin(), out.end(), uint8_t{3});
  const Memory* const out_memory =
      from.register_memory(ends.send->nic(), out.data(), out.size()).value();
  const Memory* const in_memory =
      to.register_memory(ends.receive->nic(), in.data(), in.size()).value();
  const ReceiveBuffer buffer{in.data(), in.size(), 0, in_memory};
  Request* receiving = ends.receive->irecv({&buffer, 1}).value();
  Request* sending = ends.send->isend(out.data(), out.size(), 0, out_memory).value();
  while (receiving != nullptr || sending != nullptr) {
    if (receiving != nullptr && ends.receive->test(receiving).value().done) receiving = nullptr;
    if (sending != nullptr && ends.send->test(sending).value().done) sending = nullptr;
  }
  EXPECT_EQ(in, out);
  EXPECT_TRUE(from.deregister_memory(ends.send->nic(), out_memory));
  EXPECT_TRUE(to.deregister_memory(ends.receive->nic(), in_memory));
}

}  // namespace pacecar::test

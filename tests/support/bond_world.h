// Two devices of several NICs each on this host's loopback; any NIC can be disconnected. One
// thread.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "transport/api/bond/bonded_end.h"
#include "transport/api/bond/keeper.h"
#include "transport/api/joining.h"
#include "transport/api/memory.h"
#include "transport/base/prng.h"
#include "transport/engine/clock.h"
#include "transport/engine/open/open_io.h"
#include "transport/engine/soft_port.h"
#include "transport/io/decorators/decorator.h"

namespace pacecar::test {

// How a NIC is disconnected.
enum class Cut : uint8_t { kNot, kOutgoing, kBoth };
using Switch = std::atomic<Cut>;

// Packets that are sent while the NIC is cut stay in the network, and arrive after mend().
class CutIo final : public PacketIoDecorator {
 public:
  CutIo(std::unique_ptr<PacketIo> inner, const Switch& cut)
      : PacketIoDecorator(std::move(inner)), cut_(cut) {}

  size_t send(std::span<const TxPacket> packets, Instant now) override {
    if (cut_ != Cut::kNot) {
      for (const TxPacket& packet : packets) hold(packet);
      return packets.size();
    }
    return inner().send(packets, now);
  }
  size_t receive(std::span<RxPacket> packets, Instant now) override {
    if (cut_ == Cut::kNot) let_go(now);
    const size_t count = inner().receive(packets, now);
    return cut_ == Cut::kBoth ? 0 : count;
  }

 private:
  struct Held {
    std::vector<uint8_t> bytes;
    Address destination;
    uint16_t path = 0;
    TrafficClass traffic_class = TrafficClass::kData;
  };

  void hold(const TxPacket& packet) {
    constexpr size_t kMost = 4096;
    if (held_.size() == kMost) return;
    Held& held = held_.emplace_back();
    for (const auto part : {packet.header, packet.payload, packet.trailer}) {
      held.bytes.insert(held.bytes.end(), part.begin(), part.end());
    }
    held.destination = *packet.destination;
    held.path = packet.path;
    held.traffic_class = packet.traffic_class;
  }

  void let_go(Instant now) {
    for (const Held& late : held_) {
      const TxPacket packet{.header = late.bytes,
                            .payload = {},
                            .trailer = {},
                            .destination = &late.destination,
                            .path = late.path,
                            .traffic_class = late.traffic_class};
      inner().send({&packet, 1}, now);
    }
    held_.clear();
  }

  const Switch& cut_;
  std::vector<Held> held_;
};

class BondDevice {
 public:
  BondDevice(const Params& params, size_t nics, uint8_t process)
      : cuts_(nics),
        own_{.devices = std::vector<OwnDevice>(1),
             .keeper = std::make_shared<BondKeeper>(),
             .notices = std::make_shared<Notices>()} {
    for (size_t i = 0; i < nics; ++i) {
      auto io = open_io(params, find_interface("lo").value(), Sockets::kUdp, LogSink());
      auto port =
          make_soft_port(params, std::make_unique<CutIo>(std::move(*io), cuts_[i]), clock_now());
      NicIdentity identity{process};
      identity.back() = static_cast<uint8_t>(i);
      own_.devices[0].nics.push_back(
          {.engine = Engine::open(params, std::move(port), identity).value(),
           .name = "nic" + std::to_string(i),
           .timeout = params.timeout,
           .log = {},
           .member = i});
    }
  }

  const OwnDevices& own() const { return own_; }
  Engine& engine(size_t nic) const { return *own_.requested().nics[nic].engine; }
  void cut(size_t nic, Cut cut = Cut::kBoth) { cuts_[nic] = cut; }
  void mend(size_t nic) {
    cuts_[nic] = Cut::kNot;
    engine(nic).progress();
  }

  // Deregistered before it is freed, as Context does it.
  using Registered = std::unique_ptr<const Memory, std::function<void(const Memory*)>>;
  Registered register_memory(std::span<uint8_t> bytes) {
    std::vector<MemoryRegion> regions;
    for (const OwnNic& nic : own_.requested().nics) {
      regions.push_back(nic.engine->exclusively([&](Messenger&, Nic& own, Instant) {
        return own.register_memory(bytes.data(), bytes.size(), Access::kRemoteWrite).value();
      }));
    }
    return {new Memory(std::move(regions), 0, std::nullopt), [this](const Memory* memory) {
              own_.keeper->forget_memory(*memory);
              for (size_t i = 0; i < own_.requested().nics.size(); ++i) {
                const MemoryRegion& region = memory->region(i);
                engine(i).exclusively([&](Messenger& messenger, Nic& own, Instant) {
                  messenger.forget_memory(region.key);
                  own.deregister_memory(region);
                });
              }
              delete memory;
            }};
  }
  uint64_t bytes_sent(size_t nic) const {
    return engine(nic).exclusively(
        [](Messenger& messenger, Nic&, Instant) { return messenger.counters().bytes_sent; });
  }

 private:
  std::vector<Switch> cuts_;
  OwnDevices own_;
};

// One message in flight, with guard bytes before and after its buffer that must not change.
class BondTransfer {
 public:
  static constexpr size_t kMargin = 64;

  BondTransfer(BondDevice& from, BondDevice& to, size_t capacity)
      : out_(capacity),
        in_(capacity + 2 * kMargin),
        out_memory_(from.register_memory(out_)),
        in_memory_(to.register_memory(in_)) {}

  bool busy() const { return sending_ != nullptr || receiving_ != nullptr; }

  void start(SendConnection& send, ReceiveConnection& receive, size_t size, uint64_t seed) {
    size_ = size;
    Prng random(seed);
    for (size_t at = 0; at < size; at += sizeof(uint64_t)) {
      const uint64_t word = random.next_u64();
      std::memcpy(out_.data() + at, &word, std::min(sizeof word, size - at));
    }
    std::ranges::fill(in_, kCanary);
    const ReceiveBuffer buffer{in_.data() + kMargin, in_.size() - 2 * kMargin, 7, in_memory_.get()};
    receiving_ = receive.irecv({&buffer, 1}).value();
    sending_ = send.isend(out_.data(), size, 7, out_memory_.get()).value();
    ASSERT_TRUE(sending_ != nullptr && receiving_ != nullptr);
  }

  // True when the message is done or has failed.
  bool poll(SendConnection& send, ReceiveConnection& receive) {
    poll(send, sending_);
    if (receiving_ == nullptr) return !busy();
    const auto result = poll(receive, receiving_);
    if (result && result->done) {
      EXPECT_EQ(result->sizes[0], size_);
      EXPECT_EQ(std::memcmp(in_.data() + kMargin, out_.data(), size_), 0) << size_ << " bytes";
      EXPECT_TRUE(all_are(kCanary, std::span(in_).first(kMargin)));
      EXPECT_TRUE(all_are(kCanary, std::span(in_).subspan(kMargin + size_)));
      // Now the application owns the buffer: a later write shows as a change at the end.
      std::ranges::fill(in_, kDone);
    }
    return !busy();
  }

  void expect_untouched() const { EXPECT_TRUE(all_are(kDone, in_)) << "a late write"; }
  const std::string& failure() const { return failure_; }

 private:
  static constexpr uint8_t kCanary = 0xA5;
  static constexpr uint8_t kDone = 0x5A;

  // Compares each byte with the next by memcmp: a loop over bytes is slow under a sanitizer.
  static bool all_are(uint8_t value, std::span<const uint8_t> bytes) {
    return bytes.front() == value &&
           std::memcmp(bytes.data(), bytes.data() + 1, bytes.size() - 1) == 0;
  }

  template <typename Connection>
  std::optional<TestResult> poll(Connection& connection, Request*& request) {
    if (request == nullptr) return std::nullopt;
    const auto result = connection.test(request);
    if (!result) failure_ = result.error().message;
    if (!result || result->done) request = nullptr;
    return result ? std::optional(*result) : std::nullopt;
  }

  std::vector<uint8_t> out_;
  std::vector<uint8_t> in_;
  BondDevice::Registered out_memory_;
  BondDevice::Registered in_memory_;
  size_t size_ = 0;
  Request* sending_ = nullptr;
  Request* receiving_ = nullptr;
  std::string failure_;
};

// A connection from a device of `from` NICs to one of `to`. A lane is lost after a fifth of the
// timeout, which must be longer than a busy machine may stop a process.
class BondWorld {
 public:
  BondWorld(size_t from, size_t to, Duration timeout = Duration::from_s(5))
      : params_(params(timeout)), from_(params_, from, 1), to_(params_, to, 2) {
    auto listener = make_listener(to_.own(), params_, {}).value();
    auto connecting = make_connecting(from_.own(), params_, {}, listener->handle(), {}).value();
    while (send_ == nullptr || receive_ == nullptr) {
      if (send_ == nullptr) send_ = connecting->poll().value();
      if (receive_ == nullptr) receive_ = listener->accept().value();
    }
  }

  BondDevice& from() { return from_; }
  BondDevice& to() { return to_; }
  SendConnection& send() { return *send_; }
  ReceiveConnection& receive() { return *receive_; }
  void close_send() { send_.reset(); }
  void close_receive() { receive_.reset(); }

 private:
  static Params params(Duration timeout) {
    Params params;
    params.timeout = timeout;
    return params;
  }

  Params params_;
  BondDevice from_;
  BondDevice to_;
  std::unique_ptr<SendConnection> send_;
  std::unique_ptr<ReceiveConnection> receive_;
};

}  // namespace pacecar::test

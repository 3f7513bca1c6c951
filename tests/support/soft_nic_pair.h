// Two software NICs connected by a wire in memory. Packets on the wire can be inspected, lost,
// repeated, reordered and forged. Virtual time; one thread.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

#include "tests/support/prng_source.h"
#include "transport/base/check.h"
#include "transport/softnic/soft_nic.h"
#include "transport/wire/checksum.h"
#include "transport/wire/extended.h"

namespace pacecar::test {

struct Datagram {
  std::vector<uint8_t> bytes;
  Instant sent;
  Ecn ecn = Ecn::kCapable0;
  uint16_t path = 0;
  bool trimmed = false;
  bool alone = false;
  Bytes elided = 0;
  std::vector<TelemetryHop> telemetry;

  // As a switch without room forwards it.
  void trim() {
    bytes.resize(wire::kDataHeaderBytes);
    trimmed = true;
  }
  // As a simulated network forwards it that keeps only the payload's length.
  void elide() {
    elided = bytes.size() - wire::kDataHeaderBytes - wire::kChecksumBytes;
    bytes.erase(bytes.begin() + wire::kDataHeaderBytes, bytes.end() - wire::kChecksumBytes);
  }
  wire::PacketKind kind() const { return wire::classify(bytes); }
  wire::DataHeader data() const {
    wire::DataHeader header;
    PACECAR_CHECK(wire::decode_trimmed(std::span(bytes).first(wire::kDataHeaderBytes), header));
    return header;
  }
};

// Registered memory of one of the NICs.
struct TestMemory {
  std::vector<uint8_t> bytes;
  MemoryRegion region;

  // The address that peers use.
  uint64_t address(size_t offset = 0) const { return region.remote_address + offset; }
};

inline Address test_address(uint8_t host) {
  return {.ip = {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 192, 0, 2, host}, .port = 4791};
}

class SoftNicPair {
 public:
  static constexpr Duration kDelay = Duration::from_us(2);  // of the wire, each way

  static SoftNicConfig default_config() {
    return {.line_rate = Rate::from_gbps(100),
            .mtu = 1024,
            .burst_bytes = 4096,
            .flows = 4,
            .queue_pairs = 16,
            .regions = 64,
            .window_packets = 128,
            .silence_limit = Duration::from_ms(500)};
  }

  // Without `random` each NIC has a Prng of its own.
  explicit SoftNicPair(const SoftNicConfig& config = default_config(),
                       std::optional<RandomSource> random = std::nullopt)
      : SoftNicPair(config, config, random) {}
  SoftNicPair(SoftNicConfig first, SoftNicConfig second,
              std::optional<RandomSource> random = std::nullopt) {
    for (size_t side = 0; side < 2; ++side) {
      SoftNicConfig& config = side == 0 ? first : second;
      config.address = test_address(static_cast<uint8_t>(side + 1));
      const RandomSource own = random_source(random_[side]);
      nics_[side] = std::make_unique<SoftNic>(config, random.value_or(own), now);
    }
  }
  SoftNicPair(const SoftNicPair&) = delete;
  SoftNicPair& operator=(const SoftNicPair&) = delete;

  SoftNic& nic(size_t side) { return *nics_[side]; }

  using Ends = std::array<QueuePairId, 2>;
  // A queue pair on each side, connected, with limits that do not limit.
  Ends connect(const QueuePairConfig& config = {}) {
    Ends ends{};
    for (size_t side = 0; side < 2; ++side) {
      ends[side] = nics_[side]->create_queue_pair(config).value();
      limit(side, config.flow, {.rate = Rate::from_gbps(1000), .window = Bytes{1} << 40});
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nics_[1 - side]->queue_pair_address(ends[1 - side]);
      PACECAR_CHECK(nics_[side]->connect_queue_pair(ends[side], peer.view()).has_value());
    }
    return ends;
  }
  void limit(size_t side, FlowId flow, const FlowLimits& limits) {
    nics_[side]->set_flow_limits(flow, limits, now);
  }

  // `first` is the value of the first byte; the others count up. Never moves.
  TestMemory& memory(size_t side, size_t size, Access access = Access::kRemoteWrite,
                     uint8_t first = 0) {
    TestMemory& memory = memory_.emplace_back();
    memory.bytes.resize(size);
    std::iota(memory.bytes.begin(), memory.bytes.end(), first);
    memory.region = nics_[side]->register_memory(memory.bytes.data(), size, access).value();
    return memory;
  }
  static WorkRequest write(const TestMemory& from, const TestMemory& to, Bytes length,
                           uint64_t id = 0, std::optional<uint32_t> immediate = std::nullopt) {
    return {.id = id,
            .local = from.bytes.data(),
            .remote = to.address(),
            .length = length,
            .local_key = from.region.key,
            .remote_key = to.region.key,
            .immediate = immediate.value_or(0),
            .opcode = immediate ? Opcode::kWriteWithImm : Opcode::kWrite};
  }
  size_t post(size_t side, QueuePairId id, const WorkRequest& work_request) {
    return nics_[side]->post(id, {&work_request, 1});
  }

  // --- by hand ---
  // All packets that the NIC can send now.
  std::vector<Datagram> transmit(size_t side) {
    std::vector<Datagram> sent;
    std::array<TxPacket, 64> packets;
    while (const size_t count = nics_[side]->poll_transmit(now, packets)) {
      for (const TxPacket& packet : std::span(packets).first(count)) {
        Datagram& datagram = sent.emplace_back();
        datagram.sent = now;
        datagram.path = packet.path;
        datagram.alone = packet.alone;
        for (const auto part : {packet.header, packet.payload, packet.trailer}) {
          datagram.bytes.insert(datagram.bytes.end(), part.begin(), part.end());
        }
      }
    }
    return sent;
  }
  // As transmit(), while the time advances by `limit`.
  std::vector<Datagram> transmit_for(size_t side, Duration limit) {
    std::vector<Datagram> sent;
    const Instant end = now + limit;
    for (;; now = std::clamp(nics_[side]->next_deadline(), now + Duration::from_ns(1), end)) {
      nics_[side]->on_time(now);
      std::ranges::move(transmit(side), std::back_inserter(sent));
      if (now == end) return sent;
    }
  }
  void deliver(size_t to, const Datagram& datagram) {
    deliver(to, datagram, test_address(static_cast<uint8_t>(2 - to)));
  }
  void deliver(size_t to, const Datagram& datagram, const Address& source) {
    // A copy of exactly this size, so that the address sanitizer sees every overrun.
    const std::vector<uint8_t> bytes = datagram.bytes;
    const RxPacket packet{.bytes = bytes,
                          .source = &source,
                          .ecn = datagram.ecn,
                          .elided = datagram.elided,
                          .trimmed = datagram.trimmed,
                          .telemetry = datagram.telemetry};
    nics_[to]->on_packets(now, {&packet, 1});
  }
  void collect() {
    for (size_t side = 0; side < 2; ++side) {
      std::array<Completion, 8> some;
      while (const size_t count = nics_[side]->poll(some)) {
        completions[side].insert(completions[side].end(), some.begin(), some.begin() + count);
      }
    }
  }

  // --- by the clock ---
  // Runs until `done` or for `limit`; false when the limit came first.
  bool run(const std::function<bool()>& done, Duration limit = Duration::from_s(10)) {
    const Instant end = now + limit;
    for (;;) {
      step();
      if (done()) return true;
      if (now >= end) return false;
      now = std::clamp(next_event(), now + Duration::from_ns(1), end);
    }
  }
  void run_for(Duration time) {
    run([] { return false; }, time);
  }
  bool run_until_completed(size_t side, size_t count, Duration limit = Duration::from_s(10)) {
    return run([&] { return completions[side].size() >= count; }, limit);
  }

  Instant now = Instant::from_ns(1'000'000'000);
  std::array<std::vector<Completion>, 2> completions;
  // run() calls it for every sent datagram; true: the datagram is lost.
  std::function<bool(size_t from, Datagram&)> lose = [](size_t, Datagram&) { return false; };

 private:
  void step() {
    for (size_t side = 0; side < 2; ++side) {
      auto& inbox = wire_[side];
      while (!inbox.empty() && inbox.front().sent + kDelay <= now) {
        deliver(side, inbox.front());
        inbox.pop_front();
      }
    }
    for (size_t side = 0; side < 2; ++side) {
      nics_[side]->on_time(now);
      for (Datagram& datagram : transmit(side)) {
        if (!lose(side, datagram)) wire_[1 - side].push_back(std::move(datagram));
      }
    }
    collect();
  }
  Instant next_event() const {
    Instant next = Instant::never();
    for (size_t side = 0; side < 2; ++side) {
      next = std::min(next, nics_[side]->next_deadline());
      if (!wire_[side].empty()) next = std::min(next, wire_[side].front().sent + kDelay);
    }
    return next;
  }

  std::array<Prng, 2> random_{Prng(1), Prng(2)};
  std::deque<TestMemory> memory_;
  std::array<std::unique_ptr<SoftNic>, 2> nics_;
  std::array<std::deque<Datagram>, 2> wire_;  // by destination
};

}  // namespace pacecar::test

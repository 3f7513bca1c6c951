// What every Nic must do (transport/nic/nic.h), as test suites that run against any kind of NIC:
// NicConformance; NicReads for NICs that speak standard RC; NicRequests and NicRcConformance for
// each StandardNic. To add a NIC, link the suites
// (tests/conformance/CMakeLists.txt) and write
//
//   INSTANTIATE_TEST_SUITE_P(MyNic, NicConformance,
//                            testing::Values(NicCase{"plain", make_my_world}), nic_case_name);
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>
#include <functional>
#include <memory>
#include <numeric>
#include <ostream>
#include <string>
#include <vector>

#include "transport/nic/standard_nic.h"

namespace pacecar {

// Two NICs that reach each other. A silent peer is declared dead within a few seconds of the
// world's time.
struct NicWorld {
  std::array<Nic*, 2> nics{};
  // Why this machine has no such NIC; not empty: the tests are skipped.
  std::string missing;
  // Whether memory that is deregistered while it is being sent breaks the queue pair. Otherwise
  // only the request fails.
  bool lost_memory_breaks = false;
  // Lets a little time pass, runs timers, moves packets, and returns the new time.
  std::function<Instant()> step;
  // When a timer of either NIC is due.
  std::function<Instant()> next_deadline;
  std::shared_ptr<void> owner;
};

template <typename AnyNic>
std::function<Instant()> next_deadline_of(AnyNic& a, AnyNic& b) {
  return [&a, &b] { return std::min(a.next_deadline(), b.next_deadline()); };
}

// Two hosts, a and b, that take turns on a simulated network.
template <typename World>
NicWorld in_virtual_time(const std::shared_ptr<World>& world) {
  return {.nics = {&world->a.nic(), &world->b.nic()},
          .step =
              [world] {
                auto& network = world->network;
                network.advance_to(network.now() + Duration::from_us(5));
                world->a.turn(network.now());
                world->b.turn(network.now());
                return network.now();
              },
          .next_deadline = next_deadline_of(world->a, world->b),
          .owner = world};
}

struct NicCase {
  const char* name;
  std::function<NicWorld()> make;
};

inline void PrintTo(const NicCase& value, std::ostream* out) { *out << value.name; }

inline std::string nic_case_name(const testing::TestParamInfo<NicCase>& info) {
  return info.param.name;
}

class NicConformance : public testing::TestWithParam<NicCase> {
 protected:
  using Ends = std::array<QueuePairId, 2>;
  struct Memory {
    std::vector<uint8_t> bytes;
    MemoryRegion region;
  };

  static constexpr FlowLimits kUnlimited{.rate = Rate::from_gbps(1000), .window = 1 << 20};

  void SetUp() override {
    world_ = GetParam().make();
    if (!world_.missing.empty()) GTEST_SKIP() << world_.missing;
    now_ = world_.step();
  }
  Nic& nic(size_t side) { return *world_.nics[side]; }
  StandardNic& standard(size_t side) { return dynamic_cast<StandardNic&>(nic(side)); }

  Ends connect(const QueuePairConfig& config = {}) {
    Ends ends{};
    for (size_t side = 0; side < 2; ++side) {
      ends[side] = nic(side).create_queue_pair(config).value();
      nic(side).set_flow_limits(config.flow, kUnlimited, now_);
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nic(1 - side).queue_pair_address(ends[1 - side]);
      EXPECT_TRUE(nic(side).connect_queue_pair(ends[side], peer.view()));
    }
    return ends;
  }
  // Registered memory; the reference stays valid.
  Memory& memory(size_t side, size_t size, Access access, uint8_t first = 0) {
    Memory& memory = memory_.emplace_back();
    memory.bytes.resize(size);
    std::iota(memory.bytes.begin(), memory.bytes.end(), first);
    memory.region = nic(side).register_memory(memory.bytes.data(), size, access).value();
    return memory;
  }
  static WorkRequest write(uint64_t id, const Memory& from, const Memory& to, Bytes length) {
    return {.id = id,
            .local = from.region.address,
            .remote = to.region.remote_address,
            .length = length,
            .local_key = from.region.key,
            .remote_key = to.region.key};
  }
  static WorkRequest write_with_imm(uint64_t id, const Memory& from, const Memory& to, Bytes length,
                                    uint32_t immediate) {
    WorkRequest request = write(id, from, to, length);
    request.opcode = Opcode::kWriteWithImm;
    request.immediate = immediate;
    return request;
  }
  size_t post(size_t side, QueuePairId id, const WorkRequest& work_request) {
    return nic(side).post(id, {&work_request, 1});
  }
  size_t post_receive(size_t side, QueuePairId id, uint64_t request, const Memory& to,
                      Bytes length) {
    const ReceiveRequest receive{
        .id = request, .local = to.region.address, .length = length, .local_key = to.region.key};
    return standard(side).post_receives(id, {&receive, 1});
  }
  // The unit of pacing: a packet, or a write where the NIC paces whole writes.
  Bytes paced_unit() {
    const NicCaps& caps = nic(0).caps();
    return caps.paces_packets ? caps.mtu : caps.write_bytes;
  }
  // Posts `request` on side 0 and expects its completion with `status`.
  void expect_refused(QueuePairId id, const WorkRequest& request, CompletionStatus status) {
    completions_[0].clear();
    ASSERT_EQ(post(0, id, request), 1U);
    ASSERT_TRUE(wait_for_completions(0, 1));
    EXPECT_EQ(completions_[0][0].kind, CompletionKind::kSent);
    EXPECT_EQ(completions_[0][0].work_request, request.id);
    EXPECT_EQ(completions_[0][0].status, status);
  }

  void step() {
    now_ = world_.step();
    for (size_t side = 0; side < 2; ++side) {
      std::array<Completion, 7> some;
      while (const size_t count = nic(side).poll(some)) {
        completions_[side].insert(completions_[side].end(), some.begin(), some.begin() + count);
      }
    }
  }
  // Steps until done(); false: it was not within a bounded number of steps.
  template <typename Done>
  bool wait(Done done) {
    for (int i = 0; i < 200'000 && !done(); ++i) step();
    return done();
  }
  bool wait_for_completions(size_t side, size_t count) {
    return wait([&] { return completions_[side].size() >= count; });
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) step();
  }

  std::deque<Memory> memory_;  // outlives the NICs
  NicWorld world_;
  Instant now_;
  std::array<std::vector<Completion>, 2> completions_;
};

class NicReads : public NicConformance {};
class NicRequests : public NicConformance {};

class NicRcConformance : public NicConformance {
 protected:
  static constexpr QueuePairConfig kUnpaced{.paced = false, .receives = 8};
  static constexpr size_t kGuard = 64;
  static constexpr uint8_t kGuardByte = 0xA5;

  // Small sizes, and sizes around multiples of the MTU.
  std::vector<Bytes> sizes() {
    const Bytes mtu = std::min(nic(0).caps().mtu, nic(1).caps().mtu);
    return {0, 1, 2, 3, 4, 5, mtu - 1, mtu, mtu + 1, 2 * mtu, 20 * mtu + 3, 300 * mtu + 1};
  }
  // Memory of `size` bytes between guards.
  Memory& guarded(size_t side, Bytes size, Access access) {
    Memory& memory = this->memory(side, size + 2 * kGuard, access);
    std::ranges::fill(memory.bytes, kGuardByte);
    return memory;
  }
  static uint64_t inside(const Memory& memory) { return memory.region.remote_address + kGuard; }
  static void expect_between_guards(const Memory& to, const Memory& from, Bytes size) {
    for (size_t i = 0; i < kGuard; ++i) {
      ASSERT_EQ(to.bytes[i], kGuardByte) << size;
      ASSERT_EQ(to.bytes[kGuard + size + i], kGuardByte) << size;
    }
    ASSERT_TRUE(std::equal(from.bytes.begin(), from.bytes.begin() + static_cast<long>(size),
                           to.bytes.begin() + kGuard))
        << size;
  }
  static WorkRequest send(uint64_t id, const Memory& from, Bytes length) {
    return {.id = id,
            .local = from.region.address,
            .length = length,
            .local_key = from.region.key,
            .opcode = Opcode::kSend};
  }
  static WorkRequest read(uint64_t id, const Memory& to, const Memory& from, Bytes length) {
    return {.id = id,
            .local = to.region.address + kGuard,
            .remote = from.region.remote_address,
            .length = length,
            .local_key = to.region.key,
            .remote_key = from.region.key,
            .opcode = Opcode::kRead};
  }
  size_t receive(size_t side, QueuePairId id, uint64_t request, const Memory& to, Bytes length) {
    const ReceiveRequest receive{.id = request,
                                 .local = to.region.address + kGuard,
                                 .length = length,
                                 .local_key = to.region.key};
    return standard(side).post_receives(id, {&receive, 1});
  }
  void expect_broken(size_t side, size_t index, CompletionStatus status) {
    ASSERT_TRUE(wait_for_completions(side, index + 1));
    EXPECT_EQ(completions_[side][index].kind, CompletionKind::kBroken);
    EXPECT_EQ(completions_[side][index].status, status);
  }
};

}  // namespace pacecar

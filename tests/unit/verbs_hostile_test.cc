// What a real RDMA NIC may do, and rdma_rxe does not: each with the device that does it.
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/support/hostile_nics.h"
#include "tests/support/hostile_verbs/gpu_memory.h"

namespace pacecar {
namespace {

using hostile::Behavior;
using hostile::GpuBuffer;
using test::HostileNics;

class VerbsHostile : public testing::Test {
 protected:
  static constexpr size_t kSize = 4096;

  void open(const Behavior& behavior, uint32_t paths = 1) {
    nics_ = std::make_unique<HostileNics>(behavior, 2, paths);
    for (size_t side = 0; side < 2; ++side) {
      nic(side).set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = 1 << 20},
                                HostileNics::now());
      ends_[side] = nic(side).create_queue_pair({}).value();
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nic(1 - side).queue_pair_address(ends_[1 - side]);
      const auto connected = nic(side).connect_queue_pair(ends_[side], peer.view());
      ASSERT_TRUE(connected) << connected.error().message;
    }
  }
  VerbsNic& nic(size_t side) { return (*nics_)[side]; }
  void post(const MemoryRegion& from, const MemoryRegion& to, Bytes length) {
    const WorkRequest request{.local = from.address,
                              .remote = reinterpret_cast<uint64_t>(to.address),
                              .length = length,
                              .local_key = from.key,
                              .remote_key = to.key,
                              .opcode = Opcode::kWriteWithImm};
    ASSERT_EQ(nic(0).post(ends_[0], {&request, 1}), 1U);
  }
  // False when it does not come about.
  bool wait(size_t side, size_t count) {
    for (int i = 0; i < 200'000 && completions_[side].size() < count; ++i) {
      nics_->step();
      std::array<Completion, 16> some;
      for (size_t each = 0; each < 2; ++each) {
        const size_t polled = nic(each).poll(some);
        completions_[each].insert(completions_[each].end(), some.begin(), some.begin() + polled);
      }
    }
    return completions_[side].size() >= count;
  }

  std::unique_ptr<HostileNics> nics_;
  std::array<QueuePairId, 2> ends_{};
  std::array<std::vector<Completion>, 2> completions_;
};

TEST_F(VerbsHostile, TheProcessorDoesNotTouchMemoryOfAGpu) {
  GpuBuffer from(kSize);
  GpuBuffer to(kSize);
  open({});
  std::iota(from.as_gpu_sees().begin(), from.as_gpu_sees().end(), uint8_t{1});
  const MemoryRegion local =
      nic(0).register_memory(from.address(), kSize, Access::kRemoteAll).value();
  const MemoryRegion remote =
      nic(1).register_memory(to.address(), kSize, Access::kRemoteAll).value();
  for (Bytes length = 1; length <= 65; ++length) {
    post(local, remote, length);
    ASSERT_TRUE(wait(1, length));
  }
  ASSERT_TRUE(wait(0, 65));
  EXPECT_TRUE(std::ranges::equal(to.as_gpu_sees().first(65), from.as_gpu_sees().first(65)));
  for (size_t side = 0; side < 2; ++side) nic(side).deregister_memory(side == 0 ? local : remote);
}

// A completion says nothing of a GPU's memory: a read of it does.
TEST_F(VerbsHostile, AFlushPushesDataIntoAGpusMemory) {
  GpuBuffer to(kSize);
  open({.late_landing = 50});
  std::vector<uint8_t> from(kSize);
  std::iota(from.begin(), from.end(), uint8_t{1});
  const MemoryRegion local = nic(0).register_memory(from.data(), kSize, Access::kLocalRead).value();
  const MemoryRegion remote =
      nic(1).register_memory(to.address(), kSize, Access::kRemoteAll).value();
  post(local, remote, kSize);
  ASSERT_TRUE(wait(1, 1));
  EXPECT_FALSE(std::ranges::equal(to.as_gpu_sees(), from)) << "the device is not hostile enough";
  const uint64_t flush = nic(1).start_flush(remote, to.address()).value().value();
  for (int i = 0; i < 200'000 && !nic(1).flushed(flush).value(); ++i) nics_->step();
  EXPECT_TRUE(std::ranges::equal(to.as_gpu_sees(), from));
  nic(1).deregister_memory(remote);
}

TEST_F(VerbsHostile, InfinibandPortsThatWantAGlobalRouteGetOne) {
  open({.infiniband = true, .grh_required = true});
  std::vector<uint8_t> memory(kSize);
  const MemoryRegion local =
      nic(0).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  const MemoryRegion remote =
      nic(1).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  post(local, remote, kSize);
  EXPECT_TRUE(wait(1, 1));
}

// Drivers throw away the completions of a connection that is destroyed: what it had received when a
// request was refused is counted before.
TEST_F(VerbsHostile, WhatArrivedBeforeARefusalIsNotLost) {
  open({.late_receives = 20'000});
  std::vector<uint8_t> memory(kSize);
  const MemoryRegion local =
      nic(0).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  const MemoryRegion remote =
      nic(1).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  for (int i = 0; i < 10; ++i) post(local, remote, 100);
  MemoryRegion wrong = remote;
  wrong.key = ~wrong.key;
  post(local, wrong, 100);
  post(local, remote, 100);
  ASSERT_TRUE(wait(0, 12));
  ASSERT_TRUE(wait(1, 11));
  for (size_t i = 0; i < 12; ++i) {
    EXPECT_EQ(completions_[0][i].status,
              i == 10 ? CompletionStatus::kRemoteAccessError : CompletionStatus::kOk);
  }
}

}  // namespace
}  // namespace pacecar

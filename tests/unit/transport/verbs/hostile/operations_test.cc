// Behaviour of real RDMA NICs that rdma_rxe does not have, each with a device that has it.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <numeric>
#include <vector>

#include "tests/support/hostile_ends.h"
#include "tests/support/hostile_verbs/gpu_memory.h"

namespace pacecar::operations_test {
namespace {

using hostile::GpuBuffer;
using test::HostileNics;

class VerbsHostile : public test::HostileEnds {};

TEST_F(VerbsHostile, ProcessorDoesNotTouchGpuMemory) {
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

// A completion does not mean that the data are in a GPU's memory; a read of that memory ensures it.
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

TEST_F(VerbsHostile, GlobalRouteIsUsedIfAnInfinibandPortRequiresIt) {
  open({.infiniband = true, .grh_required = true});
  std::vector<uint8_t> memory(kSize);
  const MemoryRegion local =
      nic(0).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  const MemoryRegion remote =
      nic(1).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  post(local, remote, kSize);
  EXPECT_TRUE(wait(1, 1));
}

// Drivers discard the completions of a destroyed connection: writes that arrived before the refused
// one must be counted first.
TEST_F(VerbsHostile, WritesBeforeARefusedOneAreNotLost) {
  open({.late_landing = 50, .late_receives = 20'000, .late_last_receive = Duration::from_ms(5)});
  std::vector<uint8_t> memory(kSize);
  const MemoryRegion local =
      nic(0).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  const MemoryRegion remote =
      nic(1).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  for (Bytes i = 0; i < 10; ++i) post(local, remote, 100 + i);
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

// A flushed request does not mean that the unsignaled requests before it are complete.
TEST_F(VerbsHostile, FlushedRequestsArePostedAgain) {
  open({.late_reading = 50, .quiet_flushes = true});
  std::vector<uint8_t> memory(kSize);
  const MemoryRegion local =
      nic(0).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  const MemoryRegion remote =
      nic(1).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  for (int i = 0; i < 10; ++i) post(local, remote, 100);
  nic(0).transmit(HostileNics::now());
  nic(0).upset_lane(ends_[0], 0);
  EXPECT_TRUE(wait(0, 10) && wait(1, 10));
}

// Memory of waiting requests may be deregistered at any moment.
TEST_F(VerbsHostile, WaitingRequestsOfDeregisteredMemoryAreNotPosted) {
  open({.late_reading = 50});
  std::vector<uint8_t> memory(kSize);
  const MemoryRegion remote =
      nic(1).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  for (const bool failed : {false, true}) {
    SCOPED_TRACE(failed ? "on a lane that has failed" : "for the flow's window");
    completions_ = {};
    std::vector<uint8_t> going(kSize);
    const MemoryRegion local =
        nic(0).register_memory(going.data(), kSize, Access::kLocalRead).value();
    const Bytes window = Bytes{1} << (failed ? 20 : 0);
    nic(0).set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = window},
                           HostileNics::now());
    for (int i = 0; i < 4; ++i) post(local, remote, 100);
    nic(0).transmit(HostileNics::now());
    if (failed) nic(0).upset_lane(ends_[0], 0);
    for (int i = 0; i < (failed ? 2 : 0); ++i) turn();
    nic(0).deregister_memory(local);
    ASSERT_TRUE(wait(0, 4));
    EXPECT_EQ(completions_[0].back().status, CompletionStatus::kMemoryGone);
    EXPECT_EQ(nics_->log().find("may not use the local memory"), std::string::npos);
  }
}

// A thread is woken also by a completion that comes while it prepares to wait.
TEST_F(VerbsHostile, EveryCompletionWakesAWaitingThread) {
  open({.late_completions = 3});
  std::vector<uint8_t> memory(kSize);
  const MemoryRegion local =
      nic(0).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  const MemoryRegion remote =
      nic(1).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  const auto woken = [&](size_t side) {
    pollfd wait{nic(side).wait_fd(), POLLIN, 0};
    return ::poll(&wait, 1, 0) == 1;
  };
  for (int turns = 0; turns < 30; ++turns) {
    while (!nic(0).prepare_to_wait(HostileNics::now()) ||
           !nic(1).prepare_to_wait(HostileNics::now()))
      turn();
    post(local, remote, 100);
    nic(0).transmit(HostileNics::now());
    for (int i = 0; i < turns; ++i) hostile::turn();
    const bool slept_before = turns % 2 == 0;
    const std::array sleeps{nic(0).prepare_to_wait(HostileNics::now()),
                            slept_before || nic(1).prepare_to_wait(HostileNics::now())};
    for (int i = 0; i < 100; ++i) hostile::turn();
    EXPECT_TRUE(!sleeps[0] || woken(0)) << "the sender, after " << turns;
    EXPECT_TRUE(!sleeps[1] || woken(1)) << "the receiver, after " << turns;
    const size_t count = static_cast<size_t>(turns) + 1;
    ASSERT_TRUE(wait(0, count) && wait(1, count));
  }
}

// A thread that prepares to wait finds it, some time after its last turn.
TEST_F(VerbsHostile, ACompletionIsDatedWhenItIsFound) {
  open({});
  std::vector<uint8_t> memory(kSize);
  const MemoryRegion local =
      nic(0).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  const MemoryRegion remote =
      nic(1).register_memory(memory.data(), kSize, Access::kRemoteWrite).value();
  post(local, remote, 100);
  const Instant sent = HostileNics::now();
  nic(0).transmit(sent);
  for (int i = 0; i < 20; ++i) hostile::turn();
  EXPECT_FALSE(nic(0).prepare_to_wait(sent + Duration::from_us(500)));
  FlowSignal signal;
  ASSERT_EQ(nic(0).poll_signals({&signal, 1}), 1U);
  EXPECT_GE(signal.rtt, Duration::from_us(400));
}

}  // namespace
}  // namespace pacecar::operations_test

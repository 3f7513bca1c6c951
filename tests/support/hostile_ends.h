// A queue pair between two NICs on hostile devices, and the completions at either end. One thread.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <memory>
#include <vector>

#include "tests/support/hostile_nics.h"

namespace pacecar::test {

class HostileEnds : public testing::Test {
 protected:
  static constexpr size_t kSize = 4096;

  void open(const hostile::Behavior& behavior, uint32_t paths = 1) {
    nics_.reset();
    nics_ = std::make_unique<HostileNics>(behavior, 2, paths);
    completions_ = {};
    for (size_t side = 0; side < 2; ++side) {
      nic(side).set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = 1 << 20},
                                HostileNics::now());
    }
    join({});
  }
  void join(const QueuePairConfig& config) {
    for (size_t side = 0; side < 2; ++side) {
      ends_[side] = nic(side).create_queue_pair(config).value();
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nic(1 - side).queue_pair_address(ends_[1 - side]);
      const auto connected = nic(side).connect_queue_pair(ends_[side], peer.view());
      ASSERT_TRUE(connected) << connected.error().message;
    }
  }
  VerbsNic& nic(size_t side) { return (*nics_)[side]; }
  void post(const MemoryRegion& from, const MemoryRegion& to, Bytes length,
            Opcode opcode = Opcode::kWriteWithImm) {
    const WorkRequest request{.local = from.address,
                              .remote = to.remote_address,
                              .length = length,
                              .local_key = from.key,
                              .remote_key = to.key,
                              .opcode = opcode};
    ASSERT_EQ(nic(0).post(ends_[0], {&request, 1}), 1U);
  }
  void turn() {
    nics_->step();
    std::array<Completion, 16> some;
    for (size_t each = 0; each < 2; ++each) {
      const size_t polled = nic(each).poll(some);
      completions_[each].insert(completions_[each].end(), some.begin(), some.begin() + polled);
    }
  }
  // False when the condition is not reached.
  bool wait(size_t side, size_t count) {
    for (int i = 0; i < 200'000 && completions_[side].size() < count; ++i) turn();
    return completions_[side].size() >= count;
  }

  std::unique_ptr<HostileNics> nics_;
  std::array<QueuePairId, 2> ends_{};
  std::array<std::vector<Completion>, 2> completions_;
};

}  // namespace pacecar::test

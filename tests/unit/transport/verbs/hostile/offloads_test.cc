// Time stamps of completions, which only some devices have: used where a device has them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <numeric>
#include <string>
#include <string_view>
#include <vector>

#include "tests/support/hostile_nics.h"

namespace pacecar::offloads_test {
namespace {

using hostile::Behavior;
using hostile::ClockFault;
using test::HostileNics;
using testing::AllOf;
using testing::HasSubstr;

class VerbsOffloads : public testing::Test {
 protected:
  static constexpr size_t kSize = 64 << 10;
  static constexpr Rate kFast = Rate::from_gbps(1000);

  void open(const Behavior& behavior, uint32_t paths = 1, bool without_stamps = false) {
    nics_.reset();
    nics_ = std::make_unique<HostileNics>(behavior, 2, paths, without_stamps);
    set_rate(kFast);
    for (size_t side = 0; side < 2; ++side) {
      ends_[side] = nic(side).create_queue_pair({}).value();
      memory_[side] =
          nic(side).register_memory(bytes_[side].data(), kSize, Access::kRemoteWrite).value();
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nic(1 - side).queue_pair_address(ends_[1 - side]);
      ASSERT_TRUE(nic(side).connect_queue_pair(ends_[side], peer.view()));
    }
    std::iota(bytes_[0].begin(), bytes_[0].end(), uint8_t{1});
  }
  VerbsNic& nic(size_t side) { return (*nics_)[side]; }
  std::string offloads() { return nic(0).caps().offloads; }
  void set_rate(Rate rate) {
    nic(0).set_flow_limits(0, {.rate = rate, .window = 1 << 20}, HostileNics::now());
  }

  void post(Bytes length) {
    const WorkRequest request{.local = memory_[0].address,
                              .remote = memory_[1].remote_address,
                              .length = length,
                              .local_key = memory_[0].key,
                              .remote_key = memory_[1].key,
                              .opcode = Opcode::kWriteWithImm,
                              .host = true};
    ASSERT_EQ(nic(0).post(ends_[0], {&request, 1}), 1U);
  }
  void steps(int count) {
    for (int i = 0; i < count; ++i) nics_->step();
  }
  int times_logged(std::string_view what) const {
    int times = 0;
    for (size_t at = 0; (at = nics_->log().find(what, at)) != std::string::npos; ++at) ++times;
    return times;
  }
  // The completions that each end has now; all have the wanted status.
  std::array<size_t, 2> take_done() {
    std::array<Completion, 16> some;
    std::array<size_t, 2> done{};
    for (size_t side = 0; side < 2; ++side) {
      done[side] = nic(side).poll(some);
      for (const Completion& each : std::span(some).first(done[side])) {
        EXPECT_EQ(each.status, wanted_status_) << nic(side).fault(ends_[side]);
      }
    }
    return done;
  }
  bool wait(size_t sent, size_t received) {
    for (int i = 0; i < 200'000 && sent + received > 0; ++i) {
      nics_->step();
      const auto done = take_done();
      sent -= done[0];
      received -= done[1];
    }
    return sent + received == 0;
  }
  bool carry(Bytes length) {
    post(length);
    return wait(1, 1);
  }
  // The round trip that was reported last.
  Duration round_trip() {
    std::array<FlowSignal, 4> signals;
    const size_t count = nic(0).poll_signals(signals);
    return count == 0 ? Duration() : signals[count - 1].rtt;
  }
  // The round trip of a write that was complete long before its completion was polled.
  Duration late_round_trip(int64_t late_us) {
    round_trip();
    post(4096);
    nic(0).transmit(HostileNics::now());
    for (int64_t i = 0; i < late_us; ++i) hostile::turn();
    steps(1);
    EXPECT_TRUE(wait(1, 1));
    return round_trip();
  }

  std::array<std::vector<uint8_t>, 2> bytes_{std::vector<uint8_t>(kSize),
                                             std::vector<uint8_t>(kSize)};
  CompletionStatus wanted_status_ = CompletionStatus::kOk;
  std::unique_ptr<HostileNics> nics_;
  std::array<QueuePairId, 2> ends_{};
  std::array<MemoryRegion, 2> memory_{};
};

TEST_F(VerbsOffloads, RoundTripExcludesLatePolling) {
  for (const uint32_t khz : {156'250U, 332'667U, 1'000'000U}) {
    open({.clock_khz = khz});
    EXPECT_THAT(offloads(), HasSubstr("offloads: time_stamps"));
    ASSERT_TRUE(carry(4096));
    const Duration prompt = round_trip();
    EXPECT_LT(prompt.us(), 50);
    EXPECT_LT(late_round_trip(5'000).us(), prompt.us() + 50);
  }
  open({.clock_khz = 1'000'000}, 1, true);
  ASSERT_TRUE(carry(4096));
  EXPECT_GT(late_round_trip(5'000).us(), 4'900) << "without stamps, late polling counts";
}

TEST_F(VerbsOffloads, FaultyClocksGiveNoAbsurdRoundTrip) {
  for (const ClockFault fault :
       {ClockFault::kZero, ClockFault::kJumps, ClockFault::kSlow, ClockFault::kFast}) {
    open({.clock_khz = 156'250, .clock_bits = 48, .clock_fault = fault});
    for (int i = 0; i < 2'000; ++i) {
      ASSERT_TRUE(carry(4096));
      const Duration rtt = round_trip();
      ASSERT_GT(rtt.ns(), 2'000) << "shorter than the network allows: fault "
                                 << static_cast<int>(fault);
      ASSERT_LT(rtt.us(), 100);
    }
    if (fault == ClockFault::kFast) continue;  // not detected, and harmless
    EXPECT_EQ(times_logged("the time stamps of hostile0 make no sense"), 1);
  }
}

TEST_F(VerbsOffloads, OnlyValidFieldsOfAFailedCompletionAreRead) {
  open({.clock_khz = 1'000'000});
  memory_[1].key = ~memory_[1].key;
  wanted_status_ = CompletionStatus::kRemoteAccessError;
  post(100);
  EXPECT_TRUE(wait(1, 0));
}

TEST_F(VerbsOffloads, RoundTripIsMeasuredByOurClockWithoutStamps) {
  open({.clock_khz = 156'250, .no_stamps = true});
  EXPECT_THAT(offloads(), HasSubstr("no time_stamps: ibv_create_cq_ex: Operation not supported"));
  ASSERT_TRUE(carry(4096));
  EXPECT_GT(late_round_trip(5'000).us(), 4'900);
}

TEST(OffloadNames, AreParsedOrListed) {
  EXPECT_FALSE(parse_without_stamps("").value());
  EXPECT_TRUE(parse_without_stamps("time_stamps").value());
  EXPECT_THAT(parse_without_stamps("stamps").error().message,
              AllOf(HasSubstr("'stamps'"), HasSubstr("there is time_stamps")));
}

}  // namespace
}  // namespace pacecar::offloads_test

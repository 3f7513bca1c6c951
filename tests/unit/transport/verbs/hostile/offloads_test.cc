// Offloads that only some devices have: used where a device has them, needed nowhere.
#include "transport/verbs/offloads.h"

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
using testing::Each;
using testing::Gt;
using testing::HasSubstr;
using testing::IsEmpty;
using testing::Le;
using testing::SizeIs;

class VerbsOffloads : public testing::Test {
 protected:
  static constexpr size_t kSize = 64 << 10;
  static constexpr Rate kFast = Rate::from_gbps(1000);

  void open(const Behavior& behavior, uint32_t paths = 1, const OffloadSet& without = {}) {
    nics_.reset();
    nics_ = std::make_unique<HostileNics>(behavior, 2, paths, without);
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

// --- time stamps ---

TEST_F(VerbsOffloads, RoundTripExcludesLatePolling) {
  for (const uint32_t khz : {156'250U, 332'667U, 1'000'000U}) {
    open({.clock_khz = khz});
    EXPECT_THAT(offloads(), HasSubstr("offloads: time_stamps"));
    ASSERT_TRUE(carry(4096));
    const Duration prompt = round_trip();
    EXPECT_LT(prompt.us(), 50);
    EXPECT_LT(late_round_trip(5'000).us(), prompt.us() + 50);
  }
  open({.clock_khz = 1'000'000}, 1, {true, false});
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

// --- rate limits ---

constexpr Behavior kLimits{.rate_limit_max = 100'000'000};
constexpr int kSteady = 20'000;  // steps: 80 ms and more

TEST_F(VerbsOffloads, LanesOfASlowFlowAreLimitedUntilTheFlowIsFast) {
  open(kLimits, 4);
  EXPECT_THAT(offloads(), HasSubstr("offloads: rate_limits"));
  set_rate(Rate::from_gbps(5));
  steps(kSteady);
  constexpr uint32_t kGbpsInKbps = 1'000'000;
  EXPECT_THAT(hostile::offload_use().rate_limits,
              AllOf(SizeIs(4), Each(AllOf(Gt(5 * kGbpsInKbps), Le(15 * kGbpsInKbps / 2)))));
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(carry(kSize));
  set_rate(kFast);
  steps(kSteady);
  EXPECT_THAT(hostile::offload_use().rate_limits, IsEmpty());
  EXPECT_EQ(nics_->log(), "");
}

TEST_F(VerbsOffloads, LanesAreLimitedOneByOne) {
  open(kLimits, 4);
  set_rate(Rate::from_gbps(5));
  size_t before = 0;
  for (int ms = 0; ms < 60; ++ms) {
    for (const Instant end = HostileNics::now() + Duration::from_ms(1); nics_->step() < end;) {
    }
    const size_t limited = hostile::offload_use().rate_limits.size();
    EXPECT_LE(limited, before + 1) << "within a millisecond";
    before = limited;
  }
  EXPECT_EQ(before, 4U);
}

TEST_F(VerbsOffloads, RecoveredAndNewLanesAreLimitedToo) {
  open(kLimits, 4);
  set_rate(Rate::from_gbps(5));
  steps(kSteady);
  nic(0).upset_lane(ends_[0], 2);
  for (int i = 0; i < 8; ++i) post(4096);
  EXPECT_TRUE(wait(8, 8));
  steps(kSteady);
  EXPECT_EQ(times_logged("lane 2 is back"), 2) << "logged by both ends";
  EXPECT_THAT(hostile::offload_use().rate_limits, SizeIs(4))
      << "the recovered lane is limited, too";
  for (int i = 0; i < 8; ++i) ASSERT_TRUE(carry(kSize));

  std::array<QueuePairId, 2> second;
  for (size_t side = 0; side < 2; ++side) second[side] = nic(side).create_queue_pair({}).value();
  for (size_t side = 0; side < 2; ++side) {
    const auto peer = nic(1 - side).queue_pair_address(second[1 - side]);
    ASSERT_TRUE(nic(side).connect_queue_pair(second[side], peer.view()));
  }
  steps(kSteady);
  EXPECT_THAT(hostile::offload_use().rate_limits, SizeIs(8))
      << "the flow's second queue pair is limited, too";
}

// The time for which a device holds back a write does not count as round trip, and a burst that the
// device lets through does not shorten the round trip.
TEST_F(VerbsOffloads, RateLimitDoesNotChangeTheRoundTrip) {
  for (const uint32_t burst : {0U, 1U << 20}) {
    Behavior behavior = kLimits;
    behavior.rate_burst = burst;
    open(behavior, 1);
    ASSERT_TRUE(carry(kSize));
    const Duration free = round_trip();
    set_rate(Rate::from_gbps(2));
    steps(kSteady);
    ASSERT_THAT(hostile::offload_use().rate_limits, SizeIs(1));
    for (int i = 0; i < 10; ++i) {
      steps(200);
      ASSERT_TRUE(carry(kSize));  // takes 230 us under the limit
      const Duration limited = round_trip();
      EXPECT_GE(limited.ns() * 2, free.ns());
      EXPECT_LE((limited - free).us(), 30);
    }
  }
}

TEST_F(VerbsOffloads, DeviceThatRefusesALimitGetsNoMore) {
  Behavior behavior = kLimits;
  behavior.rate_commands = 2;
  open(behavior, 4);
  for (const uint64_t gbps : {5, 4, 3, 2}) {
    set_rate(Rate::from_gbps(gbps));
    steps(kSteady);
  }
  EXPECT_THAT(hostile::offload_use().rate_limits, IsEmpty())
      << "the device also refuses to remove limits";
  EXPECT_EQ(times_logged("from here on it has no rate limits"), 1);
  for (int i = 0; i < 20; ++i) ASSERT_TRUE(carry(kSize));
}

TEST_F(VerbsOffloads, NoLimitIsSetIfTheDeviceHasNoneForRc) {
  Behavior behavior = kLimits;
  behavior.rate_limits_rc = false;
  open(behavior);
  EXPECT_THAT(offloads(), HasSubstr("no rate_limits: the device has none for RC queue pairs"));
  set_rate(Rate::from_gbps(5));
  steps(kSteady);
  EXPECT_EQ(nics_->log(), "");
  EXPECT_TRUE(carry(kSize));
}

TEST(OffloadNames, AreParsedOrListed) {
  EXPECT_EQ(parse_offloads("").value(), (OffloadSet{}));
  EXPECT_EQ(parse_offloads("rate_limits,time_stamps").value(), (OffloadSet{true, true}));
  EXPECT_THAT(parse_offloads("stamps").error().message,
              AllOf(HasSubstr("'stamps'"), HasSubstr("time_stamps, rate_limits")));
}

}  // namespace
}  // namespace pacecar::offloads_test

// Asynchronous events of a device, at any moment.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "tests/support/hostile_ends.h"

namespace pacecar::events_test {
namespace {

using testing::HasSubstr;
using testing::Not;

class VerbsEvents : public test::HostileEnds, public testing::WithParamInterface<ibv_event_type> {
 protected:
  static constexpr size_t kWrites = 40;

  void begin() {
    open({.late_landing = 3, .late_completions = 5}, 2);
    for (size_t side = 0; side < 2; ++side) {
      regions_[side] =
          nic(side).register_memory(memory_.data(), kSize, Access::kRemoteWrite).value();
    }
  }
  void write(size_t count) {
    for (size_t i = 0; i < count; ++i) post(regions_[0], regions_[1], 100);
  }
  // Raises an event in the middle of writes; returns when the NIC has read the event.
  void raise_event(size_t side, ibv_event_type type) {
    write(kWrites / 2);
    for (int i = 0; i < 3; ++i) turn();
    hostile::raise(static_cast<uint32_t>(side), type);
    const Instant looked = test::HostileNics::now() + Duration::from_ms(10);
    while (test::HostileNics::now() < looked) turn();
  }
  void expect_all_arrives_despite(size_t side, ibv_event_type type) {
    begin();
    raise_event(side, type);
    write(kWrites / 2);
    EXPECT_TRUE(wait(0, kWrites) && wait(1, kWrites) && all_done());
  }
  bool all_done() const {
    return std::ranges::all_of(completions_[0], [](const Completion& each) {
      return each.status == CompletionStatus::kOk;
    });
  }

  std::vector<uint8_t> memory_ = std::vector<uint8_t>(kSize);
  std::array<MemoryRegion, 2> regions_;
};

std::string event_name(const testing::TestParamInfo<ibv_event_type>& info) {
  return "event_" + std::to_string(info.param);
}

class VerbsEventsThatChangeNothing : public VerbsEvents {};

TEST_P(VerbsEventsThatChangeNothing, EveryWriteArrives) {
  for (const size_t side : {0, 1}) {
    expect_all_arrives_despite(side, GetParam());
    EXPECT_THAT(nics_->log(), Not(HasSubstr("has failed")));
  }
}
INSTANTIATE_TEST_SUITE_P(All, VerbsEventsThatChangeNothing,
                         testing::Values(IBV_EVENT_COMM_EST, IBV_EVENT_SQ_DRAINED,
                                         IBV_EVENT_PATH_MIG, IBV_EVENT_PATH_MIG_ERR,
                                         IBV_EVENT_PORT_ACTIVE, IBV_EVENT_PORT_ERR,
                                         IBV_EVENT_LID_CHANGE, IBV_EVENT_PKEY_CHANGE,
                                         IBV_EVENT_SM_CHANGE, IBV_EVENT_SRQ_LIMIT_REACHED,
                                         IBV_EVENT_QP_LAST_WQE_REACHED, IBV_EVENT_CLIENT_REREGISTER,
                                         IBV_EVENT_GID_CHANGE),
                         event_name);

class VerbsEventsOfALane : public VerbsEvents {};

TEST_P(VerbsEventsOfALane, LaneComesBack) {
  for (const size_t side : {0, 1}) {
    expect_all_arrives_despite(side, GetParam());
    EXPECT_THAT(nics_->log(), HasSubstr("is back"));
  }
}
INSTANTIATE_TEST_SUITE_P(All, VerbsEventsOfALane,
                         testing::Values(IBV_EVENT_QP_FATAL, IBV_EVENT_QP_REQ_ERR,
                                         IBV_EVENT_QP_ACCESS_ERR),
                         event_name);

class VerbsEventsOfTheDevice : public VerbsEvents {};

TEST_P(VerbsEventsOfTheDevice, QueuePairsBreakAndNameTheCause) {
  for (const size_t side : {0, 1}) {
    begin();
    raise_event(side, GetParam());
    if (side == 1) {  // the peer notices only with a write in flight
      write(1);
      for (int i = 0; i < 200'000 && nic(0).fault(ends_[0]).empty(); ++i) turn();
    }
    const std::string fault = nic(side).fault(ends_[side]);
    EXPECT_THAT(fault, HasSubstr("hostile" + std::to_string(side)));
    EXPECT_THAT(fault, HasSubstr("look at the kernel's log"));
    EXPECT_EQ(nic(1 - side).fault(ends_[1 - side]).empty(), side == 0);
    const auto next = nic(side).create_queue_pair({});
    ASSERT_FALSE(next) << "nothing would arrive on a new queue pair";
    EXPECT_THAT(next.error().message, HasSubstr("hostile" + std::to_string(side)));
  }
}
INSTANTIATE_TEST_SUITE_P(All, VerbsEventsOfTheDevice,
                         testing::Values(IBV_EVENT_CQ_ERR, IBV_EVENT_SRQ_ERR,
                                         IBV_EVENT_DEVICE_FATAL),
                         event_name);

// The new connection of a lane may fail, too.
TEST_F(VerbsEvents, LaneMayFailAgainAtAnyMomentOfItsRecovery) {
  for (int turns = 0; turns < 60; ++turns) {
    SCOPED_TRACE(turns);
    open({.late_landing = 3}, 1);
    for (size_t side = 0; side < 2; ++side) {
      regions_[side] =
          nic(side).register_memory(memory_.data(), kSize, Access::kRemoteWrite).value();
    }
    write(kWrites);
    turn();
    hostile::raise(0, IBV_EVENT_QP_FATAL);
    for (int i = 0; i < turns; ++i) turn();
    hostile::raise(static_cast<uint32_t>(turns % 2), IBV_EVENT_QP_FATAL);
    ASSERT_TRUE(wait(0, kWrites) && wait(1, kWrites) && all_done())
        << nic(0).fault(ends_[0]) << nic(1).fault(ends_[1]);
  }
}

TEST_F(VerbsEvents, ConnectFailsIfTheDeviceHasFailedBefore) {
  begin();
  const QueuePairId early = nic(0).create_queue_pair({}).value();
  raise_event(0, IBV_EVENT_DEVICE_FATAL);
  const auto peer = nic(1).queue_pair_address(nic(1).create_queue_pair({}).value());
  const auto connected = nic(0).connect_queue_pair(early, peer.view());
  ASSERT_FALSE(connected);
  EXPECT_THAT(connected.error().message, HasSubstr("hostile0"));
  EXPECT_THAT(connected.error().message, HasSubstr("look at the kernel's log"));
}

// A new queue pair may have the number of a destroyed one.
TEST_F(VerbsEvents, EventOfADestroyedQueuePairAffectsNoOther) {
  begin();
  hostile::raise(0, IBV_EVENT_QP_FATAL);
  for (size_t side = 0; side < 2; ++side) nic(side).destroy_queue_pair(ends_[side]);
  join({});
  write(1);
  EXPECT_TRUE(wait(0, 1) && wait(1, 1) && all_done());
}

}  // namespace
}  // namespace pacecar::events_test

// Lanes of a real device that fail in the middle of a transfer, and come back. Skipped where there
// is no RDMA device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <memory>
#include <string>
#include <vector>

#include "tests/support/verbs_port.h"
#include "transport/verbs/verbs_nic.h"

namespace pacecar::recovery_test {
namespace {

using test::monotonic_now;
using testing::AnyOf;
using testing::Each;
using testing::HasSubstr;
using testing::Not;

constexpr size_t kChunks = 96;  // per round and direction
constexpr size_t kChunk = 5000;

class VerbsNicRecovery : public testing::Test {
 protected:
  struct Side {
    std::vector<uint8_t> source, target;  // outlive the NIC
    std::unique_ptr<VerbsNic> nic;
    QueuePairId end = 0;
    MemoryRegion source_region, target_region;
    std::vector<uint64_t> sent;      // ids, in the order of their completion
    std::vector<uint32_t> received;  // how often each immediate arrived
    Bytes acked = 0;                 // as the flow's signals say
    bool paced = false;
    CompletionStatus worst = CompletionStatus::kOk;
    std::string log;
  };

  void SetUp() override {
    const auto found = test::active_verbs_port();
    if (!found) GTEST_SKIP() << found.error().message;
    port_ = *found;
  }

  static void write_log(void* context, LogLevel, std::string_view line) {
    static_cast<std::string*>(context)->append(line).append("\n");
  }
  void open(const QueuePairConfig& wanted, Duration silence) {
    for (Side& side : sides_) {
      side.source.resize(kChunks * kChunk);
      side.target.resize(kChunks * kChunk);
      side.nic = VerbsNic::open({.device = port_.device,
                                 .port = port_.port,
                                 .flows = 1,
                                 .queue_pairs = 2,
                                 .regions = 4,
                                 .paths = 4,
                                 .silence_limit = silence,
                                 .log = {&write_log, &side.log}},
                                monotonic_now())
                     .value();
      side.nic->set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = 1 << 20},
                                monotonic_now());
      side.end = side.nic->create_queue_pair(wanted).value();
      side.paced = wanted.paced;
      side.source_region =
          side.nic->register_memory(side.source.data(), side.source.size(), Access::kLocalRead)
              .value();
      side.target_region =
          side.nic->register_memory(side.target.data(), side.target.size(), Access::kRemoteWrite)
              .value();
    }
    for (size_t i = 0; i < 2; ++i) {
      const auto peer = sides_[1 - i].nic->queue_pair_address(sides_[1 - i].end);
      ASSERT_TRUE(sides_[i].nic->connect_queue_pair(sides_[i].end, peer.view()));
    }
  }

  WorkRequest chunk(size_t from, size_t index, Opcode opcode) const {
    const Side& mine = sides_[from];
    const Side& peer = sides_[1 - from];
    return {.id = index,
            .local = mine.source.data() + index * kChunk,
            .remote = peer.target_region.remote_address + index * kChunk,
            .length = kChunk,
            .local_key = mine.source_region.key,
            .remote_key = peer.target_region.key,
            .immediate = static_cast<uint32_t>(index),
            .opcode = opcode};
  }

  void turn(Side& side) {
    const Instant now = monotonic_now();
    side.nic->receive(now);
    side.nic->on_time(now);
    side.nic->transmit(now);
    std::array<Completion, 16> some;
    while (const size_t count = side.nic->poll(some)) {
      for (const Completion& each : std::span(some).first(count)) {
        if (each.status != CompletionStatus::kOk) side.worst = each.status;
        if (each.kind == CompletionKind::kSent) side.sent.push_back(each.work_request);
        if (each.kind == CompletionKind::kReceived) ++side.received.at(each.immediate);
      }
    }
    std::array<FlowSignal, 4> signals;
    const size_t reported = side.nic->poll_signals(signals);
    for (const FlowSignal& signal : std::span(signals).first(reported)) side.acked += signal.acked;
  }
  bool broken() const {
    return sides_[0].worst != CompletionStatus::kOk || sides_[1].worst != CompletionStatus::kOk;
  }
  void begin_round(uint8_t seed) {
    for (size_t i = 0; i < 2; ++i) {
      Side& side = sides_[i];
      for (size_t at = 0; at < side.source.size(); ++at) {
        side.source[at] = static_cast<uint8_t>(at * 31 + at / kChunk + seed + i);
      }
      side.sent.clear();
      side.received.assign(kChunks, 0);
      side.acked = 0;
    }
  }
  // Posts the chunks of `senders` and turns both sides until all are sent; calls `upset` after
  // `when` turns. The number of turns is bounded, not the time.
  template <typename Upset>
  void transfer(const std::vector<size_t>& senders, Opcode opcode, int when, const Upset& upset) {
    std::array<size_t, 2> posted{};
    const auto all_sent = [&] {
      return std::ranges::all_of(
          senders, [&](size_t sender) { return sides_[sender].sent.size() == kChunks; });
    };
    for (int turns = 0; turns < 60'000 && !all_sent() && !broken(); ++turns) {
      for (const size_t sender : senders) {
        Side& side = sides_[sender];
        for (; posted[sender] < kChunks; ++posted[sender]) {
          const WorkRequest request = chunk(sender, posted[sender], opcode);
          if (side.nic->post(side.end, {&request, 1}) == 0) break;
        }
      }
      if (turns == when) upset();
      for (Side& side : sides_) turn(side);
      if (turns > 100) ::poll(nullptr, 0, 1);
    }
    EXPECT_TRUE(all_sent()) << faults();
  }
  std::string faults() const {
    return sides_[0].nic->fault(sides_[0].end) + "\n" + sides_[1].nic->fault(sides_[1].end);
  }
  void expect_arrived(size_t sender, uint32_t times_received) {
    Side& peer = sides_[1 - sender];
    const auto arrived = [&] {
      return peer.target == sides_[sender].source &&
             std::ranges::count(peer.received, times_received) == std::ssize(peer.received);
    };
    for (int turns = 0; turns < 20'000 && !arrived(); ++turns) {  // completions may come later
      for (Side& side : sides_) turn(side);
      ::poll(nullptr, 0, 1);
    }
    EXPECT_EQ(peer.target, sides_[sender].source);
    EXPECT_THAT(peer.received, Each(times_received)) << "nothing twice, nothing lost";
    const Bytes paced = sides_[sender].paced ? kChunks * kChunk : 0;
    EXPECT_EQ(sides_[sender].acked, paced) << "acknowledged by the device or in recovery";
    for (size_t i = 0; i < sides_[sender].sent.size(); ++i) {
      EXPECT_EQ(sides_[sender].sent[i], i) << "in the order of posting";
    }
  }

  VerbsPortInfo port_;
  std::array<Side, 2> sides_;
};

constexpr Duration kPatience = Duration::from_s(60);

TEST_F(VerbsNicRecovery, NothingIsLostOrReceivedTwice) {
  open({.work_requests = 64}, kPatience);
  for (uint8_t round = 0; round < 12; ++round) {
    begin_round(round);
    const size_t lane = round % 4;
    transfer({0, 1}, Opcode::kWriteWithImm, round % 3, [&] {
      Side& victim = sides_[round % 2];
      victim.nic->upset_lane(victim.end, lane);
      if (round < 8)
        return;  // later rounds also upset another lane, or the same one, at the other end
      Side& other = sides_[1 - round % 2];
      other.nic->upset_lane(other.end, (lane + round % 3) % 4);
    });
    for (const size_t sender : {0, 1}) expect_arrived(sender, 1);
    if (HasFailure()) return;
  }
  for (const Side& side : sides_) {
    EXPECT_THAT(side.log, HasSubstr("has failed and is being replaced: " + port_.device));
    EXPECT_THAT(side.log, HasSubstr("is back"));
  }
}

TEST_F(VerbsNicRecovery, AllLanesComeBackAtOnce) {
  open({.work_requests = 64}, kPatience);
  for (uint8_t round = 0; round < 4; ++round) {
    begin_round(round);
    transfer({0, 1}, Opcode::kWriteWithImm, round, [&] {
      for (size_t lane = 0; lane < 4; ++lane) {
        sides_[round % 2].nic->upset_lane(sides_[round % 2].end, lane);
      }
    });
    for (const size_t sender : {0, 1}) expect_arrived(sender, 1);
    if (HasFailure()) return;
  }
}

TEST_F(VerbsNicRecovery, ControlQueuePairKeepsItsOrder) {
  open({.traffic_class = TrafficClass::kControl, .paced = false, .work_requests = 16}, kPatience);
  for (uint8_t round = 0; round < 4; ++round) {
    begin_round(round);
    transfer({0, 1}, Opcode::kWrite, round,
             [&] { sides_[round % 2].nic->upset_lane(sides_[round % 2].end, 0); });
    for (const size_t sender : {0, 1}) expect_arrived(sender, 0);
    if (HasFailure()) return;
  }
}

// The sender notices when the retries of its device are used up, after 3.8 s: long before its
// silence limit.
TEST_F(VerbsNicRecovery, EndThatSendsNothingFollowsTheRecovery) {
  open({.work_requests = 64}, Duration::from_ms(7500));
  begin_round(0);
  transfer({0}, Opcode::kWriteWithImm, 0, [&] { sides_[1].nic->upset_lane(sides_[1].end, 2); });
  expect_arrived(0, 1);
  EXPECT_THAT(sides_[1].log, HasSubstr("the peer's end of a lane has failed"));
}

// Neither an acknowledgement nor an error comes: the retries of the device would take longer.
TEST_F(VerbsNicRecovery, LaneWithoutAnyCompletionFails) {
  open({.work_requests = 64}, kPatience);
  begin_round(0);
  const WorkRequest request = chunk(0, 0, Opcode::kWriteWithImm);
  sides_[1].nic.reset();
  Side& side = sides_[0];
  ASSERT_EQ(side.nic->post(side.end, {&request, 1}), 1U);
  const Instant now = monotonic_now();
  side.nic->transmit(now);
  side.nic->on_time(now + kPatience / 2);
  EXPECT_THAT(side.log, Not(HasSubstr("is acknowledged any more")));
  EXPECT_LE(side.nic->next_deadline(), now + kPatience) << "a sleeping thread must wake";
  side.nic->on_time(now + kPatience + Duration::from_s(1));
  EXPECT_THAT(side.log, HasSubstr("nothing of what was sent is acknowledged any more"));
}

TEST_F(VerbsNicRecovery, DestroyedPeerBreaksTheQueuePair) {
  open({.work_requests = 64}, Duration::from_ms(300));
  begin_round(0);
  sides_[1].nic->destroy_queue_pair(sides_[1].end);
  const WorkRequest request = chunk(0, 0, Opcode::kWriteWithImm);
  ASSERT_EQ(sides_[0].nic->post(sides_[0].end, {&request, 1}), 1U);
  for (int turns = 0; turns < 60'000 && !broken(); ++turns) {
    turn(sides_[0]);
    ::poll(nullptr, 0, 1);
  }
  EXPECT_EQ(sides_[0].worst, CompletionStatus::kRetryExceeded);
  // The device gives up, or the silence limit ends, whichever is first.
  EXPECT_THAT(sides_[0].nic->fault(sides_[0].end),
              AnyOf(HasSubstr("check that the peer lives"), HasSubstr("the peer's process runs")));
}

}  // namespace
}  // namespace pacecar::recovery_test

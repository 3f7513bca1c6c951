// What programs of verbs need of the software NIC: connections that they bring up themselves,
// atomics, sends with immediate, shared receive requests, and datagrams.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <cstring>

#include "tests/support/standard_pair.h"
#include "transport/wire/address.h"

namespace pacecar::service_test {
namespace {

using test::Datagram;
using test::forge;
using test::parse;
using test::StandardPair;
using test::TestMemory;

uint64_t word_of(const TestMemory& memory) {
  uint64_t word = 0;
  std::memcpy(&word, memory.bytes.data(), sizeof word);
  return word;
}

WorkRequest atomic(Opcode opcode, TestMemory& result, const TestMemory& target, uint64_t operand,
                   uint64_t compare = 0) {
  return {.local = result.bytes.data(),
          .remote = target.address(),
          .length = sizeof(uint64_t),
          .local_key = result.region.key,
          .remote_key = target.region.key,
          .opcode = opcode,
          .operand = operand,
          .compare = compare};
}

constexpr Access kAtomicAccess = Access::kRemoteAtomic | Access::kLocalWrite;

TEST(SoftNicService, PacketsCarryTheNumbersThatTheProgramChose) {
  StandardPair pair;
  const auto ends = pair.join();
  auto& from = pair.memory(0, 64, Access::kLocalRead);
  auto& to = pair.memory(1, 64);
  pair.post(0, ends[0], StandardPair::write(from, to, 64));
  const auto sent = pair.transmit(0);
  ASSERT_EQ(sent.size(), 1U);
  EXPECT_EQ(parse(sent[0]).psn, StandardPair::kFirstPsn[0]);
  EXPECT_EQ(parse(sent[0]).destination_qp, ends[1]);
}

// Both ends name their work request, and the reason.
TEST(SoftNicService, AReceiveRequestThatDoesNotFitIsNamed) {
  for (const bool too_short : {true, false}) {
    StandardPair pair;
    const auto ends = pair.join();
    auto& from = pair.memory(0, 5000, Access::kLocalRead);
    auto& to = pair.memory(1, too_short ? 4999 : 5000, Access::kLocalWrite);
    const auto receive = StandardPair::receive(to, 17);
    ASSERT_EQ(pair.nic(1).post_receives(ends[1], {&receive, 1}), 1U);
    if (!too_short) pair.nic(1).deregister_memory(to.region);
    pair.post(0, ends[0], StandardPair::send(from, 5000, 9));
    ASSERT_TRUE(pair.run_until_completed(0, 1));
    EXPECT_EQ(pair.completions[0][0].work_request, 9U);
    EXPECT_EQ(pair.completions[0][0].status,
              too_short ? CompletionStatus::kRemoteRefused : CompletionStatus::kRemoteFailed);
    ASSERT_FALSE(pair.completions[1].empty());
    const Completion& broken = pair.completions[1][0];
    EXPECT_EQ(broken.kind, CompletionKind::kBroken);
    const auto rest = pair.nic(1).take_back(ends[1]);
    ASSERT_TRUE(rest.receive);
    EXPECT_EQ(rest.receive->id, 17U);
    EXPECT_EQ(broken.status,
              too_short ? CompletionStatus::kReceiveTooShort : CompletionStatus::kReceiveGone);
  }
}

TEST(SoftNicService, SendsHaveTheirImmediateAndAskForAttention) {
  StandardPair pair;
  const auto ends = pair.join();
  auto& from = pair.memory(0, 5000, Access::kLocalRead, 3);
  auto& to = pair.memory(1, 6000, Access::kLocalWrite);
  const auto receive = StandardPair::receive(to, 17);
  ASSERT_EQ(pair.nic(1).post_receives(ends[1], {&receive, 1}), 1U);
  WorkRequest send = StandardPair::send(from, 5000, 1);
  send.opcode = Opcode::kSendWithImm;
  send.immediate = 0xC0FFEE;
  send.solicited = true;
  pair.post(0, ends[0], send);
  ASSERT_TRUE(pair.run_until_completed(1, 1));
  const Completion& received = pair.completions[1][0];
  EXPECT_EQ(received.kind, CompletionKind::kReceivedSend);
  EXPECT_EQ(received.work_request, 17U);
  EXPECT_EQ(received.bytes, 5000U);
  EXPECT_TRUE(received.has_immediate);
  EXPECT_TRUE(received.solicited);
  EXPECT_EQ(received.immediate, 0xC0FFEEU);
  EXPECT_TRUE(std::equal(from.bytes.begin(), from.bytes.end(), to.bytes.begin()));
}

TEST(SoftNicService, AtomicsTakeEffectOnceAlthoughTheirAnswersAreLost) {
  StandardPair pair;
  const auto ends = pair.join();
  auto& result = pair.memory(0, 8, Access::kLocalWrite);
  auto& target = pair.memory(1, 8, kAtomicAccess);
  const uint64_t before = word_of(target);
  int lost = 0;
  pair.lose = [&](size_t from, Datagram&) { return from == 1 && ++lost <= 3; };
  pair.post(0, ends[0], atomic(Opcode::kFetchAdd, result, target, 5));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kOk);
  EXPECT_EQ(word_of(result), before);
  EXPECT_EQ(word_of(target), before + 5);
}

TEST(SoftNicService, CompareAndSwapLeavesAloneWhatIsNotEqual) {
  StandardPair pair;
  const auto ends = pair.join();
  auto& result = pair.memory(0, 8, Access::kLocalWrite);
  auto& target = pair.memory(1, 8, kAtomicAccess);
  const uint64_t before = word_of(target);
  pair.post(0, ends[0], atomic(Opcode::kCompareSwap, result, target, 99, before + 1));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(word_of(target), before);
  EXPECT_EQ(word_of(result), before);
  pair.post(0, ends[0], atomic(Opcode::kCompareSwap, result, target, 99, before));
  ASSERT_TRUE(pair.run_until_completed(0, 2));
  EXPECT_EQ(word_of(target), 99U);
  EXPECT_EQ(word_of(result), before);
}

TEST(SoftNicService, AtomicsNeedTheRightAndAlignment) {
  for (const auto& [access, offset, status] :
       {std::tuple{Access::kRemoteAll, 0, CompletionStatus::kRemoteAccessError},
        std::tuple{kAtomicAccess, 4, CompletionStatus::kRemoteRefused},
        std::tuple{kAtomicAccess, 16, CompletionStatus::kRemoteAccessError}}) {
    StandardPair pair;
    const auto ends = pair.join();
    auto& result = pair.memory(0, 8, Access::kLocalWrite);
    auto& target = pair.memory(1, 16, access);
    WorkRequest request = atomic(Opcode::kFetchAdd, result, target, 1);
    request.remote += static_cast<uint64_t>(offset);
    pair.post(0, ends[0], request);
    ASSERT_TRUE(pair.run_until_completed(0, 1));
    EXPECT_EQ(pair.completions[0][0].status, status);
    EXPECT_EQ(target.bytes[0], 0);
  }
}

TEST(SoftNicService, WhatIsFencedWaitsForReads) {
  StandardPair pair;
  const auto ends = pair.join();
  auto& here = pair.memory(0, 64, Access::kLocalWrite);
  auto& there = pair.memory(1, 64, Access::kRemoteAll);
  WorkRequest read = StandardPair::write(here, there, 64, 1);
  read.opcode = Opcode::kRead;
  WorkRequest write = StandardPair::write(here, there, 64, 2);
  write.fenced = true;
  pair.post(0, ends[0], read);
  pair.post(0, ends[0], write);
  EXPECT_EQ(pair.transmit(0).size(), 1U);
  ASSERT_TRUE(pair.run_until_completed(0, 2));
}

TEST(SoftNicService, QueuePairsShareReceiveRequests) {
  StandardPair pair;
  const auto queue = pair.nic(1).create_receive_queue(8).value();
  ASSERT_EQ(pair.nic(0).create_receive_queue(8).value(), queue);
  const QueuePairConfig config{
      .work_requests = 8, .receives = 1, .service = Service::kStandard, .receive_queue = queue};
  const auto first = pair.join(config);
  const auto second = pair.join(config);
  auto& from = pair.memory(0, 3000, Access::kLocalRead, 1);
  std::vector<TestMemory*> to;
  for (uint64_t id = 0; id < 4; ++id) {
    to.push_back(&pair.memory(1, 3000, Access::kLocalWrite, 0xEE));
    const auto receive = StandardPair::receive(*to.back(), id);
    ASSERT_EQ(pair.nic(1).post_shared_receives(queue, {&receive, 1}), 1U);
  }
  for (uint64_t id = 0; id < 2; ++id) {
    pair.post(0, first[0], StandardPair::send(from, 3000, id));
    pair.post(0, second[0], StandardPair::send(from, 3000, id));
  }
  ASSERT_TRUE(pair.run_until_completed(1, 4));
  std::vector<uint64_t> taken;
  for (const Completion& completion : pair.completions[1]) {
    taken.push_back(completion.work_request);
  }
  EXPECT_THAT(taken, testing::UnorderedElementsAre(0, 1, 2, 3));
  for (const TestMemory* memory : to) EXPECT_EQ(memory->bytes, from.bytes);
}

TEST(SoftNicService, WithoutReceiveRequestsASendFailsWhenItsLimitIsReached) {
  StandardPair pair;
  const auto ends = pair.join({.work_requests = 4, .receives = 1, .service = Service::kStandard},
                              Duration::from_ms(5));
  auto& from = pair.memory(0, 64, Access::kLocalRead);
  pair.post(0, ends[0], StandardPair::send(from, 64, 1));
  ASSERT_TRUE(pair.run_until_completed(0, 1));
  EXPECT_EQ(pair.completions[0][0].kind, CompletionKind::kBroken);
  EXPECT_EQ(pair.completions[0][0].status, CompletionStatus::kReceiverNotReady);
}

TEST(SoftNicService, AQueuePairThatIsResetKeepsItsNumberAndForgetsTheRest) {
  StandardPair pair;
  const auto ends = pair.join();
  auto& from = pair.memory(0, 64, Access::kLocalRead);
  pair.post(0, ends[0], StandardPair::send(from, 64, 1));
  pair.nic(0).reset_queue_pair(ends[0]);
  EXPECT_TRUE(pair.transmit(0).empty());
  const StandardPeer peer{.gid = test::test_address(2).ip, .queue_pair = ends[1], .mtu = 1024};
  EXPECT_TRUE(pair.nic(0).connect_standard(ends[0], peer).has_value());
}

TEST(SoftNicService, AQueuePairBreaksAlsoBeforeItIsConnected) {
  StandardPair pair;
  for (const Service service : {Service::kStandard, Service::kDatagram}) {
    const auto id = pair.nic(0).create_queue_pair({.receives = 4, .service = service}).value();
    pair.nic(0).break_queue_pair(id);
    Completion completion;
    ASSERT_EQ(pair.nic(0).poll({&completion, 1}), 1U);
    EXPECT_EQ(completion.kind, CompletionKind::kBroken);
    EXPECT_EQ(completion.queue_pair, id);
    EXPECT_TRUE(pair.transmit(0).empty());
    pair.nic(0).reset_queue_pair(id);
    pair.nic(0).destroy_queue_pair(id);
  }
}

TEST(SoftNicService, NumbersBeginWithTheSlotOfTheProcess) {
  SoftNicConfig config = StandardPair::service_config();
  config.port_slot = 5;
  StandardPair pair(config);
  for (int i = 0; i < 10; ++i) {
    const auto id = pair.nic(0).create_queue_pair({.service = Service::kStandard}).value();
    EXPECT_EQ(id >> roce::kSlotShift, 5U);
    EXPECT_EQ(roce::port_of(id), roce::port_of_slot(5));
    pair.nic(0).destroy_queue_pair(id);
  }
}

// --- what a queue pair leaves ---

struct Outstanding : StandardPair {
  Outstanding() {
    post(0, ends[0], write(from, to, 5000, 1));
    PACECAR_CHECK(run_until_completed(0, 1));
    lose = [](size_t, Datagram&) { return true; };
    post(0, ends[0], write(from, to, 3000, 2));
    WorkRequest read = write(from, to, 700, 3);
    read.opcode = Opcode::kRead;
    post(0, ends[0], read);
    transmit(0);
    (void)dropped();
  }
  Bytes dropped() {
    FlowSignal signal;
    return nic(0).poll_signals({&signal, 1}) == 1 ? signal.dropped : 0;
  }

  std::array<Ends, 2> joined{join(), join()};  // in one flow, which outlives the first
  const Ends ends = joined[0];
  TestMemory& from = memory(0, 5000, Access::kLocalWrite);
  TestMemory& to = memory(1, 5000);
};

TEST(SoftNicService, TheFlowLearnsWhatABrokenQueuePairDoesNotSend) {
  Outstanding pair;
  pair.nic(0).break_queue_pair(pair.ends[0]);
  EXPECT_EQ(pair.dropped(), 3000U) << "neither what is done nor reads";
  pair.nic(0).reset_queue_pair(pair.ends[0]);
  EXPECT_EQ(pair.dropped(), 0U) << "only once";
}

TEST(SoftNicService, TheFlowLearnsWhatAResetQueuePairDoesNotSend) {
  Outstanding pair;
  EXPECT_EQ(pair.nic(0).take_back(pair.ends[0]).done, 1U);
  pair.nic(0).reset_queue_pair(pair.ends[0]);
  EXPECT_EQ(pair.dropped(), 3000U);
  EXPECT_EQ(pair.nic(0).take_back(pair.ends[0]).done, 0U);
}

// A request that has failed alone, as nothing of it was sent, is never acknowledged, either.
TEST(SoftNicService, TheFlowLearnsWhatFailedBefore) {
  Outstanding pair;
  pair.limit(0, 0, {.rate = Rate::from_gbps(1000), .window = 0});
  auto& gone = pair.memory(0, 400, Access::kLocalRead);
  pair.post(0, pair.ends[0], StandardPair::write(gone, pair.to, 400, 4));
  pair.nic(0).deregister_memory(gone.region);
  pair.nic(0).break_queue_pair(pair.ends[0]);
  EXPECT_EQ(pair.dropped(), 3400U);
}

// --- datagrams ---

struct Ud : StandardPair {
  Ud() {
    for (size_t side = 0; side < 2; ++side) {
      ends[side] =
          nic(side)
              .create_queue_pair({.work_requests = 4, .receives = 4, .service = Service::kDatagram})
              .value();
      nic(side).open_datagrams(ends[side], kKey);
    }
  }
  size_t post(const TestMemory& from, Bytes length, uint32_t key = kKey) {
    const pacecar::Datagram datagram{.send = send(from, length, 9),
                                     .gid = test::test_address(2).ip,
                                     .queue_pair = ends[1],
                                     .queue_key = key};
    return nic(0).post_datagrams(ends[0], {&datagram, 1});
  }
  void post_receive(TestMemory& memory) {
    const auto request = receive(memory, 3);
    PACECAR_CHECK(nic(1).post_receives(ends[1], {&request, 1}) == 1);
  }

  static constexpr uint32_t kKey = 0x11111111;
  Ends ends{};
};

TEST(SoftNicDatagrams, ArriveBehindAHeaderThatNamesTheSender) {
  Ud pair;
  auto& from = pair.memory(0, 100, Access::kLocalRead, 1);
  auto& to = pair.memory(1, 140, Access::kLocalWrite);
  pair.post_receive(to);
  ASSERT_EQ(pair.post(from, 100), 1U);
  ASSERT_TRUE(
      pair.run([&] { return !pair.completions[0].empty() && !pair.completions[1].empty(); }));
  EXPECT_EQ(pair.completions[0][0].work_request, 9U);
  const Completion& received = pair.completions[1][0];
  EXPECT_EQ(received.bytes, 140U);
  EXPECT_EQ(received.source_qp, pair.ends[0]);
  EXPECT_TRUE(std::equal(from.bytes.begin(), from.bytes.end(), to.bytes.begin() + 40));
  EXPECT_EQ(to.bytes[20], 0x45);  // an IPv4 header at the end of the 40 bytes
  EXPECT_THAT(std::vector(to.bytes.begin() + 32, to.bytes.begin() + 36),
              testing::ElementsAre(192, 0, 2, 1));
}

TEST(SoftNicDatagrams, OfAnotherKeyOrTooLongAreDropped) {
  Ud pair;
  auto& from = pair.memory(0, 200, Access::kLocalRead, 1);
  auto& to = pair.memory(1, 140, Access::kLocalWrite);
  pair.post_receive(to);
  ASSERT_EQ(pair.post(from, 100, Ud::kKey + 1), 1U);
  ASSERT_EQ(pair.post(from, 101), 1U);
  pair.run_for(Duration::from_ms(1));
  EXPECT_EQ(pair.completions[0].size(), 2U);
  EXPECT_TRUE(pair.completions[1].empty());
  EXPECT_EQ(pair.nic(1).counters().access_errors, 2U);
}

// Its slot may be another one's by now.
TEST(SoftNicDatagrams, OfADestroyedQueuePairAreTheCallersError) {
  Ud pair;
  auto& from = pair.memory(0, 8, Access::kLocalRead, 1);
  pair.nic(0).destroy_queue_pair(pair.ends[0]);
  const auto id = pair.nic(0).create_queue_pair({.service = Service::kDatagram}).value();
  ASSERT_NE(id, pair.ends[0]);
  pair.nic(0).open_datagrams(id, Ud::kKey);
  EXPECT_DEATH(pair.post(from, 8), "qp != nullptr");
}

TEST(SoftNicDatagrams, AreBoundedByTheQueue) {
  Ud pair;
  auto& from = pair.memory(0, 8, Access::kLocalRead, 1);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(pair.post(from, 8), 1U);
  EXPECT_EQ(pair.post(from, 8), 0U);
  pair.run_for(Duration::from_us(10));
  EXPECT_EQ(pair.post(from, 8), 1U);
}

}  // namespace
}  // namespace pacecar::service_test

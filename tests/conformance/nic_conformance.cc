#include "tests/conformance/nic_conformance.h"

namespace pacecar {

// --- resources ---

TEST_P(NicConformance, CapsMakeSense) {
  const NicCaps& caps = nic(0).caps();
  EXPECT_FALSE(caps.networks.empty()) << "no peer could connect";
  EXPECT_EQ(caps.networks, nic(1).caps().networks);
  EXPECT_GT(caps.line_rate, Rate());
  EXPECT_GE(caps.mtu, 256U);
  EXPECT_GE(caps.paths, 1U);
  EXPECT_GE(caps.flows, 1U);
  EXPECT_GE(caps.queue_pairs, 2U);
  EXPECT_GE(caps.regions, 2U);
}

TEST_P(NicConformance, MemoryOutOfRangeIsRefused) {
  uint8_t byte = 0;
  for (const auto& [address, length] :
       {std::pair<void*, size_t>{&byte, 0}, {nullptr, 1}, {&byte, SIZE_MAX}}) {
    const auto region = nic(0).register_memory(address, length, Access::kRemoteWrite);
    ASSERT_FALSE(region);
    EXPECT_EQ(region.error().code, ErrorCode::kInvalidArgument);
  }
}

TEST_P(NicConformance, RegionsAreBoundedAndReusable) {
  uint8_t byte = 0;
  std::vector<MemoryRegion> regions;
  for (uint32_t i = 0; i < nic(0).caps().regions; ++i) {
    const auto region = nic(0).register_memory(&byte, 1, Access::kLocalRead);
    ASSERT_TRUE(region);
    regions.push_back(*region);
  }
  const auto beyond = nic(0).register_memory(&byte, 1, Access::kLocalRead);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kUnavailable);
  nic(0).deregister_memory(regions.back());
  EXPECT_TRUE(nic(0).register_memory(&byte, 1, Access::kLocalRead));
}

TEST_P(NicConformance, QueuePairsAreBoundedAndTheirNumbersAreNotReused) {
  std::vector<QueuePairId> ids;
  for (uint32_t i = 0; i < nic(0).caps().queue_pairs; ++i) {
    const auto id = nic(0).create_queue_pair({});
    ASSERT_TRUE(id);
    ids.push_back(*id);
  }
  const auto beyond = nic(0).create_queue_pair({});
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::kUnavailable);
  nic(0).destroy_queue_pair(ids.back());
  const auto next = nic(0).create_queue_pair({});
  ASSERT_TRUE(next);
  EXPECT_EQ(std::ranges::find(ids, *next), ids.end())
      << "late packets for the destroyed queue pair would reach this one";
}

TEST_P(NicConformance, MalformedAddressesAreRefused) {
  const auto id = nic(0).create_queue_pair({}).value();
  const auto address = nic(1).queue_pair_address(nic(1).create_queue_pair({}).value());
  for (const auto bytes : {address.view().first(0), address.view().first(address.size - 1U)}) {
    const auto connected = nic(0).connect_queue_pair(id, bytes);
    ASSERT_FALSE(connected);
    EXPECT_EQ(connected.error().code, ErrorCode::kPeer);
  }
  EXPECT_TRUE(nic(0).connect_queue_pair(id, address.view()));
}

// --- writes ---

TEST_P(NicConformance, WriteCompletesAtTheSenderOnly) {
  const Ends ends = connect();
  auto& from = memory(0, 777, Access::kLocalRead, 5);
  auto& to = memory(1, 777, Access::kRemoteWrite);
  ASSERT_EQ(post(0, ends[0], write(42, from, to, 777)), 1U);
  ASSERT_TRUE(wait_for_completions(0, 1));
  EXPECT_TRUE(wait([&] { return to.bytes == from.bytes; }));
  EXPECT_EQ(completions_[0][0].kind, CompletionKind::kSent);
  EXPECT_EQ(completions_[0][0].work_request, 42U);
  EXPECT_EQ(completions_[0][0].queue_pair, ends[0]);
  EXPECT_EQ(completions_[0][0].status, CompletionStatus::kOk);
  EXPECT_TRUE(completions_[1].empty());
}

TEST_P(NicConformance, WriteWithImmediateCompletesAtThePeerAfterItsBytes) {
  const Ends ends = connect();
  const size_t size = (1 << 20) + 13;
  auto& from = memory(0, size, Access::kLocalRead, 5);
  auto& to = memory(1, size, Access::kRemoteWrite);
  post(0, ends[0], write_with_imm(1, from, to, size, 0xFEDCBA98));
  ASSERT_TRUE(wait_for_completions(1, 1));
  EXPECT_EQ(to.bytes, from.bytes);
  EXPECT_EQ(completions_[1][0].kind, CompletionKind::kReceived);
  EXPECT_EQ(completions_[1][0].immediate, 0xFEDCBA98U);
  EXPECT_EQ(completions_[1][0].bytes, size);
  EXPECT_EQ(completions_[1][0].queue_pair, ends[1]);
  EXPECT_TRUE(wait_for_completions(0, 1));
}

TEST_P(NicConformance, ZeroByteWritesComplete) {
  const Ends ends = connect();
  post(0, ends[0], {.id = 1});
  post(0, ends[0], {.id = 2, .immediate = 3, .opcode = Opcode::kWriteWithImm});
  ASSERT_TRUE(wait_for_completions(0, 2));
  ASSERT_TRUE(wait_for_completions(1, 1));
  EXPECT_EQ(completions_[1][0].immediate, 3U);
  EXPECT_EQ(completions_[1][0].bytes, 0U);
}

TEST_P(NicConformance, ControlWritesNeedNoLimits) {
  Ends ends{};
  const QueuePairConfig config{.traffic_class = TrafficClass::kControl, .paced = false};
  for (size_t side = 0; side < 2; ++side) ends[side] = nic(side).create_queue_pair(config).value();
  for (size_t side = 0; side < 2; ++side) {
    const auto peer = nic(1 - side).queue_pair_address(ends[1 - side]);
    ASSERT_TRUE(nic(side).connect_queue_pair(ends[side], peer.view()));
  }
  auto& from = memory(0, 64, Access::kRemoteWrite, 5);
  auto& to = memory(1, 64, Access::kRemoteWrite);
  post(0, ends[0], write(1, from, to, 64));
  EXPECT_TRUE(wait_for_completions(0, 1));
  EXPECT_TRUE(wait([&] { return to.bytes == from.bytes; }));
}

TEST_P(NicConformance, ManyWritesBothWaysCompleteInOrder) {
  const Ends ends = connect({.work_requests = 16});
  constexpr uint64_t kWrites = 300;
  constexpr size_t kSize = 3000;
  std::array<Memory*, 2> from{};
  std::array<Memory*, 2> to{};
  std::array<uint64_t, 2> posted{};
  for (size_t side = 0; side < 2; ++side) {
    from[side] = &memory(side, kSize, Access::kLocalRead, static_cast<uint8_t>(side + 1));
    to[side] = &memory(side, kSize, Access::kRemoteWrite);
  }
  const auto sent = [](const std::vector<Completion>& completions) {
    return static_cast<uint64_t>(
        std::ranges::count(completions, CompletionKind::kSent, &Completion::kind));
  };
  ASSERT_TRUE(wait([&] {
    for (size_t side = 0; side < 2; ++side) {
      while (posted[side] < kWrites &&
             post(side, ends[side],
                  write_with_imm(posted[side], *from[side], *to[1 - side], kSize,
                                 static_cast<uint32_t>(posted[side]))) == 1) {
        ++posted[side];
        EXPECT_LE(posted[side] - sent(completions_[side]), 16U);
      }
    }
    return completions_[0].size() + completions_[1].size() == 4 * kWrites;
  }));
  for (size_t side = 0; side < 2; ++side) {
    uint64_t next = 0;
    std::vector<bool> received(kWrites);
    for (const Completion& completion : completions_[side]) {
      EXPECT_EQ(completion.status, CompletionStatus::kOk);
      if (completion.kind == CompletionKind::kSent) {
        EXPECT_EQ(completion.work_request, next++);
        continue;
      }
      ASSERT_LT(completion.immediate, kWrites);
      EXPECT_FALSE(received[completion.immediate])
          << "a second completion of " << completion.immediate;
      received[completion.immediate] = true;
    }
    EXPECT_EQ(to[side]->bytes, from[1 - side]->bytes);
  }
}

TEST_P(NicConformance, UnsignaledWritesHaveNoCompletion) {
  const Ends ends = connect();
  auto& from = memory(0, 64, Access::kLocalRead);
  auto& to = memory(1, 64, Access::kRemoteWrite);
  WorkRequest silent = write(1, from, to, 64);
  silent.signaled = false;
  post(0, ends[0], silent);
  post(0, ends[0], write(2, from, to, 64));
  ASSERT_TRUE(wait_for_completions(0, 1));
  EXPECT_EQ(completions_[0][0].work_request, 2U);
}

TEST_P(NicConformance, FailedUnsignaledWritesHaveACompletion) {
  const Ends ends = connect();
  auto& from = memory(0, 64, Access::kLocalRead);
  auto& to = memory(1, 64, Access::kRemoteWrite);
  WorkRequest silent = write(1, from, to, 64);
  silent.signaled = false;
  silent.remote_key = ~silent.remote_key;
  expect_refused(ends[0], silent, CompletionStatus::kRemoteAccessError);
}

// --- memory protection ---

TEST_P(NicConformance, RefusedWriteWritesNothing) {
  const Bytes mtu = nic(0).caps().mtu;
  auto& from = memory(0, 3 * mtu, Access::kLocalRead, 5);
  auto& to = memory(1, 3 * mtu, Access::kRemoteWrite);
  auto& locked = memory(1, 3 * mtu, Access::kLocalRead);
  auto& readable = memory(1, 3 * mtu, Access::kRemoteRead);
  const auto before = to.bytes;
  WorkRequest unknown = write_with_imm(3, from, to, 3 * mtu, 2);
  unknown.remote_key = ~unknown.remote_key;
  WorkRequest beyond = write_with_imm(4, from, to, mtu, 3);
  beyond.remote += 2 * mtu + 1;
  WorkRequest wrapping = write(5, from, to, mtu);
  wrapping.remote = UINT64_MAX - 10;
  for (const WorkRequest& refused :
       {write(1, from, locked, 3 * mtu), write(2, from, readable, 3 * mtu), unknown, beyond,
        wrapping}) {
    SCOPED_TRACE(refused.id);
    expect_refused(connect()[0], refused, CompletionStatus::kRemoteAccessError);
  }
  EXPECT_EQ(to.bytes, before);
  EXPECT_EQ(locked.bytes, before);
  EXPECT_EQ(readable.bytes, before);
  const auto received =
      std::ranges::count(completions_[1], CompletionKind::kReceived, &Completion::kind);
  EXPECT_EQ(received, 0);
}

TEST_P(NicConformance, RefusedWriteFailsAlone) {
  const Ends ends = connect();
  const Bytes mtu = nic(0).caps().mtu;
  auto& from = memory(0, 3 * mtu, Access::kLocalRead, 5);
  auto& to = memory(1, 3 * mtu, Access::kRemoteWrite);
  auto& locked = memory(1, 3 * mtu, Access::kLocalRead);
  const auto before = locked.bytes;
  post(0, ends[0], write(1, from, locked, 3 * mtu));
  WorkRequest unknown = write_with_imm(2, from, to, 3 * mtu, 2);
  unknown.remote_key = ~unknown.remote_key;
  post(0, ends[0], unknown);
  WorkRequest beyond = write_with_imm(3, from, to, mtu, 3);
  beyond.remote += 2 * mtu + 1;
  post(0, ends[0], beyond);
  WorkRequest wrapping = write(4, from, to, mtu);
  wrapping.remote = UINT64_MAX - 10;
  post(0, ends[0], wrapping);
  post(0, ends[0], write_with_imm(5, from, to, 3 * mtu, 5));
  ASSERT_TRUE(wait_for_completions(0, 5));
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(completions_[0][i].work_request, i + 1);
    EXPECT_EQ(completions_[0][i].status, CompletionStatus::kRemoteAccessError);
  }
  EXPECT_EQ(completions_[0][4].status, CompletionStatus::kOk);
  EXPECT_TRUE(wait_for_completions(1, 1));
  EXPECT_EQ(locked.bytes, before);
  EXPECT_EQ(to.bytes, from.bytes);
  ASSERT_EQ(completions_[1].size(), 1U);
  EXPECT_EQ(completions_[1][0].immediate, 5U);
}

TEST_P(NicConformance, DeregisteredRemoteMemoryIsNotWrittenAgain) {
  const Ends ends = connect();
  auto& from = memory(0, 1 << 20, Access::kLocalRead, 5);
  auto& to = memory(1, 1 << 20, Access::kRemoteWrite);
  post(0, ends[0], write(1, from, to, 1 << 20));
  step();
  nic(1).deregister_memory(to.region);
  std::fill(to.bytes.begin(), to.bytes.end(), 0xEE);
  const auto expected = to.bytes;
  ASSERT_TRUE(wait_for_completions(0, 1));
  steps(100);
  EXPECT_EQ(to.bytes, expected);
}

TEST_P(NicConformance, DeregisteredLocalMemoryIsNotReadAgain) {
  const Ends ends = connect();
  auto from = std::make_unique<std::vector<uint8_t>>(1 << 20, 0x11);
  const auto region =
      nic(0).register_memory(from->data(), from->size(), Access::kLocalRead).value();
  auto& to = memory(1, 1 << 20, Access::kRemoteWrite);
  auto& other = memory(0, 100, Access::kLocalRead, 7);
  post(0, ends[0],
       {.id = 1,
        .local = from->data(),
        .remote = to.region.remote_address,
        .length = from->size(),
        .local_key = region.key,
        .remote_key = to.region.key});
  step();
  nic(0).deregister_memory(region);
  from.reset();  // from here on the address sanitizer finds every read
  post(0, ends[0], write(2, other, to, 100));
  ASSERT_TRUE(wait_for_completions(0, 2));
  const CompletionStatus status =
      completions_[0][0].status;  // kOk: the write was sent before the deregistration
  EXPECT_TRUE(status == CompletionStatus::kMemoryGone || status == CompletionStatus::kOk);
  if (status == CompletionStatus::kOk || !world_.lost_memory_breaks) {
    EXPECT_EQ(completions_[0][1].status, CompletionStatus::kOk);
  }
}

// --- destroying and breaking ---

TEST_P(NicConformance, DestroyedQueuePairCompletesNothing) {
  const Ends ends = connect();
  auto& from = memory(0, 100'000, Access::kLocalRead);
  auto& to = memory(1, 100'000, Access::kRemoteWrite);
  post(0, ends[0], write_with_imm(1, from, to, 100'000, 1));
  nic(0).destroy_queue_pair(ends[0]);
  nic(1).destroy_queue_pair(ends[1]);
  steps(100);
  EXPECT_TRUE(completions_[0].empty());
  EXPECT_TRUE(completions_[1].empty());
}

TEST_P(NicConformance, SilentPeerBreaksTheQueuePair) {
  const Ends ends = connect();
  auto& from = memory(0, 100, Access::kLocalRead);
  auto& to = memory(1, 100, Access::kRemoteWrite);
  nic(1).destroy_queue_pair(ends[1]);
  post(0, ends[0], write(1, from, to, 100));
  ASSERT_TRUE(wait_for_completions(0, 1));
  EXPECT_EQ(completions_[0][0].kind, CompletionKind::kBroken);
  EXPECT_EQ(completions_[0][0].status, CompletionStatus::kRetryExceeded);
  EXPECT_EQ(completions_[0][0].queue_pair, ends[0]);
  nic(0).destroy_queue_pair(ends[0]);
}

TEST_P(NicConformance, NoDeadlineRemainsAfterTheLastCompletion) {
  const Ends ends = connect();
  auto& from = memory(0, 100'000, Access::kLocalRead);
  auto& to = memory(1, 100'000, Access::kRemoteWrite);
  post(0, ends[0], write_with_imm(1, from, to, 100'000, 1));
  ASSERT_TRUE(wait_for_completions(0, 1));
  EXPECT_TRUE(wait([&] { return world_.next_deadline() == Instant::never(); }));
}

// --- flows ---

TEST_P(NicConformance, StoppedFlowSendsNothingUntilItIsStarted) {
  const Ends ends = connect();
  nic(0).set_flow_limits(0, {.rate = Rate(), .window = 1 << 20}, now_);
  auto& from = memory(0, 100, Access::kLocalRead);
  auto& to = memory(1, 100, Access::kRemoteWrite);
  post(0, ends[0], write(1, from, to, 100));
  steps(100);
  EXPECT_EQ(nic(0).counters().data_packets_sent, 0U);
  nic(0).set_flow_limits(0, kUnlimited, now_);
  EXPECT_TRUE(wait_for_completions(0, 1));
}

TEST_P(NicConformance, NoPacketLeavesBeforeFirstSend) {
  const Ends ends = connect();
  auto& from = memory(0, 100, Access::kLocalRead);
  auto& to = memory(1, 100, Access::kRemoteWrite);
  FlowLimits limits = kUnlimited;
  limits.first_send = now_ + Duration::from_ms(3);
  nic(0).set_flow_limits(0, limits, now_);
  post(0, ends[0], write(1, from, to, 100));
  ASSERT_TRUE(wait([&] { return nic(0).counters().data_packets_sent > 0; }));
  EXPECT_GE(now_, limits.first_send);
}

TEST_P(NicConformance, QueuePairsOfAFlowShareItsWindow) {
  const Ends first = connect();
  const Ends second = connect();
  const Bytes unit = paced_unit();
  const Bytes size = std::min(50 * unit, nic(0).caps().write_bytes);
  const uint64_t writes = 50 * unit / size;
  nic(0).set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = 2 * unit}, now_);
  auto& from = memory(0, size, Access::kLocalRead);
  auto& to = memory(1, size, Access::kRemoteWrite);
  auto& to_second = memory(1, size, Access::kRemoteWrite);
  for (uint64_t i = 0; i < writes; ++i) {
    ASSERT_EQ(post(0, first[0], write(1, from, to, size)), 1U);
    ASSERT_EQ(post(0, second[0], write(2, from, to_second, size)), 1U);
  }
  Bytes most = 0;
  ASSERT_TRUE(wait([&] {
    std::array<FlowSignal, 4> signals;
    const size_t count = nic(0).poll_signals(signals);
    for (size_t i = 0; i < count; ++i) most = std::max(most, signals[i].in_flight);
    return completions_[0].size() == 2 * writes;
  }));
  // After a timeout one packet of each queue pair is sent regardless of the window.
  EXPECT_LE(most, nic(0).counters().timeouts == 0 ? 2 * unit : 4 * unit);
}

TEST_P(NicConformance, SignalsReportAcknowledgedBytes) {
  const Ends ends = connect({.flow = nic(0).caps().flows - 1});
  auto& from = memory(0, 1 << 20, Access::kLocalRead);
  auto& to = memory(1, 1 << 20, Access::kRemoteWrite);
  post(0, ends[0], write(1, from, to, 1 << 20));
  Bytes acked = 0;
  Duration rtt;
  ASSERT_TRUE(wait([&] {
    std::array<FlowSignal, 4> signals;
    const size_t count = nic(0).poll_signals(signals);
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(signals[i].flow, nic(0).caps().flows - 1);
      acked += signals[i].acked;
      rtt = std::max(rtt, signals[i].rtt);
    }
    return acked >= 1 << 20;
  }));
  EXPECT_EQ(acked, 1U << 20);
  EXPECT_GT(rtt, Duration());
}

}  // namespace pacecar

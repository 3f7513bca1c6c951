// MultiCoreNic: several cores together, on a virtual clock, and with threads, for the thread
// sanitizer.
#include "transport/engine/cores/multi_core_nic.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <numeric>

#include "tests/support/cores_host.h"
#include "tests/support/two_cores_loopback.h"

namespace pacecar::test::multi_core_nic_test {
namespace {

constexpr Bytes kWrite = 256 * 1024;
constexpr FlowLimits kUnlimited{.rate = Rate::from_gbps(1000), .window = 1 << 22};

// Ends the process if the test takes longer than a minute.
struct Watchdog {
  Watchdog() { alarm(60); }
  ~Watchdog() { alarm(0); }
};

class CoresTogether : public testing::Test {
 protected:
  struct Memory {
    std::vector<uint8_t> bytes;
    MemoryRegion region;
  };

  static SoftNicConfig config() {
    return {.line_rate = Rate::from_gbps(100),
            .mtu = 4096,
            .burst_bytes = 16384,
            .flows = 4,
            .queue_pairs = 8,
            .regions = 64,
            .window_packets = 256,
            .security = Security::kAuth,
            .silence_limit = Duration::from_ms(50)};
  }

  MultiCoreNic& nic(size_t side) { return hosts_[side]->nic(); }
  void connect() {
    for (size_t side = 0; side < 2; ++side) {
      ends_[side] = nic(side).create_queue_pair({.work_requests = 256}).value();
      nic(side).set_flow_limits(0, kUnlimited, network_.now());
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nic(1 - side).queue_pair_address(ends_[1 - side]);
      ASSERT_TRUE(nic(side).connect_queue_pair(ends_[side], peer.view()));
    }
  }
  Memory& memory(size_t side, size_t size, uint8_t first = 0) {
    Memory& memory = memory_.emplace_back();
    memory.bytes.resize(size);
    std::iota(memory.bytes.begin(), memory.bytes.end(), first);
    memory.region =
        nic(side).register_memory(memory.bytes.data(), size, Access::kRemoteWrite).value();
    return memory;
  }
  // Posts a write of kWrite bytes at offset number * kWrite.
  bool post(const Memory& from, const Memory& to, uint32_t number) {
    const WorkRequest write{.id = number,
                            .local = from.bytes.data() + number * kWrite,
                            .remote = to.region.remote_address + number * kWrite,
                            .length = kWrite,
                            .local_key = from.region.key,
                            .remote_key = to.region.key,
                            .immediate = number,
                            .opcode = Opcode::kWriteWithImm};
    return nic(0).post(ends_[0], {&write, 1}) == 1;
  }
  void poll() {
    for (size_t side = 0; side < 2; ++side) {
      std::array<Completion, 5> some;
      while (const size_t count = nic(side).poll(some)) {
        completions_[side].insert(completions_[side].end(), some.begin(), some.begin() + count);
      }
    }
  }
  template <typename Done>
  bool run(Done done, int steps = 100'000) {
    for (; steps > 0 && !done(); --steps) {
      network_.advance_to(network_.now() + Duration::from_us(5));
      for (auto& host : hosts_) host->turn(network_.now());
      poll();
    }
    return done();
  }
  size_t count(size_t side, CompletionKind kind) const {
    return static_cast<size_t>(std::ranges::count(completions_[side], kind, &Completion::kind));
  }

  SimStar network_{4};
  const std::array<CorePorts, 2> ports_{CorePorts{0, 2}, CorePorts{2, 2}};
  std::array<std::unique_ptr<CoresHost>, 2> hosts_{
      std::make_unique<CoresHost>(network_, ports_, 0, config()),
      std::make_unique<CoresHost>(network_, ports_, 1, config())};
  std::deque<Memory> memory_;
  std::array<QueuePairId, 2> ends_{};
  std::array<std::vector<Completion>, 2> completions_;
};

TEST_F(CoresTogether, LargeWritesAreDividedAndCompleteInOrder) {
  network_.fabric().set_faults({.loss = 0.01, .reordering = 0.1});
  connect();
  constexpr uint32_t kWrites = 40;
  auto& from = memory(0, kWrites * kWrite, 3);
  auto& to = memory(1, kWrites * kWrite);
  for (uint32_t i = 0; i < kWrites; ++i) ASSERT_TRUE(post(from, to, i));
  ASSERT_TRUE(run([&] { return completions_[0].size() + completions_[1].size() == 2 * kWrites; }));
  EXPECT_EQ(to.bytes, from.bytes);
  for (uint32_t i = 0; i < kWrites; ++i) EXPECT_EQ(completions_[0][i].work_request, i);
  const Bytes all = nic(0).counters().data_bytes_sent;
  for (size_t core = 0; core < 2; ++core) {
    EXPECT_GT(hosts_[0]->core(core).counters().data_bytes_sent, all / 3);
  }
}

TEST_F(CoresTogether, CoresTogetherKeepTheRateOfTheFlow) {
  connect();
  constexpr uint32_t kWrites = 20;
  auto& from = memory(0, kWrites * kWrite);
  auto& to = memory(1, kWrites * kWrite);
  FlowLimits limits = kUnlimited;
  limits.rate = Rate::from_gbps(30);
  nic(0).set_flow_limits(0, limits, network_.now());
  const Instant begin = network_.now();
  for (uint32_t i = 0; i < kWrites; ++i) ASSERT_TRUE(post(from, to, i));
  ASSERT_TRUE(run([&] { return completions_[0].size() == kWrites; }));
  const Duration least = limits.rate.time_for(kWrites * kWrite);
  EXPECT_GE(network_.now() - begin, least * 98 / 100);
  EXPECT_LE(network_.now() - begin, least * 120 / 100);
  EXPECT_GT(hosts_[0]->core(1).counters().data_bytes_sent, 0U);
}

TEST_F(CoresTogether, SignalsDescribeTheWholeFlow) {
  connect();
  constexpr uint32_t kWrites = 20;
  auto& from = memory(0, kWrites * kWrite);
  auto& to = memory(1, kWrites * kWrite);
  for (uint32_t i = 0; i < kWrites; ++i) ASSERT_TRUE(post(from, to, i));
  Bytes acked = 0;
  FlowSignal last;
  ASSERT_TRUE(run([&] {
    std::array<FlowSignal, 3> signals;
    while (const size_t count = nic(0).poll_signals(signals)) {
      for (size_t i = 0; i < count; ++i) acked += signals[i].acked;
      last = signals[count - 1];
    }
    return acked == kWrites * kWrite;
  }));
  EXPECT_EQ(last.sent, kWrites * kWrite);
  EXPECT_EQ(last.in_flight, 0U);
  // The counts of a flow that has ended begin again at zero.
  for (size_t side = 0; side < 2; ++side) nic(side).destroy_queue_pair(ends_[side]);
  connect();
  ASSERT_TRUE(post(from, to, 0));
  ASSERT_TRUE(run([&] { return completions_[0].size() == kWrites + 1; }));
  ASSERT_EQ(nic(0).poll_signals({&last, 1}), 1U);
  EXPECT_LE(last.sent, kWrite);
}

TEST_F(CoresTogether, BrokenCoreLaneBreaksTheQueuePair) {
  connect();
  constexpr uint32_t kWrites = 8;
  auto& from = memory(0, kWrites * kWrite);
  auto& to = memory(1, kWrites * kWrite);
  hosts_[1]->cut(1);
  for (uint32_t i = 0; i < kWrites; ++i) ASSERT_TRUE(post(from, to, i));
  ASSERT_TRUE(run([&] { return count(0, CompletionKind::kBroken) > 0; }));
  EXPECT_EQ(completions_[0].back().queue_pair, ends_[0]);
  EXPECT_EQ(completions_[0].back().status, CompletionStatus::kRetryExceeded);
  EXPECT_NE(nic(0).fault(ends_[0]), "");
  EXPECT_FALSE(post(from, to, 0));
  const size_t before = completions_[0].size();
  run([] { return false; }, 100);
  EXPECT_EQ(completions_[0].size(), before) << "a broken queue pair completes nothing more";
  nic(0).destroy_queue_pair(ends_[0]);
}

// Completions of all writes that the peer knows as acknowledged can be polled after the halt.
TEST_F(CoresTogether, AcknowledgedWritesAreReportedAfterAHalt) {
  connect();
  constexpr uint32_t kWrites = 40;
  auto& from = memory(0, kWrites * kWrite);
  auto& to = memory(1, kWrites * kWrite);
  for (uint32_t i = 0; i < kWrites; ++i) ASSERT_TRUE(post(from, to, i));
  ASSERT_TRUE(run([&] { return completions_[0].size() > kWrites / 2; }));
  nic(1).halt_queue_pair(ends_[1]);
  poll();
  const size_t received = count(1, CompletionKind::kReceived);
  const auto before = to.bytes;
  run([] { return false; }, 1000);
  EXPECT_EQ(count(1, CompletionKind::kReceived), received);
  EXPECT_EQ(to.bytes, before);
  EXPECT_LE(count(0, CompletionKind::kSent), received);
}

// The owner's rings are full, as it has not polled for long, when it halts the queue pairs.
TEST_F(CoresTogether, HaltWorksWithFullRings) {
  const Watchdog watchdog;
  for (size_t side = 0; side < 2; ++side) nic(side).report_arrivals(true);
  connect();
  constexpr uint32_t kWrites = 80;
  auto& from = memory(0, kWrites * kWrite);
  auto& to = memory(1, kWrites * kWrite);
  FlowLimits limits = kUnlimited;
  limits.rate = Rate::from_gbps(30);  // slow: the turns make more entries than the rings hold
  nic(0).set_flow_limits(0, limits, network_.now());
  for (uint32_t i = 0; i < kWrites; ++i) ASSERT_TRUE(post(from, to, i));
  ASSERT_TRUE(run([&] { return completions_[0].size() == kWrites; }));
  for (size_t side = 0; side < 2; ++side) nic(side).halt_queue_pair(ends_[side]);
  Bytes acked = 0;
  std::array<FlowSignal, 3> signals;
  while (const size_t count = nic(0).poll_signals(signals)) {
    for (size_t i = 0; i < count; ++i) acked += signals[i].acked;
  }
  EXPECT_EQ(acked, kWrites * kWrite);
  Bytes arrived = 0;
  std::array<FlowArrival, 3> arrivals;
  while (const size_t count = nic(1).poll_arrivals(arrivals)) {
    for (size_t i = 0; i < count; ++i) arrived += arrivals[i].bytes;
  }
  EXPECT_EQ(arrived, kWrites * kWrite);
}

TEST_F(CoresTogether, NoCoreTouchesDeregisteredMemory) {
  connect();
  constexpr uint32_t kWrites = 40;
  for (const size_t side : {0U, 1U}) {
    SCOPED_TRACE(side);
    auto& from = memory(0, kWrites * kWrite, 1);
    auto& to = memory(1, kWrites * kWrite);
    completions_ = {};
    for (uint32_t i = 0; i < kWrites; ++i) ASSERT_TRUE(post(from, to, i));
    ASSERT_TRUE(run([&] { return completions_[0].size() > 5; }));
    Memory& gone = side == 0 ? from : to;
    nic(side).deregister_memory(gone.region);
    std::ranges::fill(gone.bytes, 0xEE);
    const auto before = to.bytes;
    ASSERT_TRUE(run([&] { return completions_[0].size() == kWrites; }));
    EXPECT_EQ(completions_[0].back().status,
              side == 0 ? CompletionStatus::kMemoryGone : CompletionStatus::kRemoteAccessError);
    const auto read_again = [](const auto& bytes) { return std::ranges::count(bytes, 0xEE); };
    EXPECT_EQ(read_again(to.bytes), read_again(before));
    EXPECT_TRUE(side == 0 || to.bytes == before);
  }
}

// --- with threads ---

TEST(CoresOfThreads, MemoryComesAndGoesDuringTraffic) {
  TwoCoresLoopback world;
  const auto ends = world.connect();
  constexpr size_t kSize = 8 * kWrite;
  for (int round = 0; round < 30; ++round) {
    auto from = std::make_unique<std::vector<uint8_t>>(kSize, static_cast<uint8_t>(round));
    auto to = std::make_unique<std::vector<uint8_t>>(kSize, 0xFF);
    const auto source =
        world.nic(0).register_memory(from->data(), kSize, Access::kLocalRead).value();
    const auto place =
        world.nic(1).register_memory(to->data(), kSize, Access::kRemoteWrite).value();
    for (uint32_t i = 0; i < 8; ++i) {
      const WorkRequest write{.id = i,
                              .local = from->data() + i * kWrite,
                              .remote = place.remote_address + i * kWrite,
                              .length = kWrite,
                              .local_key = source.key,
                              .remote_key = place.key,
                              .immediate = i,
                              .opcode = Opcode::kWriteWithImm};
      ASSERT_EQ(world.nic(0).post(ends[0], {&write, 1}), 1U);
    }
    for (int step = 0; step < round * 3; ++step) world.step();
    // The sanitizers detect every access to the memory from here on.
    const size_t first = static_cast<size_t>(round) % 2;
    world.nic(first).deregister_memory(first == 0 ? source : place);
    (first == 0 ? from : to).reset();
    ASSERT_TRUE(world.wait_for_sent(8)) << round;
    world.nic(1 - first).deregister_memory(first == 0 ? place : source);
    world.clear();
  }
}

TEST(CoresOfThreads, LimitsSetAfterAPostHoldBeforeTheWritesLeave) {
  TwoCoresLoopback world;
  const auto ends = world.connect();
  constexpr uint32_t kWrites = 8;
  std::vector<uint8_t> from(kWrite, 7);
  std::vector<uint8_t> to(kWrites * kWrite);
  const auto source = world.nic(0).register_memory(from.data(), kWrite, Access::kLocalRead).value();
  const auto place =
      world.nic(1).register_memory(to.data(), to.size(), Access::kRemoteWrite).value();
  for (uint32_t i = 0; i < kWrites; ++i) {
    const WorkRequest write{.id = i,
                            .local = from.data(),
                            .remote = place.remote_address + i * kWrite,
                            .length = kWrite,
                            .local_key = source.key,
                            .remote_key = place.key};
    ASSERT_EQ(world.nic(0).post(ends[0], {&write, 1}), 1U);
  }
  world.nic(0).set_flow_limits(0, {.rate = Rate(), .window = 1 << 20}, clock_now());
  for (int step = 0; step < 50; ++step) world.step();
  EXPECT_EQ(world.nic(0).counters().data_bytes_sent, 0U);
  world.nic(0).set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = 1 << 20}, clock_now());
  EXPECT_TRUE(world.wait_for_sent(kWrites));
  EXPECT_EQ(std::ranges::count(to, 7), static_cast<std::ptrdiff_t>(to.size()));
}

TEST(CoresOfThreads, QueuePairsComeAndGoDuringTraffic) {
  TwoCoresLoopback world;
  std::vector<uint8_t> from(4 * kWrite, 7);
  std::vector<uint8_t> to(4 * kWrite);
  const auto source =
      world.nic(0).register_memory(from.data(), from.size(), Access::kLocalRead).value();
  const auto place =
      world.nic(1).register_memory(to.data(), to.size(), Access::kRemoteWrite).value();
  for (int round = 0; round < 40; ++round) {
    const auto ends = world.connect();
    for (uint32_t i = 0; i < 4; ++i) {
      const WorkRequest write{.id = i,
                              .local = from.data() + i * kWrite,
                              .remote = place.remote_address + i * kWrite,
                              .length = kWrite,
                              .local_key = source.key,
                              .remote_key = place.key,
                              .opcode = Opcode::kWriteWithImm};
      ASSERT_EQ(world.nic(0).post(ends[0], {&write, 1}), 1U);
    }
    for (int step = 0; step < round; ++step) world.step();
    if (round % 2 == 0) world.nic(1).halt_queue_pair(ends[1]);
    for (const size_t side : {1U, 0U}) world.nic(side).destroy_queue_pair(ends[side]);
    world.clear();
  }
}

}  // namespace
}  // namespace pacecar::test::multi_core_nic_test

// NICs through libibverbs. Skipped where there is no RDMA device.
#include "transport/verbs/verbs_nic.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <array>
#include <memory>
#include <numeric>
#include <vector>

#include "tests/support/verbs_port.h"

namespace pacecar::verbs_nic_test {
namespace {

using test::monotonic_now;
using testing::HasSubstr;

class VerbsNicTest : public testing::Test {
 protected:
  void SetUp() override {
    const auto found = test::active_verbs_port();
    if (!found) GTEST_SKIP() << found.error().message;
    port_ = *found;
  }

  VerbsConfig config() {
    return {.device = port_.device,
            .port = port_.port,
            .flows = 2,
            .queue_pairs = 4,
            .regions = 16,
            .silence_limit = silence_limit_,
            .log = {&write_log, &log_}};
  }
  static void write_log(void* context, LogLevel, std::string_view line) {
    static_cast<std::string*>(context)->append(line).append("\n");
  }
  void open(const std::array<uint32_t, 2>& paths = {4, 4}) {
    for (size_t side = 0; side < 2; ++side) {
      VerbsConfig mine = config();
      mine.paths = paths[side];
      nics_[side] = VerbsNic::open(mine, monotonic_now()).value();
      nics_[side]->set_flow_limits(0, {.rate = Rate::from_gbps(1000), .window = 1 << 20},
                                   monotonic_now());
      ends_[side] = nics_[side]->create_queue_pair({}).value();
      memory_[side].resize(kSize);
      std::iota(memory_[side].begin(), memory_[side].end(), static_cast<uint8_t>(side));
      regions_[side] =
          nics_[side]->register_memory(memory_[side].data(), kSize, Access::kRemoteWrite).value();
    }
    for (size_t side = 0; side < 2; ++side) {
      const auto peer = nics_[1 - side]->queue_pair_address(ends_[1 - side]);
      ASSERT_TRUE(nics_[side]->connect_queue_pair(ends_[side], peer.view()));
    }
  }
  WorkRequest write(uint64_t id, Bytes length) const {
    return {.id = id,
            .local = memory_[0].data(),
            .remote = regions_[1].remote_address,
            .length = length,
            .local_key = regions_[0].key,
            .remote_key = regions_[1].key,
            .immediate = static_cast<uint32_t>(id),
            .opcode = Opcode::kWriteWithImm};
  }
  void post(const WorkRequest& request) { ASSERT_EQ(nics_[0]->post(ends_[0], {&request, 1}), 1U); }

  void turn(size_t side) {
    const Instant now = monotonic_now();
    nics_[side]->receive(now);
    nics_[side]->on_time(now);
    nics_[side]->transmit(now);
    std::array<Completion, 16> some;
    while (const size_t count = nics_[side]->poll(some)) {
      completions_[side].insert(completions_[side].end(), some.begin(), some.begin() + count);
    }
  }
  // Turns both until `side` has `count` completions; false if it does not get them.
  bool wait(size_t side, size_t count) {
    for (int i = 0; i < 20'000 && completions_[side].size() < count; ++i) {
      turn(0);
      turn(1);
      if (completions_[side].size() < count) ::poll(nullptr, 0, 1);
    }
    return completions_[side].size() >= count;
  }

  static constexpr size_t kSize = 256 << 10;
  std::string log_;  // of both
  VerbsPortInfo port_;
  std::array<std::vector<uint8_t>, 2> memory_;  // outlives the NICs
  Duration silence_limit_ = Duration::from_s(10);
  std::array<std::unique_ptr<VerbsNic>, 2> nics_;
  std::array<QueuePairId, 2> ends_{};
  std::array<MemoryRegion, 2> regions_{};
  std::array<std::vector<Completion>, 2> completions_;
};

TEST_F(VerbsNicTest, EndsWithDifferentNumbersOfLanesJoin) {
  for (const auto& paths : {std::array<uint32_t, 2>{1, 4}, {8, 3}}) {
    completions_ = {};
    open(paths);
    for (uint64_t id = 0; id < 20; ++id) post(write(id, 3000));
    ASSERT_TRUE(wait(1, 20));
    ASSERT_TRUE(wait(0, 20));
    EXPECT_TRUE(std::equal(memory_[0].begin(), memory_[0].begin() + 3000, memory_[1].begin()));
  }
}

// Such writes are posted inline where the device can.
TEST_F(VerbsNicTest, SmallWritesFromHostMemoryArrive) {
  open();
  for (size_t i = 0; i < 100; ++i) memory_[0][i] = static_cast<uint8_t>(i + 1);
  for (uint64_t length = 0; length <= 100; ++length) {
    WorkRequest request = write(length, length);
    request.host = true;
    request.remote += length * 100;
    post(request);
    ASSERT_TRUE(wait(0, length + 1) && wait(1, length + 1)) << length;
    ASSERT_EQ(completions_[0].back().status, CompletionStatus::kOk) << nics_[0]->fault(ends_[0]);
    EXPECT_TRUE(std::equal(memory_[0].begin(), memory_[0].begin() + static_cast<ptrdiff_t>(length),
                           memory_[1].begin() + static_cast<ptrdiff_t>(length) * 100));
  }
  EXPECT_EQ(log_, "") << "recovery of a lane would hide a request that the device refuses";
}

TEST_F(VerbsNicTest, FaultNamesDevicePeerAndCure) {
  // The device's retries end after 3.8 s, before the silence limit: the device reports the fault.
  silence_limit_ = Duration::from_ms(7500);
  open();
  EXPECT_EQ(nics_[0]->fault(ends_[0]), "");
  nics_[1]->destroy_queue_pair(ends_[1]);
  post(write(1, 100));
  ASSERT_TRUE(wait(0, 1));
  EXPECT_EQ(completions_[0][0].kind, CompletionKind::kBroken);
  const std::string fault = nics_[0]->fault(ends_[0]);
  for (const std::string& part :
       {port_.device, std::string("RETRY_EXC_ERR"), gid_text(nics_[1]->device().gid.gid),
        std::string("check that the peer lives")}) {
    EXPECT_THAT(fault, HasSubstr(part));
  }
}

// The other requests do not fail with it.
TEST_F(VerbsNicTest, RefusedWriteFailsAloneAndTheLogNamesItsStatus) {
  open();
  WorkRequest wrong = write(1, 100);
  wrong.remote_key = ~wrong.remote_key;
  post(wrong);
  for (uint64_t id = 2; id < 12; ++id) post(write(id, 100));
  ASSERT_TRUE(wait(0, 11)) << log_;
  EXPECT_EQ(completions_[0][0].status, CompletionStatus::kRemoteAccessError);
  for (size_t i = 1; i < 11; ++i) EXPECT_EQ(completions_[0][i].status, CompletionStatus::kOk);
  EXPECT_THAT(log_, HasSubstr("REM_ACCESS_ERR"));
}

TEST_F(VerbsNicTest, SameMemoryIsRegisteredOnce) {
  open();
  const auto again =
      nics_[1]->register_memory(memory_[1].data(), kSize, Access::kRemoteWrite).value();
  EXPECT_EQ(again.key, regions_[1].key);
  EXPECT_TRUE(nics_[1]->shared(again));
  const auto other = nics_[1]->register_memory(memory_[1].data(), kSize, Access::kRemoteRead);
  ASSERT_TRUE(other);
  EXPECT_NE(other->key, again.key);
  nics_[1]->deregister_memory(again);
  EXPECT_FALSE(nics_[1]->shared(regions_[1]));
  post(write(1, 100));
  ASSERT_TRUE(wait(0, 1));
  EXPECT_EQ(completions_[0][0].status, CompletionStatus::kOk) << "one registration is left";
  nics_[1]->deregister_memory(regions_[1]);
  post(write(2, 100));
  ASSERT_TRUE(wait(0, 2));
  EXPECT_EQ(completions_[0][1].status, CompletionStatus::kRemoteAccessError);
}

TEST_F(VerbsNicTest, UnmappedMemoryIsRefusedWithASentence) {
  open();
  const auto unmapped = nics_[0]->register_memory(reinterpret_cast<void*>(uint64_t{4096}), 4096,
                                                  Access::kRemoteWrite);
  ASSERT_FALSE(unmapped);
  EXPECT_EQ(unmapped.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(unmapped.error().message, HasSubstr("ibv_reg_mr"));
  const auto no_dmabuf =
      nics_[0]->register_dmabuf({.address = 4096, .length = 4096}, Access::kRemoteWrite);
  ASSERT_FALSE(no_dmabuf);
  EXPECT_THAT(no_dmabuf.error().message, HasSubstr("ibv_reg_dmabuf_mr"));
}

TEST_F(VerbsNicTest, AddressOfAnotherLinkLayerIsRefused) {
  open();
  const QueuePairId id = nics_[0]->create_queue_pair({}).value();
  const auto address = nics_[1]->queue_pair_address(ends_[1]);
  RcEndpoint endpoint = decode_rc_endpoint(address.view()).value();
  EXPECT_EQ(endpoint.lanes, 4);
  endpoint.link_layer =
      endpoint.link_layer == LinkLayer::kEthernet ? LinkLayer::kInfiniband : LinkLayer::kEthernet;
  endpoint.lid = 1;
  const auto connected = nics_[0]->connect_queue_pair(id, encode(endpoint).view());
  ASSERT_FALSE(connected);
  EXPECT_EQ(connected.error().code, ErrorCode::kPeer);
  EXPECT_THAT(connected.error().message, HasSubstr(port_.device));
}

TEST_F(VerbsNicTest, MissingGidIndexIsRefused) {
  VerbsConfig wrong = config();
  wrong.gid_index = 200;
  const auto nic = VerbsNic::open(wrong, monotonic_now());
  ASSERT_FALSE(nic);
  EXPECT_THAT(nic.error().message, HasSubstr("PACECAR_GID_INDEX is 200"));
  EXPECT_THAT(nic.error().message, HasSubstr(port_.device));
}

TEST_F(VerbsNicTest, ArrivalsWakeASleepingThread) {
  open();
  turn(1);
  ASSERT_TRUE(nics_[1]->prepare_to_wait(monotonic_now()));
  pollfd sleeper{nics_[1]->wait_fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&sleeper, 1, 0), 0);
  post(write(1, 100));
  turn(0);
  ASSERT_EQ(::poll(&sleeper, 1, 10'000), 1);
  EXPECT_FALSE(nics_[1]->prepare_to_wait(monotonic_now()));
  ASSERT_TRUE(wait(1, 1));
  ASSERT_TRUE(nics_[1]->prepare_to_wait(monotonic_now()));
  EXPECT_EQ(::poll(&sleeper, 1, 0), 0) << "the event has been taken";
}

TEST_F(VerbsNicTest, ArrivalsAreReportedPerFlow) {
  open();
  nics_[1]->report_arrivals(true);
  for (uint64_t id = 0; id < 3; ++id) post(write(id, 1000));
  ASSERT_TRUE(wait(1, 3));
  std::array<FlowArrival, 4> arrivals;
  ASSERT_EQ(nics_[1]->poll_arrivals(arrivals), 1U);
  EXPECT_EQ(arrivals[0].flow, 0U);
  EXPECT_EQ(arrivals[0].bytes, 3000U);
  EXPECT_EQ(nics_[1]->counters().data_bytes_received, 3000U);
}

// Two flows, of which one has nothing to send: the other one has the link alone.
TEST_F(VerbsNicTest, FlowOnCreditKeepsItsCreditAndReportsSharingFlows) {
  open();
  const Instant now = monotonic_now();
  FlowLimits limits{.rate = Rate::from_gbps(1000), .window = 1 << 20, .credit = 1001};
  nics_[0]->set_flow_limits(1, limits, now);
  nics_[0]->set_flow_limits(0, limits, now);
  for (uint64_t id = 0; id < 3; ++id) post(write(id, 1000));
  ASSERT_TRUE(wait(0, 2));
  std::array<FlowSignal, 4> signals;
  ASSERT_EQ(nics_[0]->poll_signals(signals), 1U);
  EXPECT_EQ(signals[0].sharing, 1U);
  EXPECT_EQ(signals[0].sent, 2000U) << "a write that begins within the credit is sent whole";
  limits.credit = 3000;
  nics_[0]->set_flow_limits(0, limits, now);
  ASSERT_TRUE(wait(0, 3));
}

// A write that finds no receive request waits at the sender.
TEST_F(VerbsNicTest, MoreWritesArriveThanTheReceiverHasRequestsFor) {
  silence_limit_ = Duration::from_s(60);  // a write that waits for a receive is not acknowledged
  open();
  constexpr uint64_t kWrites = 6000;
  uint64_t posted = 0;
  int idle = 0;  // turns in a row in which nothing was completed
  for (int turns = 0; turns < 20'000 && completions_[0].size() < kWrites;) {
    for (; posted < kWrites; ++posted) {
      const WorkRequest request = write(posted, 8);
      if (nics_[0]->post(ends_[0], {&request, 1}) == 0) break;
    }
    const size_t before = completions_[0].size();
    turn(0);
    const bool stuck = idle >= 200;  // until then the receiver does not turn
    if (stuck) {
      turn(1);
      ++turns;
    }
    if (completions_[0].size() == before) {
      ++idle;
      ::poll(nullptr, 0, 1);
    } else if (!stuck) {
      idle = 0;
    }
  }
  ASSERT_TRUE(wait(0, kWrites));
  ASSERT_TRUE(wait(1, kWrites));
  EXPECT_EQ(completions_[1].size(), kWrites);
}

TEST_F(VerbsNicTest, HardwareCountersIncrease) {
  open();
  const auto before = nics_[0]->hardware_counters();
  if (before.empty()) GTEST_SKIP() << "this driver counts nothing";
  post(write(1, 10'000));
  ASSERT_TRUE(wait(1, 1));
  const auto moved = [&] {
    uint64_t sum = 0;
    for (const HardwareCounter& counter : nics_[0]->hardware_counters()) sum += counter.count;
    return sum > 0;
  };
  for (int i = 0; i < 2'000 && !moved(); ++i) ::poll(nullptr, 0, 1);  // drivers keep old values
  EXPECT_TRUE(moved());
}

TEST_F(VerbsNicTest, DeregisteringMemoryOfStuckWritesBreaksTheQueuePair) {
  silence_limit_ = Duration::from_s(10);  // longer than deregistering waits, also on a busy host
  open();
  nics_[1]->destroy_queue_pair(ends_[1]);
  for (uint64_t id = 0; id < 3; ++id) post(write(id, 1000));
  turn(0);
  nics_[0]->deregister_memory(regions_[0]);
  ASSERT_TRUE(wait(0, 1));
  EXPECT_EQ(completions_[0].back().kind, CompletionKind::kBroken);
  EXPECT_EQ(completions_[0].back().status, CompletionStatus::kMemoryGone);
  EXPECT_THAT(nics_[0]->fault(ends_[0]), HasSubstr("deregistered while the NIC used it"));
  EXPECT_EQ(nics_[0]->next_deadline(), Instant::never());
}

TEST_F(VerbsNicTest, FlushReadsMemoryThatPeersMayRead) {
  open();
  const MemoryRegion readable =
      nics_[1]->register_memory(memory_[1].data(), kSize, Access::kRemoteAll).value();
  const auto wait = [this](uint64_t flush) {
    Result<bool> done = false;
    for (int i = 0; i < 20'000 && done && !*done; ++i) {
      done = nics_[1]->flushed(flush);
      if (done && !*done) ::poll(nullptr, 0, 1);
    }
    return done;
  };
  std::array<uint64_t, 3> flushes{};
  for (uint64_t& flush : flushes) {
    flush = nics_[1]->start_flush(readable, memory_[1].data() + 5).value().value();
  }
  EXPECT_EQ(wait(flushes[2]), true);
  EXPECT_EQ(nics_[1]->flushed(flushes[0]), true);
  // A flush of memory that may not be read fails; the next one does not.
  const auto refused = nics_[1]->start_flush(regions_[1], memory_[1].data()).value();
  EXPECT_FALSE(wait(*refused));
  EXPECT_EQ(wait(nics_[1]->start_flush(readable, memory_[1].data()).value().value()), true);
  nics_[1]->deregister_memory(readable);
}

}  // namespace
}  // namespace pacecar::verbs_nic_test

// Sends and receives over one connection.
#include <algorithm>
#include <optional>
#include <random>
#include <utility>

#include "net_plugin/host/line_poller.h"
#include "tests/plugin/plugin_test.h"

namespace pacecar::test::transfer_test {
namespace {

using nccl::NcclResult;

TEST(Transfer, EverySizeArrivesWhole) {
  with_connection([](const FakeNcclHost& host, const Ends& pair) {
    constexpr size_t kMax = (8U << 20) + 3;
    const Buffer source(host, pair.send, kMax);
    const Buffer target(host, pair.receive, kMax);
    uint64_t seed = 0;
    for (const size_t size :
         {size_t{1}, size_t{7}, size_t{8}, size_t{127}, size_t{4095}, size_t{4096}, size_t{4097},
          size_t{65'536}, (size_t{1} << 20) + 1, kMax}) {
      fill_pattern(source.bytes().first(size), ++seed);
      void* const receiving = host.receive(pair.receive, target.part(0, size));
      void* const sending = host.send(pair.send, source.part(0, size));
      EXPECT_EQ(host.finish(receiving), static_cast<int>(size));
      EXPECT_EQ(host.finish(sending), static_cast<int>(size));
      EXPECT_FALSE(find_mismatch(target.bytes().first(size), seed)) << size << " bytes";
    }
  });
}

TEST(Transfer, ZeroByteMessagesComplete) {
  with_connection([](const FakeNcclHost& host, const Ends& pair) {
    const Buffer source(host, pair.send, 4096);
    const Buffer target(host, pair.receive, 4096);
    fill_pattern(target.bytes(), 1);
    for (const size_t posted : {size_t{0}, size_t{4096}}) {
      void* const receiving = host.receive(pair.receive, target.part(0, posted));
      void* const sending = host.send(pair.send, source.part(0, 0));
      EXPECT_EQ(host.finish(receiving), 0);
      EXPECT_EQ(host.finish(sending), 0);
    }
    EXPECT_FALSE(find_mismatch(target.bytes(), 1));
  });
}

TEST(Transfer, ReceiveReportsTheSizeSent) {
  with_connection([](const FakeNcclHost& host, const Ends& pair) {
    const Buffer source(host, pair.send, 5000);
    const Buffer target(host, pair.receive, 1U << 20);
    fill_pattern(source.bytes(), 1);
    fill_pattern(target.bytes(), 2);
    std::vector<uint8_t> before(target.bytes().begin(), target.bytes().end());
    void* const receiving = host.receive(pair.receive, target.whole());
    host.finish(host.send(pair.send, source.whole()));
    EXPECT_EQ(host.finish(receiving), 5000);
    EXPECT_FALSE(find_mismatch(target.bytes().first(5000), 1));
    EXPECT_TRUE(std::equal(before.begin() + 5000, before.end(), target.bytes().begin() + 5000));
  });
}

TEST(Transfer, TagsChooseTheBufferOfAReceive) {
  with_connection([](const FakeNcclHost& host, const Ends& pair) {
    constexpr size_t kBuffers = 8;
    constexpr size_t kRounds = 8;
    constexpr size_t kBytes = 20'000;
    const Buffer source(host, pair.send, kRounds * kBuffers * kBytes);
    const Buffer target(host, pair.receive, kRounds * kBuffers * kBytes);
    const auto place = [](size_t round, size_t i) { return (round * kBuffers + i) * kBytes; };
    // Every round uses the same tags: the oldest receive is matched first.
    std::vector<void*> receiving;
    for (size_t round = 0; round < kRounds; ++round) {
      std::vector<Part> posted;
      for (size_t i = 0; i < kBuffers; ++i) {
        posted.push_back(target.part(place(round, i), kBytes, static_cast<int>(100 + i)));
      }
      receiving.push_back(host.receive(pair.receive, posted));
    }
    std::mt19937 shuffle(7);
    std::vector<void*> sending;
    for (size_t round = 0; round < kRounds; ++round) {
      std::array<size_t, kBuffers> order{0, 1, 2, 3, 4, 5, 6, 7};
      std::shuffle(order.begin(), order.end(), shuffle);
      for (const size_t i : order) {
        const Part part =
            source.part(place(round, i), kBytes - round - 10 * i, static_cast<int>(100 + i));
        fill_pattern(part.data, round * kBuffers + i);
        sending.push_back(host.send(pair.send, part));
      }
    }
    host.finish(sending);
    const std::vector<std::vector<int>> sizes = host.finish(receiving);
    for (size_t round = 0; round < kRounds; ++round) {
      for (size_t i = 0; i < kBuffers; ++i) {
        const size_t size = kBytes - round - 10 * i;
        EXPECT_EQ(sizes[round][i], static_cast<int>(size));
        EXPECT_FALSE(
            find_mismatch(target.bytes().subspan(place(round, i), size), round * kBuffers + i));
      }
    }
  });
}

TEST(Transfer, RequestsBeyondTheLimitAreDeferred) {
  with_connection([](const FakeNcclHost& host, const Ends& pair) {
    constexpr size_t kRequests = nccl::kMaxRequestsPerConnection;
    constexpr size_t kBytes = 100'000;
    const Buffer source(host, pair.send, kRequests * kBytes);
    const Buffer target(host, pair.receive, kRequests * kBytes);
    for (uint64_t round = 0; round < 3; ++round) {
      std::vector<void*> receiving;
      std::vector<void*> sending;
      for (size_t i = 0; i < kRequests; ++i) {
        receiving.push_back(host.try_receive(pair.receive, target.part(i * kBytes, kBytes)));
        ASSERT_NE(receiving.back(), nullptr) << "receive " << i;
      }
      EXPECT_EQ(host.try_receive(pair.receive, target.whole()), nullptr) << "queue full";
      for (size_t i = 0; i < kRequests; ++i) {
        const Part part = source.part(i * kBytes, kBytes);
        fill_pattern(part.data, round * kRequests + i);
        sending.push_back(host.try_send(pair.send, part));
        ASSERT_NE(sending.back(), nullptr) << "send " << i;
      }
      for (size_t i = 0; i < kRequests; ++i) {
        EXPECT_EQ(host.finish(sending[i]), static_cast<int>(kBytes));
        EXPECT_EQ(host.finish(receiving[i]), static_cast<int>(kBytes));
        EXPECT_FALSE(
            find_mismatch(target.bytes().subspan(i * kBytes, kBytes), round * kRequests + i));
      }
    }
  });
}

// A sender learns that its message was too large only if the message was not eager.
constexpr size_t kTooLarge = (128U << 10) + 1;  // too large to be eager
constexpr size_t kSmallButTooLarge = 4097;      // may be eager

TEST(Transfer, OversizedMessageFailsAtBothEnds) {
  with_connection([](const FakeNcclHost& host, const Ends& pair) {
    const Buffer source(host, pair.send, kTooLarge);
    const Buffer target(host, pair.receive, 2 * kTooLarge);
    fill_pattern(target.bytes(), 9);
    void* const receiving = host.receive(pair.receive, target.part(0, kTooLarge - 1));
    void* const sending = host.send(pair.send, source.whole());
    EXPECT_EQ(host.result_of(sending), NcclResult::kInvalidUsage);
    EXPECT_TRUE(was_logged(nccl::LogSeverity::kWarn, "send to " + nic_address()));
    EXPECT_EQ(host.result_of(receiving), NcclResult::kInvalidUsage);
    EXPECT_FALSE(find_mismatch(target.bytes(), 9));
  });
}

TEST(Transfer, OversizedSmallMessageFailsAtTheReceiver) {
  with_connection([](const FakeNcclHost& host, const Ends& pair) {
    const Buffer source(host, pair.send, kSmallButTooLarge);
    const Buffer target(host, pair.receive, 2 * kSmallButTooLarge);
    fill_pattern(target.bytes(), 9);
    void* const receiving = host.receive(pair.receive, target.part(0, kSmallButTooLarge - 1));
    host.send(pair.send, source.whole());
    EXPECT_EQ(host.result_of(receiving), NcclResult::kInvalidUsage);
    EXPECT_TRUE(was_logged(nccl::LogSeverity::kWarn, "receive from " + nic_address()));
    EXPECT_FALSE(find_mismatch(target.bytes(), 9));
  });
}

TEST(Transfer, LastMessageArrivesWithoutFurtherCallsOfTheSender) {
  expect_processes_pass(2, [](Rank& rank) {
    constexpr size_t kBytes = 4U << 20;
    const auto host = start_host();
    void* const comm = connect_ranks(*host, rank);
    if (rank.rank() == 0) {
      Buffer target(*host, comm, kBytes);
      rank.barrier();  // the sender has posted its request and makes no further call
      void* const request = host->receive(comm, target.whole());
      EXPECT_EQ(host->finish(request), static_cast<int>(kBytes));
      EXPECT_FALSE(find_mismatch(target.bytes(), 11));
      rank.barrier();
    } else {
      Buffer source(*host, comm, kBytes);
      fill_pattern(source.bytes(), 11);
      host->send(comm, source.whole());
      rank.barrier();
      rank.barrier();
    }
    close_rank(*host, rank, comm);
  });
}

// Rank 1 sends lines over every NIC in rounds, kInFlight of them in flight. Rank 0 polls as a GPU
// does.
void send_lines_that_a_gpu_polls() {
  expect_processes_pass(2, [](Rank& rank) {
    constexpr size_t kBytes = 64U << 10;
    constexpr size_t kInFlight = 4;
    constexpr size_t kRounds = 250;
    const auto host = start_host();
    const auto nics = static_cast<size_t>(host->device_count());
    const nccl::Pages pages(kInFlight * nics * kBytes);
    std::vector<void*> comms;
    std::vector<std::unique_ptr<nccl::Registration>> memory;
    for (size_t nic = 0; nic < nics; ++nic) {
      comms.push_back(connect_ranks(*host, rank, static_cast<int>(nic)));
      memory.push_back(std::make_unique<nccl::Registration>(*host, comms.back(), pages.bytes()));
    }
    std::optional<nccl::LinePoller> gpu;
    if (rank.rank() == 0) gpu.emplace(pages.bytes());
    std::vector<std::vector<void*>> in_flight(kInFlight);
    for (size_t round = 0; round < kRounds + kInFlight; ++round) {
      const size_t turn = round % kInFlight;
      host->finish(std::exchange(in_flight[turn], {}));
      for (size_t nic = 0; nic < nics && round < kRounds; ++nic) {
        const Part part{pages.bytes().subspan((turn * nics + nic) * kBytes, kBytes), 0,
                        memory[nic]->memory()};
        if (rank.rank() == 1) std::ranges::fill(part.data, static_cast<uint8_t>(1 + round));
        in_flight[turn].push_back(rank.rank() == 0 ? host->receive(comms[nic], part)
                                                   : host->send(comms[nic], part));
      }
    }
    rank.barrier();
    if (gpu) {
      const nccl::LinePoller::Sightings seen = gpu->stop();
      // Linux's rdma_rxe does not write whole words: an emulated processor copies byte by byte. Nor
      // does a byte stream, whose pieces end anywhere. NCCL's LL tolerates that, as low bytes come
      // first.
      const bool byte_by_byte = nic_names().starts_with("rxe") ||
                                nic_names().starts_with("ofi:verbs") ||
                                nic_names().starts_with("ofi:tcp");
      if (!byte_by_byte) {
        EXPECT_EQ(seen.torn, 0U);
      }
      // The kernel copies for libfabric's tcp in any order; datagrams of udp;ofi_rxd
      // overtake each other. open_ofi.cc reports both.
      const bool any_order =
          nic_names().starts_with("ofi:") && !nic_names().starts_with("ofi:verbs");
      if (!any_order) {
        EXPECT_EQ(seen.early, 0U);
      }
      EXPECT_EQ(seen.late, 0U);
    }
    memory.clear();
    for (void* const comm : comms) close_rank(*host, rank, comm);
  });
}

TEST(Transfer, AGpuSeesLinesWholeInOrderAndOnce) { send_lines_that_a_gpu_polls(); }

// A packet delayed for longer than its retransmission takes arrives when its buffer is already in
// use for another message.
TEST(Transfer, AGpuSeesLinesWholeInOrderAndOnceOverABadNetwork) {
  if (!nic_names().starts_with("soft:")) GTEST_SKIP() << "faults are made by software NICs";
  setenv("PACECAR_FAULT", "loss=0.002,duplicate=0.01,reorder=0.01,reorder_by=20ms", 1);
  setenv("PACECAR_MTU", "4096", 1);  // many packets for each message
  send_lines_that_a_gpu_polls();
  unsetenv("PACECAR_MTU");
  unsetenv("PACECAR_FAULT");
}

}  // namespace
}  // namespace pacecar::test::transfer_test

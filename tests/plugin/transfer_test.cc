// Sends and receives over one connection.
#include <algorithm>
#include <atomic>
#include <random>
#include <thread>

#include "tests/plugin/plugin_test.h"

namespace pacecar::test {
namespace {

using nccl::NcclResult;

TEST(Transfer, EverySizeArrivesWhole) {
  with_connection([](const FakeNcclHost& host, const ConnectionPair& pair) {
    constexpr size_t kMax = (8U << 20) + 3;
    const HostBuffer source(host, pair.send, kMax);
    const HostBuffer target(host, pair.receive, kMax);
    uint64_t seed = 0;
    for (const size_t size :
         {size_t{1}, size_t{7}, size_t{8}, size_t{127}, size_t{4095}, size_t{4096}, size_t{4097},
          size_t{65'536}, (size_t{1} << 20) + 1, kMax}) {
      fill(source.bytes().first(size), ++seed);
      void* const receiving =
          receive(host, pair.receive, {target.bytes().first(size), 0, target.memory()});
      void* const sending = send(host, pair.send, {source.bytes().first(size), 0, source.memory()});
      EXPECT_EQ(complete(host, receiving), static_cast<int>(size));
      EXPECT_EQ(complete(host, sending), static_cast<int>(size));
      EXPECT_EQ(count_wrong(target.bytes().first(size), seed), 0U) << size << " bytes";
    }
  });
}

TEST(Transfer, ZeroBytesAreAnOperation) {
  with_connection([](const FakeNcclHost& host, const ConnectionPair& pair) {
    const HostBuffer source(host, pair.send, 4096);
    const HostBuffer target(host, pair.receive, 4096);
    fill(target.bytes(), 1);
    for (const size_t posted : {size_t{0}, size_t{4096}}) {
      void* const receiving =
          receive(host, pair.receive, {target.bytes().first(posted), 0, target.memory()});
      void* const sending = send(host, pair.send, {source.bytes().first(0), 0, source.memory()});
      EXPECT_EQ(complete(host, receiving), 0);
      EXPECT_EQ(complete(host, sending), 0);
    }
    EXPECT_EQ(count_wrong(target.bytes(), 1), 0U);
  });
}

TEST(Transfer, AReceiveReportsWhatWasSentNotWhatWasPosted) {
  with_connection([](const FakeNcclHost& host, const ConnectionPair& pair) {
    const HostBuffer source(host, pair.send, 5000);
    const HostBuffer target(host, pair.receive, 1U << 20);
    fill(source.bytes(), 1);
    fill(target.bytes(), 2);
    std::vector<uint8_t> before(target.bytes().begin(), target.bytes().end());
    void* const receiving = receive(host, pair.receive, {target.bytes(), 0, target.memory()});
    complete(host, send(host, pair.send, {source.bytes(), 0, source.memory()}));
    EXPECT_EQ(complete(host, receiving), 5000);
    EXPECT_EQ(count_wrong(target.bytes().first(5000), 1), 0U);
    EXPECT_TRUE(std::equal(before.begin() + 5000, before.end(), target.bytes().begin() + 5000));
  });
}

TEST(Transfer, TagsChooseAmongTheBuffersOfOneReceive) {
  with_connection([](const FakeNcclHost& host, const ConnectionPair& pair) {
    constexpr size_t kBuffers = 8;
    constexpr size_t kRounds = 8;
    constexpr size_t kBytes = 20'000;
    const HostBuffer source(host, pair.send, kRounds * kBuffers * kBytes);
    const HostBuffer target(host, pair.receive, kRounds * kBuffers * kBytes);
    const auto part = [](const HostBuffer& buffer, size_t round, size_t i) {
      return buffer.bytes().subspan((round * kBuffers + i) * kBytes, kBytes);
    };
    // Every round uses the same tags: the oldest receive is served first.
    std::vector<void*> receiving;
    for (size_t round = 0; round < kRounds; ++round) {
      std::vector<Posted> posted;
      for (size_t i = 0; i < kBuffers; ++i) {
        posted.push_back({part(target, round, i), static_cast<int>(100 + i), target.memory()});
      }
      receiving.push_back(receive(host, pair.receive, posted));
    }
    std::mt19937 shuffle(7);
    std::vector<void*> sending;
    for (size_t round = 0; round < kRounds; ++round) {
      std::array<size_t, kBuffers> order{0, 1, 2, 3, 4, 5, 6, 7};
      std::shuffle(order.begin(), order.end(), shuffle);
      for (const size_t i : order) {
        const std::span<uint8_t> data = part(source, round, i).first(kBytes - round - 10 * i);
        fill(data, round * kBuffers + i);
        sending.push_back(
            send(host, pair.send, {data, static_cast<int>(100 + i), source.memory()}));
      }
    }
    for (void* request : sending) complete(host, request);
    for (size_t round = 0; round < kRounds; ++round) {
      std::vector<int> sizes;
      ASSERT_EQ(wait(host, receiving[round], &sizes), NcclResult::kSuccess);
      for (size_t i = 0; i < kBuffers; ++i) {
        const size_t size = kBytes - round - 10 * i;
        EXPECT_EQ(sizes[i], static_cast<int>(size));
        EXPECT_EQ(count_wrong(part(target, round, i).first(size), round * kBuffers + i), 0U);
      }
    }
  });
}

TEST(Transfer, ThirtyTwoRequestsAreInFlightAndTheNextWaits) {
  with_connection([](const FakeNcclHost& host, const ConnectionPair& pair) {
    constexpr size_t kRequests = nccl::kMaxRequestsPerConnection;
    constexpr size_t kBytes = 100'000;
    const HostBuffer source(host, pair.send, kRequests * kBytes);
    const HostBuffer target(host, pair.receive, kRequests * kBytes);
    for (uint64_t round = 0; round < 3; ++round) {
      std::vector<void*> receiving;
      std::vector<void*> sending;
      for (size_t i = 0; i < kRequests; ++i) {
        const auto data = target.bytes().subspan(i * kBytes, kBytes);
        void* request = nullptr;
        ASSERT_EQ(try_receive(host, pair.receive, std::vector<Posted>{{data, 0, target.memory()}},
                              &request),
                  NcclResult::kSuccess);
        ASSERT_NE(request, nullptr) << "receive " << i;
        receiving.push_back(request);
      }
      void* one_too_many = nullptr;
      EXPECT_EQ(
          try_receive(host, pair.receive, std::vector<Posted>{{target.bytes(), 0, target.memory()}},
                      &one_too_many),
          NcclResult::kSuccess);
      EXPECT_EQ(one_too_many, nullptr);
      for (size_t i = 0; i < kRequests; ++i) {
        const auto data = source.bytes().subspan(i * kBytes, kBytes);
        fill(data, round * kRequests + i);
        void* request = nullptr;
        ASSERT_EQ(try_send(host, pair.send, {data, 0, source.memory()}, &request),
                  NcclResult::kSuccess);
        ASSERT_NE(request, nullptr) << "send " << i;
        sending.push_back(request);
      }
      for (size_t i = 0; i < kRequests; ++i) {
        EXPECT_EQ(complete(host, sending[i]), static_cast<int>(kBytes));
        EXPECT_EQ(complete(host, receiving[i]), static_cast<int>(kBytes));
        EXPECT_EQ(count_wrong(target.bytes().subspan(i * kBytes, kBytes), round * kRequests + i),
                  0U);
      }
    }
  });
}

TEST(Transfer, AMessageLargerThanTheBufferIsAnInvalidUsage) {
  with_connection([](const FakeNcclHost& host, const ConnectionPair& pair) {
    const HostBuffer source(host, pair.send, 4097);
    const HostBuffer target(host, pair.receive, 8192);
    fill(target.bytes(), 9);
    receive(host, pair.receive, {target.bytes().first(4096), 0, target.memory()});
    void* const sending = send(host, pair.send, {source.bytes(), 0, source.memory()});
    EXPECT_EQ(wait(host, sending), NcclResult::kInvalidUsage);
    EXPECT_TRUE(was_logged(nccl::LogSeverity::kWarn, "send to " + nic_address()));
    EXPECT_EQ(count_wrong(target.bytes(), 9), 0U);
  });
}

TEST(Transfer, TheLastMessageArrivesThoughNobodyCallsTheSender) {
  expect_processes_pass(2, [](Rank& rank) {
    constexpr size_t kBytes = 4U << 20;
    const auto host = start_host();
    if (rank.rank() == 0) {
      const Listening listening = host->listen();
      rank.give(1, listening.handle);
      void* const comm = host->accept(listening.comm);
      host->net().closeListen(listening.comm);
      HostBuffer target(*host, comm, kBytes);
      rank.barrier();  // the sender has its request, and will not call again
      void* const request = receive(*host, comm, {target.bytes(), 0, target.memory()});
      EXPECT_EQ(complete(*host, request), static_cast<int>(kBytes));
      EXPECT_EQ(count_wrong(target.bytes(), 11), 0U);
      rank.barrier();
      target.deregister();
      host->net().closeRecv(comm);
    } else {
      void* const comm = host->connect(rank.take(0));
      HostBuffer source(*host, comm, kBytes);
      fill(source.bytes(), 11);
      send(*host, comm, {source.bytes(), 0, source.memory()});
      rank.barrier();
      rank.barrier();
      source.deregister();
      host->net().closeSend(comm);
    }
  });
}

// NCCL's LL128 protocol: a GPU polls the last word of each 128-byte line while the line is written.
TEST(Transfer, AFlagIsNeverSeenBeforeItsLine) {
#ifdef __SANITIZE_THREAD__
  GTEST_SKIP() << "the thread that plays the GPU races by design";
#endif
  with_connection([](const FakeNcclHost& host, const ConnectionPair& pair) {
    constexpr size_t kWordsPerLine = 16;
    constexpr size_t kBytes = 64U << 10;
    constexpr uint64_t kRounds = 300;
    const HostBuffer source(host, pair.send, kBytes);
    const HostBuffer target(host, pair.receive, kBytes);
    auto* const words = reinterpret_cast<uint64_t*>(source.bytes().data());
    auto* const seen = reinterpret_cast<uint64_t*>(target.bytes().data());
    const auto load = [](uint64_t* word) {
      return std::atomic_ref(*word).load(std::memory_order_acquire);
    };
    std::atomic<uint64_t> round{1};
    std::atomic<uint64_t> torn{0};
    std::thread gpu([&] {
      for (uint64_t now; (now = round.load()) <= kRounds;) {
        for (size_t line = 0; line < kBytes / 8; line += kWordsPerLine) {
          const uint64_t flag = load(&seen[line + kWordsPerLine - 1]);
          for (size_t i = 0; i < kWordsPerLine - 1; ++i) torn += load(&seen[line + i]) < flag;
        }
      }
    });
    for (uint64_t now = 1; now <= kRounds; ++now) {
      std::fill_n(words, kBytes / 8, now);
      void* const receiving = receive(host, pair.receive, {target.bytes(), 0, target.memory()});
      complete(host, send(host, pair.send, {source.bytes(), 0, source.memory()}));
      complete(host, receiving);
      round.store(now + 1);
    }
    gpu.join();
    EXPECT_EQ(torn.load(), 0U);
  });
}

}  // namespace
}  // namespace pacecar::test

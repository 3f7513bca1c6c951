// The libfabric provider through libfabric itself: remote writes, reads and atomics, and waiting
// for completions.
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <vector>

#include "tests/support/fi_world.h"

namespace pacecar::test::fi_provider_memory_test {
namespace {

void write_and_read(World& world, bool virtual_addresses) {
  for (const size_t size : kSizes) {
    std::vector<uint8_t> shared(size + 16, static_cast<uint8_t>(world.rank.rank()));
    fid_mr* const region = world.end.share(shared.data(), shared.size(), size + 1);
    HandleBytes window{};
    const uint64_t words[] = {virtual_addresses ? reinterpret_cast<uint64_t>(shared.data()) : 0,
                              fi_mr_key(region)};
    std::memcpy(window.data(), words, sizeof words);
    world.rank.give(1 - world.rank.rank(), window);
    const HandleBytes theirs = world.rank.take(1 - world.rank.rank());
    uint64_t at[2];
    std::memcpy(at, theirs.data(), sizeof at);
    if (world.first()) {
      const auto bytes = pattern(size, 77);
      std::vector<uint8_t> back(size);
      int context = 0;
      world.end.until_taken([&] {
        return fi_write(world.end.endpoint, bytes.data(), size, nullptr, world.other(), at[0] + 8,
                        at[1], &context);
      });
      EXPECT_EQ(world.end.outcome_of(&context).error, 0);
      world.end.until_taken([&] {
        return fi_read(world.end.endpoint, back.data(), size, nullptr, world.other(), at[0] + 8,
                       at[1], &context);
      });
      EXPECT_EQ(world.end.outcome_of(&context).error, 0);
      EXPECT_TRUE(back == bytes) << size;
      world.end.until_taken([&] {  // beyond the region's end
        return fi_write(world.end.endpoint, bytes.data(), size, nullptr, world.other(), at[0] + 17,
                        at[1], &context);
      });
      EXPECT_EQ(world.end.outcome_of(&context).error, FI_EACCES);
      world.end.until_taken([&] {
        return fi_read(world.end.endpoint, back.data(), size, nullptr, world.other(), at[0],
                       at[1] + 1000003, &context);
      });
      EXPECT_EQ(world.end.outcome_of(&context).error, FI_ENOKEY);
    }
    world.meet();
    if (!world.first()) {
      EXPECT_TRUE(std::equal(shared.begin() + 8, shared.end() - 8, pattern(size, 77).begin()));
      EXPECT_TRUE(std::all_of(shared.end() - 8, shared.end(), [](uint8_t b) { return b == 1; }));
    }
  }
}

TEST(FiProviderMemory, WriteAndReadByOffset) {
  with_two([](World& world) { write_and_read(world, false); });
}

TEST(FiProviderMemory, WriteAndReadByAddress) {
  with_two([](World& world) { write_and_read(world, true); }, {.mr_mode = FI_MR_BASIC});
}

TEST(FiProviderMemory, WriteWithDataIsReported) {
  with_two([](World& world) {
    for (const size_t size : {size_t{8}, size_t{50000}}) {
      std::vector<uint8_t> shared(size);
      world.end.share(shared.data(), size, size);
      world.meet();
      if (world.first()) {
        const auto bytes = pattern(size, 5);
        int context = 0;
        world.end.until_taken([&] {
          return fi_writedata(world.end.endpoint, bytes.data(), size, nullptr, 4711, world.other(),
                              0, size, &context);
        });
        EXPECT_EQ(world.end.outcome_of(&context).error, 0);
      } else {
        const FiOutcome outcome = world.end.next();
        EXPECT_EQ(outcome.data, 4711);
        EXPECT_EQ(outcome.flags, FI_RMA | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
        EXPECT_TRUE(shared == pattern(size, 5));
      }
      world.meet();
    }
    if (!world.first()) {
      EXPECT_EQ(fi_cntr_read(world.end.written), 2);
    }
  });
}

TEST(FiProviderMemory, AtomicWithDataIsReported) {
  with_two([](World& world) {
    uint64_t word = 40;
    world.end.share(&word, sizeof word, 1);
    world.meet();
    if (world.first()) {
      uint64_t two = 2;
      const fi_ioc operand{&two, 1};
      const fi_rma_ioc remote{.addr = 0, .count = 1, .key = 1};
      const fi_msg_atomic message{.msg_iov = &operand,
                                  .desc = nullptr,
                                  .iov_count = 1,
                                  .addr = world.other(),
                                  .rma_iov = &remote,
                                  .rma_iov_count = 1,
                                  .datatype = FI_UINT64,
                                  .op = FI_SUM,
                                  .context = &two,
                                  .data = 4711};
      world.end.until_taken(
          [&] { return fi_atomicmsg(world.end.endpoint, &message, FI_REMOTE_CQ_DATA); });
      EXPECT_EQ(world.end.outcome_of(&two).error, 0);
    } else {
      const FiOutcome outcome = world.end.next();
      EXPECT_EQ(outcome.data, 4711);
      EXPECT_EQ(outcome.flags, FI_ATOMIC | FI_REMOTE_WRITE | FI_REMOTE_CQ_DATA);
      EXPECT_EQ(word, 42);
    }
    world.meet();
  });
}

TEST(FiProviderMemory, AtomicsOfManyProcessesAddUp) {
  constexpr int kRanks = 4;
  constexpr uint64_t kRounds = 200;
  expect_processes_pass(kRanks, [](Rank& rank) {
    World world(rank);
    uint64_t words[2] = {0, 0};
    world.end.share(words, sizeof words, 1);
    world.meet();
    uint64_t largest = 0;
    for (uint64_t i = 0; i < kRounds; ++i) {
      const uint64_t one = 1;
      uint64_t before = 0;
      world.end.until_taken([&] {
        return fi_fetch_atomic(world.end.endpoint, &one, 1, nullptr, &before, nullptr,
                               world.peers[0], 0, 1, FI_UINT64, FI_SUM, &before);
      });
      EXPECT_EQ(world.end.outcome_of(&before).error, 0);
      EXPECT_TRUE(i == 0 || before > largest);
      largest = before;
      uint64_t expected = 0;
      for (uint64_t found = 0;; expected = found) {
        const uint64_t next = expected + 1;
        world.end.until_taken([&] {
          return fi_compare_atomic(world.end.endpoint, &next, 1, nullptr, &expected, nullptr,
                                   &found, nullptr, world.peers[0], 8, 1, FI_UINT64, FI_CSWAP,
                                   &found);
        });
        EXPECT_EQ(world.end.outcome_of(&found).error, 0);
        if (found == expected) break;
      }
    }
    world.meet();
    if (rank.rank() == 0) {
      EXPECT_EQ(words[0], kRanks * kRounds);
      EXPECT_EQ(words[1], kRanks * kRounds);
    }
  });
}

TEST(FiProviderMemory, TheWaitDescriptorBecomesReadable) {
  with_two(
      [](World& world) {
        uint64_t value = 0;
        if (world.first()) {
          world.rank.barrier();
          value = 42;
          must(fi_tinject(world.end.endpoint, &value, sizeof value, world.other(), 1), "inject");
          return;
        }
        must(fi_trecv(world.end.endpoint, &value, sizeof value, nullptr, world.other(), 1, 0,
                      &value),
             "fi_trecv");
        world.rank.barrier();  // unlike meet(), it reads no completion
        int descriptor = -1;
        must(fi_control(&world.end.completions->fid, FI_GETWAIT, &descriptor), "fi_control");
        fid* waited = &world.end.completions->fid;
        while (fi_trywait(world.end.fabric, &waited, 1) == 0) {
          pollfd ready{.fd = descriptor, .events = POLLIN};
          ASSERT_EQ(::poll(&ready, 1, -1), 1);
        }
        EXPECT_EQ(world.end.next().context, &value);
        EXPECT_EQ(value, 42);
      },
      {.wait = FI_WAIT_FD});
}

// Its bytes go through the NIC, for seconds, as over a slow link.
TEST(FiProviderMemory, ARegionThatIsClosedDuringALargeAccessFailsNothingElse) {
  expect_processes_pass(2, [](Rank& rank) {
    constexpr size_t kSize = 32 << 20;
    setenv("PACECAR_LINE_RATE", "150M", 1);
    setenv("PACECAR_EXPERT_CMA", "off", 1);
    std::vector<uint8_t> bytes(kSize);
    World world(rank);
    for (const bool writes : {true, false}) {
      std::ranges::fill(bytes, world.first() ? 1 : 2);
      if (world.first()) {
        world.meet();
        int context = 0;
        world.end.until_taken([&] {
          return writes ? fi_write(world.end.endpoint, bytes.data(), kSize, nullptr, world.other(),
                                   0, 1, &context)
                        : fi_read(world.end.endpoint, bytes.data(), kSize, nullptr, world.other(),
                                  0, 1, &context);
        });
        const int error = world.end.outcome_of(&context).error;
        EXPECT_TRUE(error == 0 || error == FI_ENOKEY) << fi_strerror(error);
        send_tagged(world, pattern(8, 1), 1);
        continue;
      }
      fid_mr* region = nullptr;
      must(fi_mr_reg(world.end.domain, bytes.data(), kSize, FI_REMOTE_WRITE | FI_REMOTE_READ, 0, 1,
                     0, &region, nullptr),
           "fi_mr_reg");
      world.meet();
      const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(5);
      while (writes ? static_cast<volatile uint8_t&>(bytes[0]) == 2
                    : std::chrono::steady_clock::now() < until) {
        world.end.progress();
      }
      EXPECT_EQ(fi_close(&region->fid), 0);
      expect_tagged(world, pattern(8, 1), 1);
    }
    world.meet();
  });
}

// The target makes no libfabric call meanwhile.
TEST(FiProviderMemory, AutomaticProgressAnswersReads) {
  std::vector<uint8_t> shared = pattern(60000, 8);  // outlives its region
  with_two(
      [&shared](World& world) {
        world.end.share(shared.data(), shared.size(), 1);
        world.rank.barrier();
        if (world.first()) {
          std::vector<uint8_t> place(shared.size());
          world.end.until_taken([&] {
            return fi_read(world.end.endpoint, place.data(), place.size(), nullptr, world.other(),
                           0, 1, &place);
          });
          EXPECT_EQ(world.end.outcome_of(&place).error, 0);
          EXPECT_TRUE(place == shared);
        }
        world.rank.barrier();
      },
      {.progress = FI_PROGRESS_AUTO});
}

}  // namespace
}  // namespace pacecar::test::fi_provider_memory_test

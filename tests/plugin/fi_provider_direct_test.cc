// The libfabric provider within a host: small messages go through shared memory, and the receiver
// reads large ones from the sender's memory (cross-memory attach, CMA). Where the kernel forbids
// CMA, large messages go through the NIC.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <string>
#include <vector>

#include "tests/support/fi_world.h"
#include "tests/support/own_network.h"

namespace pacecar::test::fi_provider_direct_test {
namespace {

constexpr uint64_t kSharedKey = 9;
constexpr size_t kLarge = 1'000'003;
constexpr size_t kEager = 100'003;

// A message, a read and a write of `size` bytes; read and write have two pieces at their initiator.
void transfer(World& world, size_t size) {
  std::vector<uint8_t> shared = pattern(size, 21);
  fid_mr* region = nullptr;
  must(fi_mr_reg(world.end.domain, shared.data(), size, FI_REMOTE_READ | FI_REMOTE_WRITE, 0,
                 kSharedKey, 0, &region, nullptr),
       "fi_mr_reg");
  world.meet();
  if (world.first()) {
    send_tagged(world, pattern(size, 20), 1);
    std::vector<uint8_t> bytes(size);
    const iovec pieces[] = {{bytes.data(), size / 3}, {bytes.data() + size / 3, size - size / 3}};
    int context = 0;
    world.end.until_taken([&] {
      return fi_readv(world.end.endpoint, pieces, nullptr, 2, world.other(), 0, kSharedKey,
                      &context);
    });
    EXPECT_EQ(world.end.outcome_of(&context).error, 0);
    EXPECT_TRUE(bytes == pattern(size, 21));
    std::ranges::copy(pattern(size, 22), bytes.begin());
    world.end.until_taken([&] {
      return fi_writev(world.end.endpoint, pieces, nullptr, 2, world.other(), 0, kSharedKey,
                       &context);
    });
    EXPECT_EQ(world.end.outcome_of(&context).error, 0);
  } else {
    expect_tagged(world, pattern(size, 20), 1);
  }
  world.meet();
  EXPECT_TRUE(world.first() || shared == pattern(size, 22));
  fi_close(&region->fid);
}

uint64_t loopback_bytes() {
  std::ifstream devices("/proc/self/net/dev");
  for (std::string line; std::getline(devices, line);) {
    const size_t at = line.find("lo:");
    if (at != std::string::npos) return std::stoull(line.substr(at + 3));
  }
  throw std::runtime_error("there is no loopback");
}

// Checks whether the bytes of ten transfers cross the network, once the processes know whether they
// read each other's memory: the first transfer may begin before. `settings` are the values of
// PACECAR_EXPERT_CMA in the two processes.
void expect_bytes_on_network(std::array<const char*, 2> settings, bool expected,
                             size_t size = kLarge) {
  in_network(enter_own_network, [&] {
    expect_processes_pass(2, [&](Rank& rank) {
      setenv("PACECAR_EXPERT_CMA", settings[static_cast<size_t>(rank.rank())], 1);
      World world(rank);
      transfer(world, size);
      world.meet();
      const uint64_t before = loopback_bytes();
      world.meet();
      for (int i = 0; i < 10; ++i) transfer(world, size);
      world.meet();
      const uint64_t crossed = loopback_bytes() - before;
      EXPECT_EQ(crossed > 30 * size, expected) << crossed;
      EXPECT_EQ(crossed < 3 * size, !expected) << crossed;
    });
  });
}

TEST(FiProviderDirect, BytesWithinAHostDoNotCrossTheNetwork) {
  expect_bytes_on_network({"auto", "auto"}, false);
  expect_bytes_on_network({"auto", "auto"}, false, kEager);
}

TEST(FiProviderDirect, BytesCrossTheNetworkWhereCmaIsOff) {
  expect_bytes_on_network({"off", "off"}, true);
  expect_bytes_on_network({"off", "off"}, true, kEager);
  expect_bytes_on_network({"off", "auto"}, true);
  expect_bytes_on_network({"auto", "off"}, true);
}

// process_vm_readv fails, as in some containers or under a security policy.
void forbid_cross_memory_attach() {
  sock_filter rules[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_process_vm_readv, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EPERM),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog program{.len = std::size(rules), .filter = rules};
  ASSERT_EQ(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
  ASSERT_EQ(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, SECCOMP_FILTER_FLAG_TSYNC, &program), 0);
}

TEST(FiProviderDirect, TransfersSucceedWhereCmaIsForbidden) {
  with_two([](World& world) {
    forbid_cross_memory_attach();
    transfer(world, kLarge);
  });
}

TEST(FiProviderDirect, TransfersSucceedWhereCmaIsForbiddenAtOneSide) {
  with_two([](World& world) {
    if (world.first()) forbid_cross_memory_attach();
    transfer(world, kLarge);
  });
}

// The first message that fails to use CMA arrives as later ones do.
TEST(FiProviderDirect, TransfersSucceedAfterCmaIsForbidden) {
  with_two([](World& world) {
    for (const size_t size : {size_t{70'000}, kLarge}) transfer(world, size);
    forbid_cross_memory_attach();
    for (const size_t size : {size_t{70'000}, kLarge}) transfer(world, size);
  });
}

// A region is closed while a remote write fills it: then its memory is the application's again.
TEST(FiProviderDirect, AClosedRegionIsNotWritten) {
  with_two([](World& world) {
    constexpr size_t kSize = 64 << 20;
    const auto makes_progress = [&] {
      const ssize_t read = fi_cq_read(world.end.completions, nullptr, 0);
      ASSERT_TRUE(read == 0 || read == -FI_EAGAIN) << read;
    };
    send_tagged(world, pattern(8, 1), 1);  // connects both ends
    expect_tagged(world, pattern(8, 1), 1);
    std::vector<uint8_t> bytes(kSize, 1);
    if (world.first()) {
      world.meet();
      int context = 0;
      world.end.until_taken([&] {
        return fi_write(world.end.endpoint, bytes.data(), kSize, nullptr, world.other(), 0,
                        kSharedKey, &context);
      });
      EXPECT_EQ(world.end.outcome_of(&context).error, FI_ENOKEY);
      return;
    }
    std::ranges::fill(bytes, 2);
    fid_mr* region = nullptr;
    must(fi_mr_reg(world.end.domain, bytes.data(), kSize, FI_REMOTE_WRITE, 0, kSharedKey, 0,
                   &region, nullptr),
         "fi_mr_reg");
    world.meet();
    while (static_cast<volatile uint8_t&>(bytes[0]) == 2) makes_progress();
    ASSERT_EQ(fi_close(&region->fid), 0);
    std::ranges::fill(bytes, 3);
    for (int turn = 0; turn < 1000; ++turn) makes_progress();
    EXPECT_EQ(std::ranges::count(bytes, 3), static_cast<ptrdiff_t>(kSize));
  });
}

// An endpoint is closed after it has offered a message: then the message's memory is the
// application's again.
TEST(FiProviderDirect, AClosedEndpointsMessageIsNotReadFromReusedMemory) {
  expect_processes_pass(2, [](Rank& rank) {
    std::vector<uint8_t> bytes = pattern(kLarge, 1);
    std::optional<World> world(rank);
    send_tagged(*world, pattern(8, 1), 1);
    expect_tagged(*world, pattern(8, 1), 1);
    int context = 0;
    if (world->first()) {
      rank.barrier();
      world->end.until_taken([&] {
        return fi_tsend(world->end.endpoint, bytes.data(), kLarge, nullptr, world->other(), 2,
                        &context);
      });
      world.reset();
      std::ranges::fill(bytes, 9);
      return rank.barrier();
    }
    std::vector<uint8_t> place(kLarge);
    world->end.until_taken([&] {
      return fi_trecv(world->end.endpoint, place.data(), kLarge, nullptr, world->other(), 2, 0,
                      &context);
    });
    rank.barrier();
    rank.barrier();
    const bool failed = world->end.outcome_of(&context).error != 0;
    EXPECT_TRUE(failed || place == bytes);
  });
}

TEST(FiProviderDirect, SizesAroundTheCopyLimitsArrive) {
  with_two([](World& world) {
    for (const size_t size :
         {size_t{131071}, size_t{131072}, size_t{131073}, fabric::kEagerBytes - 1,
          fabric::kEagerBytes, fabric::kEagerBytes + 1}) {
      transfer(world, size);
    }
  });
}

}  // namespace
}  // namespace pacecar::test::fi_provider_direct_test

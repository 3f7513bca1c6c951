// The libfabric provider through libfabric itself: calls that it refuses.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <vector>

#include "tests/support/fi_world.h"

namespace pacecar::test::fi_provider_refusals_test {
namespace {

TEST(FiProviderRefusals, MoreThanCanBeInjectedIsRefused) {
  expect_processes_pass(1, [](Rank&) {
    FiEnd end;
    const fi_addr_t self = end.add(end.name().data());
    std::vector<uint8_t> bytes(end.info()->tx_attr->inject_size + 1);
    iovec iov{bytes.data(), bytes.size()};
    const fi_msg message{.msg_iov = &iov, .iov_count = 1, .addr = self};
    EXPECT_EQ(fi_sendmsg(end.endpoint, &message, FI_INJECT), -FI_EMSGSIZE);
    --iov.iov_len;
    EXPECT_EQ(fi_sendmsg(end.endpoint, &message, FI_INJECT), 0);
  });
}

// A forked child shares its parent's sockets and memory, but may open an endpoint of its own.
bool is_refused_in_a_child(World& world) {
  FiEnd& end = world.end;
  uint64_t word = 0;
  fid_mr* region = nullptr;
  fid* waited = &end.completions->fid;
  const bool refused =
      fi_tinject(end.endpoint, &word, sizeof word, world.other(), 1) == -FI_EOTHER &&
      fi_cq_read(end.completions, nullptr, 0) == -FI_EOTHER &&
      fi_cntr_add(end.sent, 1) == -FI_EOTHER && fi_trywait(end.fabric, &waited, 1) == -FI_EOTHER &&
      fi_mr_reg(end.domain, &word, sizeof word, FI_REMOTE_READ, 0, 1, 0, &region, nullptr) ==
          -FI_EOTHER &&
      fi_close(&end.endpoint->fid) == -FI_EOTHER && fi_close(&end.domain->fid) == -FI_EOTHER;
  FiEnd own;
  const fi_addr_t self = own.add(own.name().data());
  own.until_taken([&] { return fi_tinject(own.endpoint, &self, sizeof self, self, 1); });
  own.until_taken([&] {
    return fi_trecv(own.endpoint, &word, sizeof word, nullptr, FI_ADDR_UNSPEC, 1, 0, &word);
  });
  return refused && own.outcome_of(&word).error == 0 && word == self;
}

TEST(FiProviderRefusals, AForkedChildIsRefusedAndDisturbsNothing) {
  with_two([](World& world) {
    const auto exchange = [&] {
      if (world.first()) send_tagged(world, pattern(100, 1), 1);
      expect_tagged(world, pattern(100, 1), 1);
      if (!world.first()) send_tagged(world, pattern(100, 1), 1);
    };
    exchange();
    const pid_t child = fork();
    if (child == 0) _exit(is_refused_in_a_child(world) ? 0 : 1);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
    exchange();
  });
}

}  // namespace
}  // namespace pacecar::test::fi_provider_refusals_test

// Ranks that share no kind of network: software NICs of two processes, each in one wire mode only,
// as PACECAR_WIRE is set per process.
//
// Needs UDP port 4791 of the loopback for itself: support/with_nics 0 gives it one.
#include <cstdlib>

#include "tests/plugin/plugin_test.h"

namespace pacecar::test::networks_test {
namespace {

using nccl::LogSeverity;
using nccl::NcclResult;

TEST(PluginNetworks, RefusalNamesTheNetworksOfBothRanks) {
  if (std::getenv("WITH_NICS_INSIDE") == nullptr) {
    GTEST_SKIP() << "run it by tests/support/with_nics 0";
  }
  expect_processes_pass(2, [](Rank& rank) {
    setenv("PACECAR_WIRE", rank.rank() == 0 ? "roce" : "extended", 1);
    const auto host = start_host();
    if (rank.rank() == 0) {
      const Listening listening = host->listen();
      rank.give(1, listening.handle);
      poll_until("the refusal", [&] {
        EXPECT_EQ(host->try_accept(listening.comm), nullptr);
        return was_logged(LogSeverity::kWarn, "a connection is refused: ");
      });
      // The peer gets the refusal only while this rank accepts.
      rank.barrier();
      host->close_listen(listening.comm);
    } else {
      HandleBytes handle = rank.take(0);
      void* comm = nullptr;
      nccl::DeviceHandle* device = nullptr;
      NcclResult result = NcclResult::kSuccess;
      poll_until("the refusal", [&] {
        result = host->net().connect(host->context(), 0, handle.data(), &comm, &device);
        EXPECT_EQ(comm, nullptr);
        return result != NcclResult::kSuccess;
      });
      EXPECT_EQ(result, NcclResult::kRemoteError);
      rank.barrier();
    }
    for (const char* part : {"share no kind of network", "has soft:udp:lo (soft), ",
                             "has soft:udp:lo (roce); ", "PACECAR_WIRE"}) {
      EXPECT_TRUE(was_logged(LogSeverity::kWarn, part)) << part;
    }
  });
}

}  // namespace
}  // namespace pacecar::test::networks_test

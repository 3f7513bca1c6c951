// Two NICs as one device, of which one NIC vanishes in the middle of a transfer. (As NCCL makes
// such a device: hints_test.cc.)
//
// Needs two NICs and the right to remove one: support/with_nics provides both. For other NICs,
// PLUGIN_TEST_BREAK is the command that breaks the second.
#include <cstdlib>
#include <vector>

#include "tests/plugin/plugin_test.h"

namespace pacecar::test::bond_test {
namespace {

constexpr size_t kBytes = 400'000;  // of the largest message
constexpr uint64_t kMessages = 300;
constexpr size_t kInFlight = 6;

class PluginBond : public testing::Test {
 protected:
  void SetUp() override {
    if (nic_count() != 2) GTEST_SKIP() << "needs two NICs: run it by tests/support/with_nics 2";
  }
};

size_t size_of(uint64_t message) {
  const size_t spread = message * 7919 % kBytes;
  return message % 5 == 0 ? message % 300 : spread;
}

// A host with one device of two NICs.
std::unique_ptr<FakeNcclHost> start_bonded() {
  std::string names = nic_names();
  std::ranges::replace(names, ',', '+');
  setenv("PACECAR_NICS", names.c_str(), 1);
  setenv("PACECAR_TIMEOUT", "15s", 1);
  auto host = std::make_unique<FakeNcclHost>(kPluginPath);
  host->start();
  return host;
}

// Moves all messages from rank 1 to rank 0; `before(i)` is called before message i is posted.
template <typename Before>
void stream(const FakeNcclHost& host, Rank& rank, int device, Before before) {
  void* const comm = connect_ranks(host, rank, device);
  {
    const Buffer buffer(host, comm, kInFlight * kBytes);
    std::vector<void*> requests(kInFlight);
    for (uint64_t i = 0; i < kMessages + kInFlight; ++i) {
      const size_t slot = i % kInFlight;
      const Part part = buffer.part(slot * kBytes, kBytes);
      if (i >= kInFlight) {
        const uint64_t done = i - kInFlight;
        const int size = host.finish(requests[slot]);
        if (rank.rank() == 0) {
          ASSERT_EQ(static_cast<size_t>(size), size_of(done));
          ASSERT_EQ(find_mismatch(part.data.first(size_of(done)), done), std::nullopt)
              << "message " << done;
        }
      }
      if (i >= kMessages) continue;
      before(i);
      if (rank.rank() == 0) {
        requests[slot] = host.receive(comm, part);
      } else {
        fill_pattern(part.data.first(size_of(i)), i);
        requests[slot] = host.send(comm, {part.data.first(size_of(i)), part.tag, part.memory});
      }
    }
    rank.barrier();
  }
  close_rank(host, rank, comm);
}

TEST_F(PluginBond, TwoNicsFormOneDevice) {
  expect_processes_pass(1, [](Rank&) {
    const auto host = start_bonded();
    EXPECT_EQ(host->device_count(), 1);
    const std::string name = host->properties(0).name;
    EXPECT_NE(name.find('+'), std::string::npos) << name;
  });
}

// If NICs without a path on PCI could be merged, NCCL would merge them, find no path to the merged
// device, and not start.
TEST_F(PluginBond, NicsThatAreNotOnPciAreNotMerged) {
  expect_processes_pass(1, [](Rank&) {
    setenv("PACECAR_NICS", nic_names().c_str(), 1);
    FakeNcclHost host(kPluginPath);
    host.start();
    if (host.net().makeVDevice == nullptr) return;
    ASSERT_EQ(host.properties(0).pci_path, nullptr);
    int device = 0;
    EXPECT_NE(host.net().makeVDevice(&device, {2, {0, 1}}), nccl::NcclResult::kSuccess);
    EXPECT_EQ(host.device_count(), 2);
  });
}

TEST_F(PluginBond, ATransferFinishesOnTheOtherNicWhenOneIsLost) {
  expect_processes_pass(2, [](Rank& rank) {
    const auto host = start_bonded();
    stream(*host, rank, 0, [&](uint64_t message) {
      if (rank.rank() == 0 && message == kMessages / 3) {
        ASSERT_EQ(std::system(setting("PLUGIN_TEST_BREAK", "ip link delete nic1").c_str()), 0);
      }
    });
    EXPECT_TRUE(was_logged(nccl::LogSeverity::kWarn, "is lost")) << "rank " << rank.rank();
  });
}

}  // namespace
}  // namespace pacecar::test::bond_test

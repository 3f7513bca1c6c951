// Two levels: three hosts of two ranks each, and two NICs, each a rail of its own. Ranks of a host
// share memory, as NCCL's do; between hosts the ranks of equal number form a ring per channel, and
// channel c has NIC c.
#include <sys/mman.h>

#include <nlohmann/json.hpp>
#include <numeric>

#include "tests/plugin/plugin_test.h"
#include "tests/plugin/ring.h"
#include "tests/support/scratch_directory.h"
#include "transport/state/state_directory.h"

namespace pacecar::test {
namespace {

constexpr int kHosts = 3;
constexpr int kLocal = 2;
constexpr int kRanks = kHosts * kLocal;
constexpr int kRails = 2;
constexpr size_t kElements = 300'007;

// Where a part begins; channels differ in size, so that their bytes cannot be taken for each other.
size_t channel_begin(int channel) {
  constexpr std::array<size_t, kRails + 1> kBegins = {0, kElements * 2 / 3, kElements};
  return kBegins[static_cast<size_t>(channel)];
}
size_t shard_begin(int channel, int local) {
  const size_t begin = channel_begin(channel);
  return begin + (channel_begin(channel + 1) - begin) * static_cast<size_t>(local) / kLocal;
}

// The memory that the ranks of a host share.
struct HostMemory {
  std::array<std::array<uint32_t, kElements>, kLocal> inputs;
  std::array<uint32_t, kElements> sum;
};

template <typename T>
std::unique_ptr<T, void (*)(T*)> shared() {
  void* const pages =
      mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (pages == MAP_FAILED) throw HostError("mmap failed");
  return {static_cast<T*>(pages), [](T* memory) { munmap(memory, sizeof(T)); }};
}

struct Member {
  Rank& rank;
  int host() const { return rank.rank() / kLocal; }
  int local() const { return rank.rank() % kLocal; }
  // The rank of equal number so many hosts on.
  int peer(int hosts_on) const { return ((host() + hosts_on) % kHosts) * kLocal + local(); }
};

Ring join_ring(FakeNcclHost& plugin, const Member& member, int device) {
  const Listening listening = plugin.listen(device);
  member.rank.give(member.peer(kHosts - 1), listening.handle);
  HandleBytes handle = member.rank.take(member.peer(1));
  Ring ring{plugin, nullptr, nullptr, member.host(), kHosts};
  poll_until("the ring", [&] {
    if (ring.send == nullptr) ring.send = plugin.try_connect(handle, device);
    if (ring.receive == nullptr) ring.receive = plugin.try_accept(listening.comm);
    return ring.send != nullptr && ring.receive != nullptr;
  });
  plugin.close_listen(listening.comm);
  return ring;
}

// This rank's shard of a channel: summed inside the host, then between the hosts. Returns the bytes
// that it has sent.
uint64_t reduce_shard(FakeNcclHost& plugin, const Member& member, HostMemory& memory, int channel) {
  const Ring ring = join_ring(plugin, member, channel);
  const size_t begin = shard_begin(channel, member.local());
  const size_t size = shard_begin(channel, member.local() + 1) - begin;
  uint64_t sent = 0;
  {
    const Buffer data(plugin, ring.send, size * 4);
    const Buffer scratch(plugin, ring.receive, size * 4);
    const std::span<uint32_t> own = as_elements(data);
    for (size_t i = 0; i < size; ++i) {
      own[i] = 0;
      for (const auto& input : memory.inputs) own[i] += input[begin + i];
    }
    sent = ring_all_reduce(ring, data, scratch);
    std::copy(own.begin(), own.end(), memory.sum.begin() + static_cast<std::ptrdiff_t>(begin));
    member.rank.barrier();
  }
  plugin.close_send(ring.send);
  plugin.close_receive(ring.receive);
  return sent;
}

// What each NIC of this process has sent, as the process tells of itself.
std::vector<uint64_t> bytes_sent(const std::string& state_directory) {
  const StateDirectory directory = StateDirectory::find(state_directory).value();
  const auto told = nlohmann::json::parse(
      directory.read(directory.sockets().at(0), Duration::from_s(60)).value());
  std::vector<uint64_t> bytes;
  for (const auto& nic : told["nics"]) bytes.push_back(nic["statistics"]["bytes_sent"]);
  return bytes;
}

void two_level_all_reduce(Rank& rank, HostMemory& memory, const std::string& state_directory) {
  setenv("PACECAR_STATE_DIR", state_directory.c_str(), 1);
  const auto plugin = start_host();
  ASSERT_EQ(plugin->device_count(), kRails) << "PLUGIN_TEST_NICS must name two NICs";
  const Member member{rank};
  auto& input = memory.inputs[static_cast<size_t>(member.local())];
  for (size_t i = 0; i < kElements; ++i) input[i] = element(rank.rank(), i);
  rank.barrier();

  std::vector<uint64_t> sent;
  for (int channel = 0; channel < kRails; ++channel) {
    sent.push_back(reduce_shard(*plugin, member, memory, channel));
  }
  rank.barrier();
  size_t wrong = 0;
  for (size_t i = 0; i < kElements; ++i) {
    uint32_t expected = 0;
    for (int r = 0; r < kRanks; ++r) expected += element(r, i);
    wrong += memory.sum[i] != expected;
  }
  EXPECT_EQ(wrong, 0U) << "rank " << rank.rank();
  EXPECT_EQ(bytes_sent(state_directory), sent) << "each channel over its own NIC";
  rank.barrier();
}

TEST(Rails, RingsBetweenHostsPerChannelAndNic) {
  const ScratchDirectory scratch;
  const auto memory = shared<std::array<HostMemory, kHosts>>();
  expect_processes_pass(kRanks, [&](Rank& rank) {
    two_level_all_reduce(rank, (*memory)[static_cast<size_t>(Member{rank}.host())],
                         scratch.path() / std::to_string(rank.rank()));
  });
}

}  // namespace
}  // namespace pacecar::test

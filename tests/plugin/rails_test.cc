// A two-level all-reduce: three hosts of two ranks each, and two NICs, each a rail of its own.
// Ranks of a host share memory, as NCCL's do. Between hosts the ranks of equal local number form a
// ring per channel, and channel c uses NIC c.
#include <sys/mman.h>

#include <functional>
#include <nlohmann/json.hpp>

#include "tests/plugin/mesh.h"
#include "tests/plugin/plugin_test.h"
#include "tests/support/read_state.h"
#include "tests/support/scratch_directory.h"

namespace pacecar::test::rails_test {
namespace {

constexpr size_t kHosts = 3;
constexpr size_t kLocal = 2;
constexpr size_t kRanks = kHosts * kLocal;
constexpr size_t kRails = 2;
constexpr size_t kElements = 300'007;

uint32_t element(size_t rank, size_t index) {
  return static_cast<uint32_t>(index) * 2'654'435'761U + static_cast<uint32_t>(rank) * 97U;
}

// Channels differ in size, so that one channel's bytes cannot pass for the other channel's bytes.
Elements channel_of(Elements all, size_t channel) {
  constexpr size_t kFirst = kElements * 2 / 3;
  return channel == 0 ? all.first(kFirst) : all.subspan(kFirst);
}
// The part of a channel that rank `local` of a host reduces.
Elements shard_of(Elements all, size_t channel, size_t local) {
  return part_of(channel_of(all, channel), local, kLocal);
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

// A ring over the hosts for each channel, among the ranks of one local number. All channels run at
// once.
class Rings {
 public:
  Rings(Mesh& mesh, size_t host, size_t local) : mesh_(mesh), host_(host), local_(local) {}

  void all_reduce() {
    for (size_t i = 0; i + 1 < kHosts; ++i) {  // reduce-scatter
      step(host_ + kHosts - i, [](uint32_t own, uint32_t in) { return own + in; });
    }
    for (size_t i = 0; i + 1 < kHosts; ++i) {  // all-gather
      step(host_ + kHosts - i + 1, [](uint32_t, uint32_t in) { return in; });
    }
  }
  // By channel.
  const std::vector<uint64_t>& bytes_sent() const { return sent_; }

 private:
  // Sends one part of each shard to the next host, and merges the part that arrives.
  template <typename Merge>
  void step(size_t out, Merge merge) {
    const auto part = [this](Elements all, size_t channel, size_t index) {
      return part_of(shard_of(all, channel, local_), index % kHosts, kHosts);
    };
    const size_t in = out + kHosts - 1;
    const auto peer = [this](size_t host) {
      return static_cast<int>(host % kHosts * kLocal + local_);
    };
    for (size_t channel = 0; channel < kRails; ++channel) {
      const Elements leaving = part(mesh_.data(), channel, out);
      mesh_.send(peer(host_ + 1), leaving, channel);
      mesh_.receive(peer(host_ + kHosts - 1), part(mesh_.inbox(), channel, in), channel);
      sent_[channel] += leaving.size_bytes();
    }
    mesh_.run();
    for (size_t channel = 0; channel < kRails; ++channel) {
      const Elements own = part(mesh_.data(), channel, in);
      const Elements arrived = part(mesh_.inbox(), channel, in);
      std::transform(own.begin(), own.end(), arrived.begin(), own.begin(), merge);
    }
  }

  Mesh& mesh_;
  const size_t host_;
  const size_t local_;
  std::vector<uint64_t> sent_ = std::vector<uint64_t>(kRails);
};

// The bytes that each NIC of this process has sent, as its state document reports them.
std::vector<uint64_t> bytes_sent(const std::string& state_directory) {
  const StateDirectory directory = StateDirectory::find(state_directory).value();
  const auto state =
      nlohmann::json::parse(read_state(directory, directory.sockets().at(0)).value());
  std::vector<uint64_t> bytes;
  for (const auto& nic : state["nics"]) bytes.push_back(nic["statistics"]["bytes_sent"]);
  return bytes;
}

void two_level_all_reduce(Rank& rank, HostMemory& memory, const std::string& state_directory) {
  const auto number = static_cast<size_t>(rank.rank());
  const size_t local = number % kLocal;
  setenv("PACECAR_STATE_DIR", state_directory.c_str(), 1);
  const auto plugin = start_host();
  ASSERT_EQ(plugin->device_count(), static_cast<int>(kRails)) << "PLUGIN_TEST_NICS: two NICs";
  Mesh mesh(*plugin, rank, kElements);
  for (size_t i = 0; i < kElements; ++i) memory.inputs[local][i] = element(number, i);
  rank.barrier();

  for (size_t channel = 0; channel < kRails; ++channel) {  // reduce-scatter inside the host
    Elements sum = shard_of(mesh.data(), channel, local);
    std::fill(sum.begin(), sum.end(), 0);
    for (auto& input : memory.inputs) {
      const Elements own = shard_of(input, channel, local);
      std::transform(sum.begin(), sum.end(), own.begin(), sum.begin(), std::plus<>());
    }
  }
  Rings rings(mesh, number / kLocal, local);
  rings.all_reduce();
  for (size_t channel = 0; channel < kRails; ++channel) {  // all-gather inside the host
    const Elements own = shard_of(mesh.data(), channel, local);
    std::copy(own.begin(), own.end(), shard_of(memory.sum, channel, local).begin());
  }
  rank.barrier();

  size_t wrong = 0;
  for (size_t i = 0; i < kElements; ++i) {
    uint32_t expected = 0;
    for (size_t r = 0; r < kRanks; ++r) expected += element(r, i);
    wrong += memory.sum[i] != expected;
  }
  EXPECT_EQ(wrong, 0U) << "rank " << number;
  EXPECT_EQ(bytes_sent(state_directory), rings.bytes_sent()) << "each channel uses its own NIC";
  rank.barrier();
}

TEST(Rails, EachChannelUsesItsOwnNic) {
  const ScratchDirectory scratch;
  const auto memory = shared<std::array<HostMemory, kHosts>>();
  expect_processes_pass(kRanks, [&](Rank& rank) {
    const auto number = static_cast<size_t>(rank.rank());
    two_level_all_reduce(rank, (*memory)[number / kLocal], scratch.path() / std::to_string(number));
  });
}

}  // namespace
}  // namespace pacecar::test::rails_test

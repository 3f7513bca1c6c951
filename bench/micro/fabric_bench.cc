// How many events per second the bare simulated fabric runs: a permutation at line rate of hosts
// that only send datagrams and read them, each on all of its paths in turn.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <array>
#include <deque>
#include <memory>
#include <numeric>
#include <vector>

#include "transport/base/prng.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric.h"
#include "transport/sim/topologies.h"

namespace pacecar {
namespace {

constexpr std::array<uint8_t, 64> kHeader = {};
constexpr std::array<uint8_t, 4> kTrailer = {};
constexpr size_t kPayload = 4086;

// Sends whenever there is room and reads whenever something arrives.
class Blaster final : public EventSink {
 public:
  Blaster(Fabric& fabric, uint32_t host, uint32_t to) : port_(fabric.port(host)) {
    fabric.set_listener(host, *this, 0);
    for (TxPacket& packet : burst_) {
      packet = {.header = kHeader,
                .payload = {kHeader.data(), kPayload},  // carried as a length: nobody reads it
                .trailer = kTrailer,
                .destination = &fabric.address(to)};
    }
  }

  void on_event(Instant now, uint32_t) override {
    while (port_.receive(received_, now) > 0) {
    }
    size_t taken = 0;
    do {
      for (TxPacket& packet : burst_) packet.path = path_++ % port_.caps().paths;
      taken = port_.send(burst_, now);
      path_ = static_cast<uint16_t>(path_ - (burst_.size() - taken));
    } while (taken == burst_.size());
  }

 private:
  PacketIo& port_;
  std::array<TxPacket, 4> burst_;
  std::array<RxPacket, 16> received_;
  uint16_t path_ = 0;
};

Topology topology(uint32_t hosts) {
  const CableSpec cable{.rate = Rate::from_gbps(400)};
  if (hosts > 1024) {
    return make_fat_tree({.pods = hosts / 256,
                          .leaves_per_pod = 16,
                          .hosts_per_leaf = 16,
                          .aggregations_per_pod = 16,
                          .cores_per_aggregation = 16,
                          .cable = cable,
                          .leaf_uplink = cable,
                          .core_uplink = cable})
        .value();
  }
  return make_leaf_spine(
             {.hosts = hosts, .hosts_per_leaf = 16, .spines = 16, .cable = cable, .uplink = cable})
      .value();
}

void permutation(benchmark::State& state) {
  const auto hosts = static_cast<uint32_t>(state.range(0));
  EventLoop loop;
  FabricConfig config;
  config.switches = {.queue_bytes = 419'150, .trimming = true};
  config.hosts.data_queue_bytes = 16'600;
  auto fabric = Fabric::create(loop, topology(hosts), config, 1).value();

  std::vector<uint32_t> to(hosts);
  std::iota(to.begin(), to.end(), 0U);
  Prng random(1);
  for (uint32_t i = hosts; i > 1; --i) std::swap(to[i - 1], to[random.below(i)]);
  std::deque<Blaster> blasters;
  for (uint32_t host = 0; host < hosts; ++host) {
    blasters.emplace_back(*fabric, host, to[host]).on_event(loop.now(), 0);
  }
  loop.run_until(Instant() + Duration::from_us(10));  // until the fabric is full
  const uint64_t before = loop.events();
  const uint64_t delivered = fabric->counters().delivered;
  for (auto _ : state) {
    for (int i = 0; i < 1000; ++i) loop.run_one();
  }
  const auto per_second = benchmark::Counter::kIsRate;
  state.counters["events"] = {static_cast<double>(loop.events() - before), per_second};
  state.counters["packets"] = {static_cast<double>(fabric->counters().delivered - delivered),
                               per_second};
}
BENCHMARK(permutation)->Arg(128)->Arg(1024)->Arg(8192)->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace pacecar

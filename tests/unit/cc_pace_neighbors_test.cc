// Processes of `pace` behind one link that do not know each other, whatever they were told of it.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <string>
#include <vector>

#include "tests/support/pace_network.h"

namespace pacecar {
namespace {

using testing::PaceNetwork;
using testing::PaceNetworkConfig;

constexpr Bytes kEndless = Bytes{1} << 40;

// --- a link of 500 Mb/s between virtual machines, and one of 400 Gb/s in a cluster ---

Rate mbps(uint64_t value) { return Rate::from_bps(value * 1'000'000); }

FlowEnvironment virtual_machine(Rate told, Rate first = {}) {
  return {.line_rate = told,
          .mtu = 4096,
          .overhead = 104,
          .burst_bytes = 61440,
          .base_rtt = Duration::from_us(100),
          .jitter = Duration::from_us(100),
          .pause = Duration::from_ms(25),
          .first_rate = first};
}

FlowEnvironment cluster(Rate told) {
  FlowEnvironment environment = PaceNetworkConfig().environment;
  environment.line_rate = told;
  return environment;
}

struct Case {
  std::string name;
  FlowEnvironment environment;
  Rate link;
};

double jain(const std::vector<double>& rates) {
  const double sum = std::accumulate(rates.begin(), rates.end(), 0.0);
  double squares = 0;
  for (const double rate : rates) squares += rate * rate;
  return sum * sum / (static_cast<double>(rates.size()) * squares);
}
double sum(const std::vector<double>& rates) {
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

PaceNetwork neighbors(uint32_t n, const Case& c) {
  PaceNetwork network({.environment = c.environment, .hosts = 2 * n, .hosts_per_link = n, .link_rate = c.link});
  for (uint32_t i = 0; i < n; ++i) network.connect(n + i, i);
  return network;
}

TEST(X, Y) {
  std::vector<Case> cases = {{"right", virtual_machine(mbps(500)), mbps(500)},
      {"double", virtual_machine(mbps(1000)), mbps(500)},
      {"untold", virtual_machine(Rate::from_gbps(100), Rate::from_gbps(1)), mbps(500)},
      {"400 right", cluster(Rate::from_gbps(400)), Rate::from_gbps(400)},
      {"400 double", cluster(Rate::from_gbps(800)), Rate::from_gbps(400)}};
  for (const Case& c : cases) for (uint32_t n : {1U, 2U, 4U, 8U, 16U}) {
    const bool fast = c.link > Rate::from_gbps(1);
    PaceNetwork network = neighbors(n, c);
    for (uint32_t i = 0; i < n; ++i) network.post(i, kEndless);
    const auto link = static_cast<double>(c.link.bps());
    std::printf("%s %u:", c.name.c_str(), n);
    for (int k = 0; k < 4; ++k) {
      auto r = network.measure(fast ? Duration::from_us(1000) : Duration::from_ms(300));
      const Bytes q = network.take_queue(0);
      std::printf(" [jain %.3f use %.3f q %.0f us]", jain(r), sum(r) / link, c.link.time_for(q).us());
    }
    for (int k = 0; k < 4; ++k) {
      if (fast) break;
      network.set_link_rate(k % 2 == 0 ? mbps(100) : mbps(500));
      auto r0 = network.measure(Duration::from_ms(200));
      auto r = network.measure(Duration::from_ms(100));
      const Bytes q = network.take_queue(0);
      std::printf(" {%s jain %.3f use %.3f->%.3f q %.0f us}", k % 2 == 0 ? "100" : "500", jain(r), sum(r0) / (k % 2 == 0 ? 1e8 : 5e8), sum(r) / (k % 2 == 0 ? 1e8 : 5e8), (k % 2 == 0 ? mbps(100) : mbps(500)).time_for(q).us());
    }
    std::printf("\n");
    std::fflush(stdout);
  }
}

}  // namespace
}  // namespace pacecar

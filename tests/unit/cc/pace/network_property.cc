// Senders to one receiver under `pace`, with control words delayed, lost and repeated at random:
// rates converge to max-min rates, and no flow starves meanwhile.
#include <gtest/gtest.h>
#include <rapidcheck.h>
#include <rapidcheck/gtest.h>

#include <vector>

#include "tests/support/max_min_reference.h"
#include "tests/support/pace_network.h"

namespace pacecar::network_property {
namespace {

using test::max_min_reference;
using test::MaxMinFlow;
using test::PaceNetwork;
using test::PaceNetworkConfig;

constexpr Duration kRoundTrip = Duration::from_us(8);
constexpr Bytes kEndless = Bytes{1} << 40;

RC_GTEST_PROP(CcPaceNetworkProperty, RatesConvergeAndNoFlowStarves, ()) {
  const auto senders = *rc::gen::inRange<uint32_t>(1, 13);
  PaceNetworkConfig config{.hosts = senders + 1};
  config.words_lost = *rc::gen::inRange(0, 30) / 100.0;
  config.words_repeated = *rc::gen::inRange(0, 30) / 100.0;
  config.words_late = Duration::from_ns(*rc::gen::inRange(0, 8000));
  config.seed = *rc::gen::arbitrary<uint64_t>();
  PaceNetwork network(config);
  std::vector<MaxMinFlow> flows;
  for (uint32_t source = 1; source <= senders; ++source) {
    const auto weight = *rc::gen::element<uint32_t>(1, 1, 1, 2, 4);
    flows.push_back({source, 0, static_cast<double>(weight)});
    network.post(network.connect(source, 0, weight), kEndless);
    network.run(Duration::from_ns(*rc::gen::element(0, 0, 1000, 20'000)));
  }
  const std::vector<double> expected =
      max_min_reference(flows, config.hosts, 400e9, PaceConstants{}.shared);
  network.run(kRoundTrip * 10);
  // Each measurement is longer than a grant's validity: a flow whose repeated grants are all lost
  // slows down until the next one.
  for (int i = 0; i < 3; ++i) {
    const std::vector<double> rates = network.measure(kRoundTrip * 30);
    for (size_t f = 0; f < flows.size(); ++f) RC_ASSERT(rates[f] >= 0.5 * expected[f]);
  }
  const std::vector<double> rates = network.measure(kRoundTrip * 60);
  for (size_t f = 0; f < flows.size(); ++f) {
    RC_ASSERT(rates[f] >= 0.96 * expected[f]);
    RC_ASSERT(rates[f] <= 1.04 * expected[f]);
  }
}

}  // namespace
}  // namespace pacecar::network_property

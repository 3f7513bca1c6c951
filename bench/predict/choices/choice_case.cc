#include "bench/predict/choices/choice_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <span>

#include "bench/sim/spec_file.h"
#include "bench/sim/spec_value.h"
#include "net_plugin/tuner/facts.h"
#include "transport/base/prng.h"
#include "transport/base/return_if_error.h"

namespace pacecar::predict {
namespace {

template <typename T, size_t kCount>
T one_of(Prng& prng, const std::array<T, kCount>& choices) {
  return choices[prng.below(choices.size())];
}

double uniform(Prng& prng) { return static_cast<double>(prng.below(1'000'000)) * 1e-6; }

// nccl_costs() as far as messages can play it: chunks go whole, and at the link's rate.
LibraryCosts assumed_costs() {
  LibraryCosts costs = nccl_costs();
  for (ProtocolCosts& protocol : costs.protocols) {
    protocol.slices = 1;
    protocol.rate_share = 1;
  }
  return costs;
}

LibraryCosts real_costs(Prng& prng, double error) {
  LibraryCosts costs = assumed_costs();
  for (ProtocolCosts& protocol : costs.protocols) {
    protocol.step_s *= std::pow(error, 2 * uniform(prng) - 1);
  }
  return costs;
}

struct Network {
  uint32_t hosts = 8;
  uint32_t per_leaf = 8;
  uint32_t nics = 1;
  uint32_t oversubscription = 1;
  uint32_t gbps = 25;
  Duration delay;
};

Network draw_network(Prng& prng, const ChoiceLimits& limits, ChoiceCase& drawn) {
  constexpr std::array<uint32_t, 4> kHosts{8, 16, 32, 64};
  constexpr std::array<uint32_t, 2> kOver{2, 4};
  constexpr std::array<uint32_t, 2> kFast{25, 100};
  constexpr std::array<int64_t, 3> kDelays{500, 1000, 2000};
  Network network;
  do network.hosts = one_of(prng, kHosts);
  while (network.hosts > limits.hosts);
  network.delay = Duration::from_ns(one_of(prng, kDelays));
  network.per_leaf = network.hosts / 2 < 8 ? 4 : 8;
  switch (prng.below(3)) {
    case 0:
      drawn.fabric = "Ethernet at 25G";
      break;
    case 1:
      drawn.fabric = "two rails";
      network.nics = 2;
      network.gbps = one_of(prng, kFast);
      break;
    default:
      drawn.fabric = "oversubscribed";
      network.oversubscription = one_of(prng, kOver);
      network.gbps = one_of(prng, kFast);
  }
  return network;
}

// The simulator's defaults for what is not named.
Result<RunSpec> run_of(const Network& network, Bytes mtu, uint64_t seed) {
  const std::string shape =
      network.nics > 1
          ? fmt::format(
                "kind = \"rail\"\nservers = {}\ngpus_per_server = {}\nservers_per_leaf = {}",
                network.hosts, network.nics, network.per_leaf)
          : fmt::format("kind = \"leaf-spine\"\nhosts = {}\nhosts_per_leaf = {}", network.hosts,
                        network.per_leaf);
  const std::string text = fmt::format(
      "[topology]\n{}\nspines = {}\nrate = \"{}G\"\ndelay = \"{}ns\"\n"
      "[transport]\nmtu = {}\nburst = {}\n"
      "[workload]\nkind = \"pairs\"\n"
      "[run]\nseed = {}\ntime_limit = \"100s\"\nsample_series = 0\n",
      shape, network.per_leaf / network.oversubscription, network.gbps, network.delay.ns(), mtu,
      mtu, seed);
  ASSIGN_OR_RETURN(const auto spec, parse_spec(text, "case"));
  return make_run_spec(spec->table(), "");
}

// What the plugin would find: the NICs.
tuner::Facts facts_of(const Network& network, Bytes mtu) {
  tuner::Facts facts{
      .ranks = network.hosts, .nodes = network.hosts, .nics = {}, .ranks_per_nvlink_domain = {}};
  facts.nics.resize(network.nics, {.name = fmt::format("{}G", network.gbps),
                                   .rate = bytes_per_s(network.gbps),
                                   .packet_bytes = static_cast<double>(mtu)});
  return facts;
}

}  // namespace

Result<ChoiceCase> draw_choice(uint64_t seed, const ChoiceLimits& limits) {
  Prng prng(seed);
  ChoiceCase drawn;
  const Network network = draw_network(prng, limits, drawn);
  constexpr std::array kFunctions{nccl::TunedFunction::kAllReduce, nccl::TunedFunction::kAllReduce,
                                  nccl::TunedFunction::kAllGather,
                                  nccl::TunedFunction::kReduceScatter,
                                  nccl::TunedFunction::kBroadcast};
  drawn.function = one_of(prng, kFunctions);
  constexpr double kSmallest = 8e3;
  const double largest = static_cast<double>(limits.bytes);
  drawn.bytes = static_cast<Bytes>(kSmallest * std::pow(largest / kSmallest, uniform(prng)));
  drawn.hosts = network.hosts;
  drawn.nics = network.nics;
  drawn.nic_rate = bytes_per_s(network.gbps);
  drawn.nccl = {.hosts = network.hosts, .nics = network.nics, .nic_gb_per_s = network.gbps / 8.0};
  drawn.assumed = assumed_costs();
  drawn.real = real_costs(prng, limits.cost_error);

  // Larger packets for larger messages, so that a case costs about as many.
  const Bytes mtu = drawn.bytes * network.hosts > 50'000'000 ? 16384 : 4096;
  ASSIGN_OR_RETURN(drawn.run, run_of(network, mtu, seed));

  tuner::Facts facts = facts_of(network, mtu);
  ASSIGN_OR_RETURN(drawn.known, tuner::clusters_of(facts));
  facts.oversubscription = network.oversubscription;
  facts.hosts_per_leaf = network.per_leaf;
  facts.cable_delay_s = network.delay.seconds();
  drawn.told = std::move(*tuner::clusters_of(facts));
  drawn.name = fmt::format("{}: {} hosts, {} Gb/s, {}:1, {} ns, {:.3g} MB", drawn.fabric,
                           network.hosts, network.gbps, network.oversubscription,
                           network.delay.ns(), static_cast<double>(drawn.bytes) * 1e-6);
  return drawn;
}

}  // namespace pacecar::predict

#include "tests/sim/choices/choice_case.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

#include "bench/sim/spec_file.h"
#include "bench/sim/spec_value.h"
#include "net_plugin/tuner/tuner.h"
#include "transport/base/prng.h"
#include "transport/base/return_if_error.h"

namespace pacecar::predict {
namespace {

using nccl::TunedAlgorithm;
using nccl::TunedFunction;
using nccl::TunedProtocol;
using ByProtocol = std::array<double, nccl::kTunedProtocols>;  // LL, LL128, Simple

// Times of NCCL's model are in microseconds, rates in GB/s.
constexpr ByProtocol kTreeBase{6.8, 14.0, 8.4};
constexpr ByProtocol kRingBase{6.6, 14.0, 8.4};
constexpr ByProtocol kPatBase{8.0, 8.0, 8.0};
constexpr ByProtocol kTreeNet{5.0, 8.5, 14.0};  // of one step over the network
constexpr ByProtocol kRingNet{2.7, 4.0, 14.0};
constexpr double kPatNet = 14.0;
constexpr double kLlMost = 20.4;  // Intel, more than two hosts
constexpr double kRingLl128PerChannel = 20.0;
constexpr double kTreeLl128PerChannel = 20.0;
constexpr double kTreePerChannel = 17.8;
constexpr double kTreePattern = 0.85;  // of hosts with one GPU, whose trees are not balanced
constexpr double kPlateau = 1.4;  // factor of a ring's latency from 64 bytes per channel and rank

// By size, in powers of two from 64 bytes.
using Correction = std::array<double, 23>;
constexpr std::array<Correction, nccl::kTunedProtocols> kTreeCorrection{
    Correction{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    Correction{1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    Correction{.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
               .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}};

// The largest rate within the NIC's rate that NCCL's search for channels tries
// (src/graph/search.cc).
double channel_rate(double nic) {
  constexpr std::array kRates{48.0, 30.0, 28.0, 24.0, 20.0, 18.0, 15.0, 12.0, 10.0, 9.0,
                              7.0,  6.0,  5.0,  4.0,  3.0,  2.4,  1.2,  0.24, 0.12};
  const auto found = std::find_if(kRates.begin(), kRates.end(), [&](double r) { return r <= nic; });
  return found == kRates.end() ? kRates.back() : *found;
}

double log2_floor(uint32_t n) { return std::bit_width(n) - 1; }

struct Cost {
  double rate = 0;  // bytes of the buffer, GB/s
  double latency_us = 0;
};

Cost ring(const ChoiceNetwork& network, TunedFunction function, size_t protocol, Bytes bytes) {
  const double n = network.hosts;
  const double channels = network.nics;
  double bus = channels * channel_rate(network.gbps / 8.0);
  if (protocol == 0) bus = std::min(kLlMost, bus / 2);
  if (protocol == 1) bus = std::min(bus * 0.92, channels * kRingLl128PerChannel);
  const bool all_reduce = function == TunedFunction::kAllReduce;
  const bool along = function == TunedFunction::kBroadcast || function == TunedFunction::kReduce;
  const double steps = all_reduce ? 2 * (n - 1) : along ? n : n - 1;
  // With one rank per host a step of a ring costs as much as one of a tree. A step of a chain costs
  // as much as one of a ring, except with Simple.
  const double step = along && protocol != 2 ? kRingNet[protocol] : kTreeNet[protocol];
  double latency = kRingBase[protocol] + steps * step;
  const double per_rank = static_cast<double>(bytes) / (2 * channels * n);
  if (protocol == 2 && all_reduce && per_rank >= 64) latency *= kPlateau;
  return {bus * n / steps, latency};
}

Cost tree(const ChoiceNetwork& network, size_t protocol, Bytes bytes) {
  const double channels = network.nics;
  double bus =
      std::min(channels * channel_rate(network.gbps / 8.0) * 0.92, channels * kTreePerChannel);
  if (protocol == 0) bus = std::min(bus / 3.8, kLlMost);
  if (protocol == 1) bus = std::min(bus * 120 / 128, channels * kTreeLl128PerChannel);
  bus *= kTreePattern;
  const auto size = static_cast<size_t>(std::bit_width(std::max<Bytes>(bytes >> 6, 1)) - 1);
  const Correction& correction = kTreeCorrection[protocol];
  const double share = size < correction.size() ? correction[size] : 1;
  return {bus / 2 * share,
          kTreeBase[protocol] + 2 * log2_floor(network.hosts) * kTreeNet[protocol]};
}

Cost pat(const ChoiceNetwork& network, size_t protocol) {
  const double bus = network.nics * channel_rate(network.gbps / 8.0) * 0.75;
  return {bus,
          kPatBase[protocol] + log2_floor(network.hosts) * kPatNet / 3.5 + network.hosts * 2.8};
}

template <typename T, size_t kCount>
T one_of(Prng& prng, const std::array<T, kCount>& choices) {
  return choices[prng.below(choices.size())];
}

double uniform(Prng& prng) { return static_cast<double>(prng.below(1'000'000)) * 1e-6; }

void draw_network(Prng& prng, const ChoiceLimits& limits, ChoiceCase& drawn) {
  constexpr std::array<uint32_t, 4> kHosts{8, 16, 32, 64};
  constexpr std::array<uint32_t, 2> kOver{2, 4};
  constexpr std::array<uint32_t, 2> kFast{25, 100};
  constexpr std::array<int64_t, 3> kDelays{500, 1000, 2000};
  ChoiceNetwork& network = drawn.network;
  do network.hosts = one_of(prng, kHosts);
  while (network.hosts > limits.hosts);
  network.delay = Duration::from_ns(one_of(prng, kDelays));
  network.per_leaf = network.hosts / 2 < 8 ? 4 : 8;
  switch (prng.below(3)) {
    case 0: drawn.fabric = "Ethernet at 25G"; break;
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
}

Result<RunSpec> run_of(const ChoiceNetwork& network, Bytes mtu, uint64_t seed) {
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
  return make_run_spec(*spec.table(), "");
}

// What the plugin finds: the NICs.
tuner::Facts facts_of(const ChoiceNetwork& network, Bytes mtu) {
  tuner::Facts facts{
      .ranks = network.hosts, .nodes = network.hosts, .nics = {}, .ranks_per_nvlink_domain = {}};
  facts.nics.resize(network.nics,
                    tuner::nic_kind(fmt::format("{}G", network.gbps), bytes_per_s(network.gbps),
                                    static_cast<double>(mtu)));
  return facts;
}

}  // namespace

float nccl_time_us(const ChoiceNetwork& network, TunedFunction function, TunedAlgorithm algorithm,
                   TunedProtocol protocol, Bytes bytes) {
  const auto column = static_cast<size_t>(protocol);
  const bool parts =
      function == TunedFunction::kAllGather || function == TunedFunction::kReduceScatter;
  Cost cost;
  if (algorithm == TunedAlgorithm::kRing) {
    cost = ring(network, function, column, bytes);
  } else if (algorithm == TunedAlgorithm::kTree && function == TunedFunction::kAllReduce) {
    cost = tree(network, column, bytes);
  } else if (algorithm == TunedAlgorithm::kPat && parts && protocol == TunedProtocol::kSimple) {
    cost = pat(network, column);
  } else {
    return nccl::kRuledOut;
  }
  return static_cast<float>(cost.latency_us + static_cast<double>(bytes) / (1000 * cost.rate));
}

Result<ChoiceCase> draw_choice(uint64_t seed, const ChoiceLimits& limits) {
  Prng prng(seed);
  ChoiceCase drawn;
  draw_network(prng, limits, drawn);
  const ChoiceNetwork& network = drawn.network;
  constexpr std::array kFunctions{nccl::TunedFunction::kAllReduce, nccl::TunedFunction::kAllReduce,
                                  nccl::TunedFunction::kAllGather,
                                  nccl::TunedFunction::kReduceScatter,
                                  nccl::TunedFunction::kBroadcast};
  drawn.function = one_of(prng, kFunctions);
  constexpr double kSmallest = 8e3;
  const double largest = static_cast<double>(limits.bytes);
  drawn.bytes = static_cast<Bytes>(kSmallest * std::pow(largest / kSmallest, uniform(prng)));
  // As messages can simulate them: chunks go whole, at the link's rate.
  drawn.assumed = nccl_costs();
  for (ProtocolCosts& protocol : drawn.assumed.protocols) protocol.slices = 1;
  for (ProtocolCosts& protocol : drawn.assumed.protocols) protocol.rate_share = 1;
  drawn.real = drawn.assumed;
  for (ProtocolCosts& protocol : drawn.real.protocols) {
    protocol.step_s *= std::pow(limits.cost_error, 2 * uniform(prng) - 1);
  }

  // Larger packets for larger messages, so that all cases have about as many.
  const Bytes mtu = drawn.bytes * network.hosts > 50'000'000 ? 16384 : 4096;
  ASSIGN_OR_RETURN(drawn.run, run_of(network, mtu, seed));

  tuner::Facts facts = facts_of(network, mtu);
  ASSIGN_OR_RETURN(drawn.known, tuner::clusters_of(facts));
  facts.oversubscription = network.oversubscription;
  facts.hosts_per_leaf = network.per_leaf;
  facts.cable_delay_s = network.delay.seconds();
  drawn.described = std::move(*tuner::clusters_of(facts));
  drawn.name = fmt::format("{}: {} hosts, {} Gb/s, {}:1, {} ns, {:.3g} MB", drawn.fabric,
                           network.hosts, network.gbps, network.oversubscription,
                           network.delay.ns(), static_cast<double>(drawn.bytes) * 1e-6);
  return drawn;
}

}  // namespace pacecar::predict

#include "bench/predict/choices/nccl_model.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>

namespace pacecar::predict {
namespace {

using nccl::TunedAlgorithm;
using nccl::TunedFunction;
using nccl::TunedProtocol;
using ByProtocol = std::array<double, nccl::kTunedProtocols>;  // LL, LL128, Simple

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
constexpr double kPlateau = 1.4;  // of a ring's latency from 64 bytes a channel and rank on

// By powers of two from 64 bytes on.
using Correction = std::array<double, 23>;
constexpr std::array<Correction, nccl::kTunedProtocols> kTreeCorrection{
    Correction{1, 1, 1, 1, .9, .8, .7, .7, .7, .7, .6, .5, .4, .4, .5, .6, .7, .8, .9, 1, 1, 1, 1},
    Correction{1, 1, 1, 1, 1, .9, .8, .8, .8, .7, .6, .6, .6, .6, .6, .6, .8, .9, .9, .9, .9, 1, 1},
    Correction{.9, .9, .9, .9, .9, .9, .9, .8, .7, .6, .6, .5,
               .5, .5, .5, .6, .7, .8, .7, .7, .8, .9, .9}};

// Rates that the search for channels tries (src/graph/search.cc): the largest that the NIC has.
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

Cost ring(const NcclNetwork& network, TunedFunction function, size_t protocol, Bytes bytes) {
  const double n = network.hosts;
  const double channels = network.nics;
  double bus = channels * channel_rate(network.nic_gb_per_s);
  if (protocol == 0) bus = std::min(kLlMost, bus / 2);
  if (protocol == 1) bus = std::min(bus * 0.92, channels * kRingLl128PerChannel);
  const bool all_reduce = function == TunedFunction::kAllReduce;
  const bool along = function == TunedFunction::kBroadcast || function == TunedFunction::kReduce;
  const double steps = all_reduce ? 2 * (n - 1) : along ? n : n - 1;
  // With one rank per host a step is exposed as that of a tree; a chain's is a ring's but for
  // Simple.
  const double step = along && protocol != 2 ? kRingNet[protocol] : kTreeNet[protocol];
  double latency = kRingBase[protocol] + steps * step;
  const double per_rank = static_cast<double>(bytes) / (2 * channels * n);
  if (protocol == 2 && all_reduce && per_rank >= 64) latency *= kPlateau;
  return {bus * n / steps, latency};
}

Cost tree(const NcclNetwork& network, size_t protocol, Bytes bytes) {
  const double channels = network.nics;
  double bus =
      std::min(channels * channel_rate(network.nic_gb_per_s) * 0.92, channels * kTreePerChannel);
  if (protocol == 0) bus = std::min(bus / 3.8, kLlMost);
  if (protocol == 1) bus = std::min(bus * 120 / 128, channels * kTreeLl128PerChannel);
  const auto size = static_cast<size_t>(std::bit_width(std::max<Bytes>(bytes >> 6, 1)) - 1);
  const Correction& correction = kTreeCorrection[protocol];
  const double share = size < correction.size() ? correction[size] : 1;
  return {bus / 2 * share,
          kTreeBase[protocol] + 2 * log2_floor(network.hosts) * kTreeNet[protocol]};
}

Cost pat(const NcclNetwork& network, size_t protocol) {
  const double bus = network.nics * channel_rate(network.nic_gb_per_s) * 0.75;
  return {bus,
          kPatBase[protocol] + log2_floor(network.hosts) * kPatNet / 3.5 + network.hosts * 2.8};
}

}  // namespace

float nccl_time_us(const NcclNetwork& network, TunedFunction function, TunedAlgorithm algorithm,
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

}  // namespace pacecar::predict

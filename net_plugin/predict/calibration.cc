#include "net_plugin/predict/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "net_plugin/predict/plan.h"
#include "net_plugin/predict/predict.h"

namespace pacecar::predict {
namespace {

// Limits for a constant that no measurement depends on: 1 ns, and 100 Tb/s.
constexpr double kLeast = 1e-9;
constexpr double kMost = bytes_per_s(1e5);

double predicted_s(Cluster& cluster, const LibraryCosts& library, const Measured& each) {
  if (each.kind == Measured::Kind::kCollective) {
    cluster.groups[0].hosts = each.hosts;
    return predict(cluster, each.collective, library).time_s;
  }
  cluster.groups[0].hosts = 2;
  const std::array<uint32_t, 2> hosts{0, 1};
  const Network network(cluster, hosts);
  const bool same_leaf = network.leaf_of(0, 0) == network.leaf_of(1, 0);
  const NicKind& nic = cluster.nic_kinds[0];
  const Flow flow =
      network.remote(nic, nic, same_leaf, static_cast<double>(each.collective.bytes), {});
  const double sends = flow.bytes / (nic.rate * nic.efficiency);
  return each.kind == Measured::Kind::kOneWay ? sends + flow.there_s : sends;
}

}  // namespace

// Changes one constant after the other, in steps that shrink when none helps any more.
Calibration calibrate(const NicKind& nic, const Fabric& fabric, const LibraryCosts& library,
                      std::span<const Measured> measured) {
  Cluster cluster{.nic_kinds = {nic},
                  .groups = {{.hosts = 2, .gpus = 1, .nics = {0}}},
                  .fabric = fabric,
                  .background = {}};
  LibraryCosts fitted = library;
  const auto first = std::ranges::find(measured, Measured::Kind::kCollective, &Measured::kind);
  const bool collectives = first != measured.end();
  const Protocol protocol = collectives ? first->collective.protocol : Protocol::kSimple;
  ProtocolCosts& costs = fitted.protocols[static_cast<size_t>(protocol)];
  NicKind& own = cluster.nic_kinds[0];
  std::vector<double*> constants{&own.rate, &own.latency_s, &own.per_message_s};
  if (collectives) constants.insert(constants.end(), {&costs.launch_s, &costs.step_s});
  for (double* constant : constants) *constant = std::max(*constant, kLeast);
  const auto squares = [&] {
    double sum = 0;
    for (const Measured& each : measured) {
      const double off = std::log(predicted_s(cluster, fitted, each) / each.time_s);
      sum += off * off;
    }
    return sum;
  };
  constexpr double kFirstStep = 4;  // times
  constexpr double kLastStep = 1.002;
  double best = squares();
  for (double step = kFirstStep; step > kLastStep;) {
    bool helped = false;
    for (double* constant : constants) {
      for (const double factor : {step, 1 / step}) {
        const double before = *constant;
        *constant = std::clamp(before * factor, kLeast, kMost);
        const double now = squares();
        if (now < best) {
          best = now;
          helped = true;
        } else {
          *constant = before;
        }
      }
    }
    if (!helped) step = std::sqrt(step);
  }
  Calibration found{.nic = own, .costs = costs, .errors = {}};
  for (const Measured& each : measured) {
    found.errors.push_back(predicted_s(cluster, fitted, each) / each.time_s - 1);
  }
  return found;
}

}  // namespace pacecar::predict

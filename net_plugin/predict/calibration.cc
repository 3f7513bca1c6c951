#include "net_plugin/predict/calibration.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "net_plugin/predict/plan.h"
#include "net_plugin/predict/predict.h"

namespace pacecar::predict {
namespace {

class Fit {
 public:
  Fit(const NicKind& nic, const Fabric& fabric, const LibraryCosts& library,
      std::span<const Measured> measured)
      : library_(library), measured_(measured) {
    cluster_.nic_kinds = {nic};
    cluster_.groups = {{.hosts = 2, .gpus = 1, .nics = {0}}};
    cluster_.fabric = fabric;
    const auto first = std::ranges::find(measured, Measured::Kind::kCollective, &Measured::kind);
    collectives_ = first != measured.end();
    if (collectives_) protocol_ = first->collective.protocol;
  }

  // Changes one constant after the other, in steps that shrink when none helps any more.
  Calibration run() {
    std::vector<double*> constants{&nic().rate, &nic().latency_s, &nic().per_message_s};
    if (collectives_) constants.insert(constants.end(), {&costs().launch_s, &costs().step_s});
    for (double* constant : constants) *constant = std::max(*constant, kLeast);
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
    Calibration found{.nic = nic(), .costs = costs()};
    for (const Measured& each : measured_)
      found.errors.push_back(predicted(each) / each.time_s - 1);
    return found;
  }

 private:
  // Limits for a constant that no measurement depends on: 1 ns, and 100 Tb/s.
  static constexpr double kLeast = 1e-9;
  static constexpr double kMost = bytes_per_s(1e5);

  NicKind& nic() { return cluster_.nic_kinds[0]; }
  ProtocolCosts& costs() { return library_.protocols[static_cast<size_t>(protocol_)]; }

  double predicted(const Measured& each) {
    if (each.kind == Measured::Kind::kCollective) {
      cluster_.groups[0].hosts = each.hosts;
      return predict(cluster_, each.collective, library_).time_s;
    }
    cluster_.groups[0].hosts = 2;
    const std::array<uint32_t, 2> hosts{0, 1};
    const Network network(cluster_, hosts);
    const bool same_leaf = network.leaf_of(0, 0) == network.leaf_of(1, 0);
    const Flow flow =
        network.remote(nic(), nic(), same_leaf, static_cast<double>(each.collective.bytes), {});
    const double sends = flow.bytes / (nic().rate * nic().efficiency);
    return each.kind == Measured::Kind::kOneWay ? sends + flow.there_s : sends;
  }

  double squares() {
    double sum = 0;
    for (const Measured& each : measured_) {
      const double off = std::log(predicted(each) / each.time_s);
      sum += off * off;
    }
    return sum;
  }

  Cluster cluster_;
  LibraryCosts library_;
  std::span<const Measured> measured_;
  bool collectives_ = false;
  Protocol protocol_ = Protocol::kSimple;
};

}  // namespace

Calibration calibrate(const NicKind& nic, const Fabric& fabric, const LibraryCosts& library,
                      std::span<const Measured> measured) {
  return Fit(nic, fabric, library, measured).run();
}

}  // namespace pacecar::predict

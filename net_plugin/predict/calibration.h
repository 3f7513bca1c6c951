// The constants of a NIC and of a protocol from measurements: those with which the predictor comes
// closest to them, by least squares of the logarithms of predicted over measured times. Pure.
#pragma once

#include <span>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"
#include "net_plugin/predict/library_costs.h"
#include "transport/base/units.h"

namespace pacecar::predict {

struct Measured {
  enum class Kind : uint8_t {
    kOneWay,      // half of a message's round trip, `pacecar lat`
    kPerMessage,  // of many on their way at the same time, `pacecar bw`
    kCollective,
  };
  Kind kind = Kind::kCollective;
  Collective collective;  // of the first two kinds its `bytes` alone count
  uint32_t hosts = 2;     // that the collective was measured on, of one GPU each
  double time_s = 0;
};

struct Calibration {
  NicKind nic;
  ProtocolCosts costs;         // of the protocol of the collectives
  std::vector<double> errors;  // by measurement: predicted over measured time, less 1
};

// Fits rate, latency and cost per message of `nic`, and, where there are collectives, what their
// operations and steps cost, from where they are now. At least one measurement, of a time above 0.
Calibration calibrate(const NicKind& nic, const Fabric& fabric, const LibraryCosts& library,
                      std::span<const Measured> measured);

}  // namespace pacecar::predict

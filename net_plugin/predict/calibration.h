// Fits constants of a NIC and of a protocol to measurements, by least squares of the logarithms of
// predicted over measured times. Pure.
#pragma once

#include <span>
#include <vector>

#include "net_plugin/predict/cluster.h"
#include "net_plugin/predict/collective.h"

namespace pacecar::predict {

struct Measured {
  enum class Kind : uint8_t {
    kOneWay,      // half of a message's round trip: `pacecar lat`
    kPerMessage,  // time per message of many in flight: `pacecar bw`
    kCollective,
  };
  Kind kind = Kind::kCollective;
  Collective collective;  // for the first two kinds only its `bytes` count
  uint32_t hosts = 2;     // of the collective, with one GPU each
  double time_s = 0;
};

struct Calibration {
  NicKind nic;
  ProtocolCosts costs;         // of the collectives' protocol
  std::vector<double> errors;  // by measurement: predicted over measured time, less 1
};

// Fits rate, latency and cost per message of `nic`; where there are collectives, also the launch
// and step costs of the first one's protocol. Starts from the given values. There is at least one
// measurement, and all times are above 0.
Calibration calibrate(const NicKind& nic, const Fabric& fabric, const LibraryCosts& library,
                      std::span<const Measured> measured);

}  // namespace pacecar::predict

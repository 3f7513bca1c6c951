// What the library above the transport costs, and how it cuts buffers: per protocol. Times in
// seconds.
#pragma once

#include <array>
#include <cstdint>

#include "net_plugin/predict/collective.h"
#include "transport/base/units.h"

namespace pacecar::predict {

struct ProtocolCosts {
  double launch_s = 0;      // once per operation
  double step_s = 0;        // of a GPU, per step of the network: it waits, sums, tells the proxy
  double local_step_s = 0;  // likewise of a step over NVLink, beyond the link's own latency
  double payload = 1;  // of what is sent: LL sends a flag with every 4 bytes, LL128 with every 120
  double rate_share = 1;  // of the links' rate that its kernels can fill
  Bytes chunk = 0;        // what a channel passes on at once, at most; 0: a whole share
  uint32_t slots = 1;     // chunks that may be on the way to one peer
  uint32_t slices = 1;    // parts of a chunk that are passed on as they arrive
};

struct LibraryCosts {
  std::array<ProtocolCosts, kProtocols> protocols;
  bool near_trees = true;  // trees that join neighbours first, two at once; else one heap

  const ProtocolCosts& of(Protocol protocol) const {
    return protocols[static_cast<size_t>(protocol)];
  }
};

// Assumed of NCCL 2.2x: chunks by its default buffer sizes, times of the order of its own tuning
// table (src/graph/tuning.cc). Calibration replaces the times.
LibraryCosts nccl_costs();

// Messages alone, as bench/workload sends them: whole shares, one at a time, no time for sums.
LibraryCosts message_costs();

}  // namespace pacecar::predict

// What the library above the transport costs, and how it divides buffers, by protocol. Times in
// seconds. Plain data.
#pragma once

#include <array>
#include <cstdint>

#include "net_plugin/predict/collective.h"
#include "transport/base/units.h"

namespace pacecar::predict {

struct ProtocolCosts {
  double launch_s = 0;  // once per operation
  double step_s = 0;    // of a GPU per step over the network: it waits, sums, notifies the proxy
  double local_step_s = 0;  // of a GPU per step over NVLink, beyond the link's own latency
  double payload = 1;       // part of what is sent: LL has a flag per 4 bytes, LL128 one per 120
  double rate_share = 1;    // part of the links' rate that its kernels can use
  Bytes chunk = 0;          // most bytes that a channel sends at once; 0: a whole share
  uint32_t slots = 1;       // chunks in flight to one peer
  uint32_t slices = 1;      // parts of a chunk that are forwarded as they arrive
};

struct LibraryCosts {
  std::array<ProtocolCosts, kProtocols> protocols;
  bool near_trees = true;  // two trees that join neighbours first; false: one heap

  const ProtocolCosts& of(Protocol protocol) const {
    return protocols[static_cast<size_t>(protocol)];
  }
};

// Assumed for NCCL 2.2x: chunks by its default buffer sizes, times of the order of its own tuning
// table (src/graph/tuning.cc). Calibration replaces the times.
LibraryCosts nccl_costs();

// Messages alone, as bench/workload sends them: whole shares, one at a time; sums take no time.
LibraryCosts message_costs();

}  // namespace pacecar::predict

// FlowDivision: divides a flow's writes and limits among the cores of its NIC.
// A write goes to the core that is expected to finish it first: the one with the smallest backlog
// of this flow over its share. Shares follow the rates that busy cores achieve. Rate, window, burst
// and credit are divided by share among cores with work: their sum never exceeds the flow's limits.
// Flows that one core can carry stay on one core, spread over the cores. Small writes stay on the
// first core, which needs no other thread, unless its backlog is large.
// Pure. Thread rule: one thread at a time.
#pragma once

#include <array>
#include <cstdint>

#include "transport/nic/nic.h"
#include "transport/nic/rc_endpoint.h"

namespace pacecar {

class FlowDivision {
 public:
  static constexpr uint32_t kMaxCores = RcEndpoint::kMaxLanes;
  static constexpr Bytes kSmallWrite = 128 * 1024;
  static constexpr Bytes kSmallBacklog = 512 * 1024;  // on the first core
  // A flow uses one more core for each multiple of this rate, which any core achieves.
  static constexpr Rate kCoreRate = Rate::from_gbps(10);
  static constexpr Duration kPeriod = Duration::from_ms(1);  // Shares are adapted once per period.

  // `cores`: 1 to kMaxCores. `home`: the core of a slow flow, modulo `cores`.
  FlowDivision(uint32_t cores, uint32_t home);

  // The core for a write, among the first `cores` cores.
  uint32_t choose(Bytes bytes, Rate rate, uint32_t cores) const;
  bool on_posted(uint32_t core, Bytes bytes);  // True: the core had nothing of this flow before.
  bool on_done(uint32_t core, Bytes bytes);    // True: it has nothing left.
  // The peer has acknowledged that many bytes of the core.
  void on_acked(uint32_t core, Bytes bytes, Instant now);
  // The bytes that the core has sent since the flow began.
  void on_sent(uint32_t core, Bytes sent) { cores_[core].sent = sent; }

  bool busy(uint32_t core) const { return cores_[core].writes > 0; }
  // A busy core's present part of the flow's limits, in units of 1 / kWhole.
  uint32_t part(uint32_t core) const;
  static constexpr uint32_t kWhole = 1 << 16;
  FlowLimits limits(uint32_t core, const FlowLimits& flow) const;  // The core's limits; it is busy.

 private:
  struct Core {
    uint32_t share = 0;
    uint32_t writes = 0;  // posted and not done
    Bytes backlog = 0;    // the bytes of these writes
    Bytes acked = 0;      // in this period
    Bytes sent = 0;
    bool rested = true;  // it had no work at some time in this period
  };
  void adapt();

  uint32_t count_;
  uint32_t home_;
  std::array<Core, kMaxCores> cores_{};
  Instant period_end_;
};

}  // namespace pacecar

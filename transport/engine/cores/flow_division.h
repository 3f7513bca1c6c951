// FlowDivision: how a flow's data is divided among the cores of its NIC, and its limits with it.
//
// A write goes to the core that is expected to be done with it first: what the core has to do for
// this flow, over its share. Shares follow what the cores that are kept busy achieve. Rate, window,
// burst and credit are divided by share among those that have something to do, so that their sum is
// never more than the flow's.
//
// Flows so slow that one core does all of it stay on one, each on another. Small writes stay on the
// first core, which needs no other thread, unless much waits there.
//
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
  // What any core can do.
  static constexpr Rate kCoreRate = Rate::from_gbps(10);
  // Shares are adapted after so long.
  static constexpr Duration kPeriod = Duration::from_ms(1);

  // `cores`: 1 to kMaxCores. `home`: of a slow flow.
  FlowDivision(uint32_t cores, uint32_t home);

  // The core for a write, of the first `cores` of them.
  uint32_t choose(Bytes bytes, Rate rate, uint32_t cores) const;
  // True when the core had nothing of this flow before.
  bool on_posted(uint32_t core, Bytes bytes);
  // True when it has nothing more.
  bool on_done(uint32_t core, Bytes bytes);
  // The peer has so much of what the core has sent.
  void on_acked(uint32_t core, Bytes bytes, Instant now);
  // What a core has sent since the flow began, as far as it has told.
  void on_sent(uint32_t core, Bytes sent) { cores_[core].sent = sent; }

  bool busy(uint32_t core) const { return cores_[core].writes > 0; }
  // What part of the flow's limits a busy core has now, in kWhole-ths.
  uint32_t part(uint32_t core) const;
  static constexpr uint32_t kWhole = 1 << 16;
  // The core's limits; it is busy.
  FlowLimits limits(uint32_t core, const FlowLimits& flow) const;

 private:
  struct Core {
    uint32_t share = 0;
    uint32_t writes = 0;  // posted and not done
    Bytes backlog = 0;    // of these
    Bytes acked = 0;      // in this period
    Bytes sent = 0;
    bool rested = true;  // in this period
  };
  void adapt();

  uint32_t count_;
  uint32_t home_;
  std::array<Core, kMaxCores> cores_{};
  Instant period_end_;
};

}  // namespace pacecar

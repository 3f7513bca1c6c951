// ControllerSet: the controllers of all flows that one NIC sends. Most algorithms decide for each
// flow alone. An algorithm that divides the NIC's link among its flows reports here which of them
// have changed.
//
// Purity as for Controller: memory is allocated only in add_flow. Flows are numbered by the caller,
// 0 .. max_flows-1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "cc/controller.h"

namespace pacecar {

class ControllerSet {
 public:
  virtual ~ControllerSet() = default;

  // The controller lives until its flow is removed.
  virtual Controller& add_flow(Instant now, uint32_t flow) = 0;
  virtual void remove_flow(Instant now, uint32_t flow) = 0;
  // Of two flows that could both use more of the link, one gets this many times the other's rate.
  // From 1 to kMaxWeight.
  virtual void set_weight(Instant, uint32_t /*flow*/, uint32_t /*weight*/) {}
  // Flows whose demand and decision must be asked for again without an event of their own: another
  // flow's event or the time has changed them. At most flows.size(); call again while it fills the
  // span.
  virtual size_t poll_changed(Instant, std::span<uint32_t> /*flows*/) { return 0; }
  // When poll_changed has something to do even if nothing happens; Instant::never(): nothing.
  virtual Instant next_deadline() const { return Instant::never(); }
};

}  // namespace pacecar

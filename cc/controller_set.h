// ControllerSet: the controllers of all flows that one NIC sends. Most algorithms decide for each
// flow alone. An algorithm that divides the NIC's link among its flows reports here the flows that
// another flow's event affects. Purity as for Controller: memory is allocated only in add_flow.
// Flows are numbered by the caller, 0 .. max_flows-1.
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
  // As Allocator::set_weight.
  virtual void set_weight(Instant, uint32_t /*flow*/, uint32_t /*weight*/) {}
  // Writes the flows whose demand and decision another flow's event, or the time, has changed, and
  // which must be asked for again. At most flows.size(); call again while it fills the span.
  virtual size_t poll_changed(Instant, std::span<uint32_t> /*flows*/) { return 0; }
  // When poll_changed has something to do even if nothing happens; Instant::never(): nothing.
  virtual Instant next_deadline() const { return Instant::never(); }
};

}  // namespace pacecar

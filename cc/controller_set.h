// ControllerSet: the controllers of all flows that one NIC sends. Most algorithms decide for each
// flow alone; one whose flows share the NIC's link by agreement says here which of them to ask
// again.
//
// Purity as for Controller: memory is allocated in add_flow alone. Flows are numbered by the
// caller, 0 .. max_flows-1.
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
  // Flows whose demand and decision must be asked for again although nothing has happened to them:
  // by another flow's doing, or by the passing of time. At most flows.size(); call again while it
  // fills the span.
  virtual size_t poll_changed(Instant, std::span<uint32_t> /*flows*/) { return 0; }
  // When poll_changed has something by the passing of time alone; Instant::never() if not.
  virtual Instant next_deadline() const { return Instant::never(); }
};

}  // namespace pacecar

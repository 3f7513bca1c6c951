// Allocator: divides one receiving NIC's link among the flows that send to it, and says so in
// grants.
//
// Purity as for Controller. Flows are numbered by the caller, 0 .. max_flows-1.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "cc/controller.h"

namespace pacecar {

struct GrantUpdate {
  uint32_t flow = 0;
  Grant grant;
};

class Allocator {
 public:
  virtual ~Allocator() = default;

  virtual void add_flow(Instant now, uint32_t flow) = 0;
  virtual void remove_flow(Instant now, uint32_t flow) = 0;
  // Bytes that a posted receive will accept from this flow.
  virtual void on_posted(Instant now, uint32_t flow, Bytes bytes) = 0;
  // Bytes of posted receives that are done with: arrived, cancelled, or posted but never sent.
  virtual void on_finished(Instant now, uint32_t flow, Bytes bytes) = 0;
  virtual void on_demand(Instant now, uint32_t flow, const Demand& demand) = 0;
  // The grants that changed or must be repeated, at most updates.size(); call again while it fills
  // the span.
  virtual size_t poll_grants(Instant now, std::span<GrantUpdate> updates) = 0;
  // When poll_grants has something by the passing of time alone; Instant::never() if not.
  virtual Instant next_deadline() const = 0;
  // The grant in force for a flow (it travels in every CTS).
  virtual Grant grant(uint32_t flow) const = 0;
};

}  // namespace pacecar

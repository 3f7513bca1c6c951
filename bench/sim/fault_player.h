// Lets the faults of a run happen at their times.
#pragma once

#include <cstddef>
#include <span>

#include "bench/sim/run_spec.h"
#include "bench/sim/trace_file.h"
#include "transport/sim/event_loop.h"
#include "transport/sim/fabric.h"

namespace pacecar {

class FaultPlayer final : public EventSink {
 public:
  // `faults` are in the order of their times; all outlive the player; `trace` may be null.
  FaultPlayer(EventLoop& loop, Fabric& fabric, std::span<const FaultEvent> faults,
              TraceFile* trace);

  // Time 0 is now.
  void begin();
  void on_event(Instant now, uint32_t what) override;

 private:
  void apply(const FaultEvent& fault);

  EventLoop& loop_;
  Fabric& fabric_;
  std::span<const FaultEvent> faults_;
  TraceFile* trace_;
  EventLoop::TimerId timer_;
  Instant begin_;
  size_t next_ = 0;
  SimFaults faulty_;  // as set in the fabric
};

}  // namespace pacecar

// Our own events for NCCL's profiler, with PACECAR_PROFILER=all, reported by the callback that a
// net plugin gets at init: a request, from its posting to its completion, as a part of the step for
// which NCCL posted it. Does nothing without a callback, or for requests without a profiler handle.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>

#include "net_plugin/abi/types.h"
#include "transport/base/params.h"

namespace pacecar::profiler {

// PACECAR_PROFILER; kOff also if the parameters are invalid: the net plugin logs why.
ProfilerSetting profiler_setting();

// Who made an event and how its data is laid out: NCCL's own networks have 1 and 2 in the upper
// half; the lower half is the layout's version.
inline constexpr int64_t kNetEventId = int64_t{0x5043} << 16 | 1;

// Read while the event begins.
struct NetEventData {
  uint64_t bytes = 0;
  uint8_t sending = 0;
};

// Of a communicator's init; may be nullptr.
void set_net_event_callback(nccl::ProfilerCallback callback);

// The event; nullptr if nobody records it. `step`: the profiler handle of isend or irecv.
void* begin_net_event(void* step, const NetEventData& data);
void end_net_event(void* event);

}  // namespace pacecar::profiler

// Events of our own, told to NCCL's profiler by the callback that a net plugin gets at init: a
// request, from when it was posted until it was done, as a part of the step for which NCCL posted
// it, with PACECAR_PROFILER=all. Nothing happens where NCCL gives no callback, or a request no
// profiler handle.
//
// Thread rule: any thread.
#pragma once

#include <cstdint>

#include "net_plugin/abi/types.h"

namespace pacecar::profiler {

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

// The event; nullptr where nobody wants to know. `step` is what isend or irecv were given.
void* begin_net_event(void* step, const NetEventData& data);
void end_net_event(void* event);

}  // namespace pacecar::profiler

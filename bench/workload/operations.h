// Workloads as collective libraries have them: the same operation again and again, its data in
// messages of a bounded size. Pure.
#pragma once

#include "bench/workload/workload.h"
#include "transport/base/result.h"

namespace pacecar {

// Cuts each flow into messages of at most `slice` bytes. At most kSlicesUnderWay of a flow are
// unacknowledged. A flow that waits for another flow's data sends a slice as soon as its input is
// there. Errors: kInvalidArgument for a workload with multi-shot triggers.
inline constexpr uint32_t kSlicesUnderWay = 8;  // as NCCL_STEPS of NCCL
Result<Workload> in_slices(const Workload& whole, Bytes slice);

// `operations` times the same flows. A host is done with an operation when all that it sends is
// acknowledged and all that it receives has arrived. A flow of the next operation that waits for no
// other flow starts when both of its hosts are done, and `pause` later.
Workload repeated(const Workload& once, uint32_t operations, Duration pause);

}  // namespace pacecar

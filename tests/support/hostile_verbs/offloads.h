// The optional offload of a hostile device: time stamps of completions, as strict as its manual
// page.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "tests/support/hostile_verbs/behavior.h"
#include "transport/base/prng.h"

namespace pacecar::hostile {

// Fills in the calls that a program makes through its context.
void offer_offloads(verbs_context& context);

// The time stamp of a completion now, in ticks of the device's clock.
uint64_t time_stamp(const Behavior& behavior, int64_t now_ns, Prng& prng);

}  // namespace pacecar::hostile

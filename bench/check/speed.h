// How fast a plugin is between two processes of this host.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/check/trial.h"
#include "net_plugin/host/host.h"

namespace pacecar::check {

// Rank 1 sends a stream of messages to rank 0 for this long, after a warm-up.
nlohmann::json measure_stream(Arena& arena, const nccl::Subject& subject, int rank,
                              Duration length);
// A ping-pong; half round trips.
nlohmann::json measure_latency(Arena& arena, const nccl::Subject& subject, int rank,
                               Duration length);

}  // namespace pacecar::check

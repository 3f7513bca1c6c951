// How fast a plugin is on this host, between two processes or in one.
#pragma once

#include <nlohmann/json_fwd.hpp>

#include "bench/check/trial.h"
#include "net_plugin/host/communicator.h"

namespace pacecar::check {

// Rank 1 sends a stream of messages to rank 0 for this long, after a warm-up.
nlohmann::json measure_stream(Arena& arena, const nccl::Subject& subject, int rank,
                              Duration length);
// Rank 0 opens so many connections to itself, passes a message over each and closes them, in
// several rounds. Descriptors and memory may have grown between the ends of the first and the last
// round.
nlohmann::json measure_connections(Arena& arena, const nccl::Subject& subject, size_t count);
// A ping-pong; half round trips.
nlohmann::json measure_latency(Arena& arena, const nccl::Subject& subject, int rank,
                               Duration length);

}  // namespace pacecar::check

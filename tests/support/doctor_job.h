// Invented jobs for pacecar doctor: rank i runs on host "h<i>" with one NIC.
#pragma once

#include <string>
#include <vector>

#include "bench/doctor/job.h"

namespace pacecar::test {

inline std::string identity_of_rank(size_t rank) { return "identity-" + std::to_string(rank); }

inline std::vector<doctor::Process> ranks(size_t count) {
  std::vector<doctor::Process> processes(count);
  for (size_t rank = 0; rank < count; ++rank) {
    processes[rank] = {.host = "h" + std::to_string(rank),
                       .program = "train",
                       .pid = 100 + rank,
                       .rank = rank,
                       .uptime_s = 100,
                       .nics = {{.name = "nic" + std::to_string(rank),
                                 .identity = identity_of_rank(rank),
                                 .line_rate_bps = 100e9,
                                 .flows = {}}}};
  }
  return processes;
}

inline doctor::Flow flow_to(size_t rank) {
  doctor::Flow flow;
  flow.sending = true;
  flow.peer = "192.0.2." + std::to_string(rank) + ":4791";
  flow.peer_identity = identity_of_rank(rank);
  flow.state = "open";
  flow.limited_by = "application";
  return flow;
}

inline doctor::Flow flow_from(size_t rank) {
  doctor::Flow flow = flow_to(rank);
  flow.sending = false;
  flow.limited_by.clear();
  return flow;
}

// Requests that wait for the peer, or for its acknowledgements.
inline doctor::Flow still(doctor::Flow flow, double seconds, bool awaits_peer) {
  flow.requests = 2;
  flow.still_s = seconds;
  flow.awaits_peer = awaits_peer;
  flow.unacknowledged_writes = awaits_peer ? 0 : 16;
  return flow;
}

inline doctor::Job job_of(std::vector<doctor::Process> processes) {
  doctor::Job job;
  for (doctor::Process& process : processes) job.add(std::move(process));
  return job;
}

}  // namespace pacecar::test

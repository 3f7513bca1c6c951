// The RDMA device that tests use, and the time they live in.
#pragma once

#include <time.h>

#include <algorithm>

#include "transport/verbs/device.h"

namespace pacecar::test {

// The first port that is up; the error says why there is none.
inline Result<VerbsPortInfo> active_verbs_port() {
  const auto ports = list_verbs_ports();
  if (!ports) return tl::unexpected(ports.error());
  const auto port = std::ranges::find(*ports, true, &VerbsPortInfo::active);
  if (port != ports->end()) return *port;
  return fail(ErrorCode::kNotFound, "this machine has no RDMA device that is up");
}

inline Instant monotonic_now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return Instant::from_ns(t.tv_sec * 1'000'000'000 + t.tv_nsec);
}

}  // namespace pacecar::test

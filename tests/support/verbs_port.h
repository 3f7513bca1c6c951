// The RDMA device that tests use.
#pragma once

#include <algorithm>

#include "tests/support/monotonic_now.h"
#include "transport/verbs/device.h"

namespace pacecar::test {

// The first port that is up; an error with the reason if there is none.
inline Result<VerbsPortInfo> active_verbs_port() {
  const auto ports = list_verbs_ports();
  if (!ports) return tl::unexpected(ports.error());
  const auto port = std::ranges::find(*ports, true, &VerbsPortInfo::active);
  if (port != ports->end()) return *port;
  return fail(ErrorCode::kNotFound, "this machine has no RDMA device that is up");
}

}  // namespace pacecar::test

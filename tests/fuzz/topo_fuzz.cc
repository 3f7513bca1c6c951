// A .topo file of any bytes: no crash, and in every accepted network the hosts reach each other.
#include <cstdint>

#include "tests/fuzz/fuzz_target.h"
#include "transport/base/check.h"
#include "transport/sim/routing.h"
#include "transport/sim/topologies.h"
#include "transport/sim/topology.h"

namespace pacecar::topo_fuzz {

FUZZ_TARGET(topo) {
  const auto topology = parse_topo({reinterpret_cast<const char*>(data), size}, "fuzz.topo");
  if (!topology) return 0;
  constexpr size_t kCablesInTime = 10'000;
  if (topology->cables.size() > kCablesInTime) return 0;
  PACECAR_CHECK(make_routing(*topology).has_value());
  return 0;
}

}  // namespace pacecar::topo_fuzz

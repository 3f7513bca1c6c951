// The packet formats that a software NIC uses (PACECAR_WIRE). A connection is extended or standard
// RC; with kAuto the peer decides.
#pragma once

#include <cstdint>

namespace pacecar {

enum class WireMode : uint8_t {
  kExtended,  // our own: any order, many paths; only between software NICs
  kAuto,      // extended with peers that offer it, else standard RC
  kRoce,      // standard RC over RoCE v2: also with RDMA NICs
};

}  // namespace pacecar

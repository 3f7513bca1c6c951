// How packets of the software NIC look on the wire. Each connection has one mode.
#pragma once

#include <cstdint>

namespace pacecar {

enum class WireMode : uint8_t {
  kExtended,  // of our own: any order, many paths; only between software NICs
  kAuto,      // that with peers that offer it, else standard RC
  kRoce,      // standard RC over RoCE v2: with every RDMA NIC that speaks it
};

}  // namespace pacecar
